"""The record of a public function: its oracle, its twin in jax.numpy, and arguments worth testing.

Tests, benchmarks and documentation iterate over the records, so a new function is covered once it has a record.
The signature and the module of a function already define its parameters, autodiff modes and reference page, and
a record does not repeat them. Each function in `jaxpool.testing.oracle` declares its record with `@record(...)`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import numpy as jnp

import jaxpool
from jaxpool.testing._answer import Answer
from jaxpool.testing._sample_calls import (
    OMIT_ARGUMENT,
    PARTNER_ARGUMENTS,
    sample_calls,
    usual_value,
)
from jaxpool.testing._windows import windows_of_call

ArgumentsByName = dict[str, Any]  # arguments by name; `*xs` is a tuple
# A public function with one of these parameters needs a record.
ARRAY_PARAMETERS = ("x", "y", "xs", "features")
TUPLE_PARAMETERS = ("xs", "features")  # parameters that hold a tuple of arrays


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """The record of one public function.

    - `meaning`: the oracle, NumPy loops with the arguments of the function.
    - `twin`: plain jax.numpy with the same arguments. Its derivative is correct if no elements tie.
    - `usual`: by argument name, a function from images x to the value in a valid call. `_sample_calls.py` has the
      values of common arguments, such as window_shape and strides.
    - `choices`: by argument name, more values worth testing.
    - `adds`: whether the values are rounded sums, or a function from the arguments to that bool. A function that does
      not add selects elements, and must be exact.
    - `keeps_integers`: whether a function that adds returns integers for integers, instead of floats.
    - `tolerance`: relative error in addition to the rounding of a sum, in units of the eps of the accumulator.
    - `rounds_weights`: whether the derivative is computed from the value rounded to its dtype.
    - `operands`: the arrays that the function is differentiated with respect to.
    - `coefficients`: differentiable arguments that are a number or an array, such as `temperature`.
    - `covers`: the kinds of values (see `draw_values`) for which the oracle and the function have the same derivative.
    """

    name: str
    meaning: Callable[..., Answer]
    twin: Callable[..., Any]
    usual: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    adds: bool | Callable[..., bool] = False
    marks: bool = False  # values are True and False, which have no derivative
    keeps_integers: bool = False
    coefficients: tuple[str, ...] = ()
    tolerance: float = 0.0
    rounds_weights: bool = False
    operands: tuple[str, ...] = ()
    covers: tuple[str, ...] = ("ties", "normal", "special", "lowest")

    def __repr__(self) -> str:
        return f"pools()[{self.name!r}]"

    @property
    def function(self) -> Callable[..., Any]:
        """The public function."""
        return getattr(jaxpool, self.name)

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function's signature."""
        return inspect.signature(self.function).parameters

    def takes(self, *arguments: str) -> bool:
        """Whether the function's signature has all of these arguments."""
        return all(argument in self.parameters for argument in arguments)

    @property
    def topic(self) -> str:
        """The module that defines the function, which is also the name of its reference page."""
        return self.function.__module__.rpartition(".")[-1]

    @property
    def ties(self) -> tuple[str, ...]:
        """The valid values of `ties`; empty if the function has no such argument."""
        return self.oracle_ties if self.takes("ties") else ()

    @property
    def oracle_ties(self) -> tuple[str, ...]:
        """The values of `ties` that the oracle `meaning` accepts. Without this argument, its rule is "first"."""
        if "ties" not in inspect.signature(self.meaning).parameters:
            return ()
        if self.marks:
            return ("first", "last", "all")
        has_split = not (self.takes("reverse") or self.takes("k"))
        return ("first", "last", "split") if has_split else ("first", "last")

    @property
    def modes(self) -> tuple[str, ...]:
        """The valid values of `autodiff`; empty for a function without the argument, which supports both modes."""
        return ("vjp", "jvp") if self.takes("autodiff") else ()

    def rounds(self, given: Mapping[str, Any]) -> bool:
        """Whether a call returns rounded sums."""
        return self.adds(**given) if callable(self.adds) else self.adds

    def looseness(self, dtype: Any) -> float:
        """The relative error of values and weights of a float dtype, in addition to the rounding of a sum."""
        sum_dtype = np.float64 if dtype == np.float64 else np.float32
        tolerance = self.tolerance * float(jnp.finfo(sum_dtype).eps)
        return tolerance + float(jnp.finfo(dtype).eps) if self.rounds_weights else tolerance

    def averages(self, given: Mapping[str, Any]) -> bool:
        """Whether a call returns floats for integers."""
        return self.rounds(given) and not self.keeps_integers

    def given(self, x: Any, /, **settings: Any) -> ArgumentsByName:
        """The arguments of a valid call that pools the images x, (B, H, W, C), or one image, (H, W, C).

        `settings` replace the usual arguments. Settings that the function does not take are ignored.
        """
        arguments: ArgumentsByName = {}
        for name, parameter in self.parameters.items():
            if name in settings:
                arguments[name] = settings[name]
            elif name in self.usual:
                arguments[name] = self.usual[name](x)
            elif parameter.default is parameter.empty or self.takes(
                PARTNER_ARGUMENTS.get(name, "")
            ):
                arguments[name] = usual_value(self, name, x, arguments)
        return {name: value for name, value in arguments.items() if value is not OMIT_ARGUMENT}

    def run(self, given: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """Call the public function, or `function` instead of it, with the arguments `given`."""
        if function is self.meaning:
            given = {name: value for name, value in given.items() if name != "autodiff"}
        return call_by_argument_names(self.function if function is None else function, given)

    def of(
        self, function: Callable[..., Any] | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        """A function from images to the first result of a valid call with these images."""

        def first_result(x: Any) -> Any:
            y = self.run(self.given(x, **settings), function)
            return y[0] if isinstance(y, tuple) else y

        return first_result

    def samples(self) -> dict[str, ArgumentsByName]:
        """Valid calls by name: small, integer, long and special values, and one call per further choice."""
        return sample_calls(self)

    def drawn(self, **how: Any) -> Any:
        """A hypothesis strategy for calls, see `jaxpool.testing.calls`. Needs hypothesis."""
        return importlib.import_module("jaxpool.testing._strategies").calls(self, **how)


RECORDS: dict[str, Pool] = {}


def record(
    *names: str, twin: Callable[..., Any], operands: tuple[str, ...] = ("x",), **record_fields: Any
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Decorator of an oracle function: registers the records of the public functions `names`, by default its own name.

    `Pool.meaning` and `Pool.twin` are called like the public function. The oracle function and the twin declare only
    the arguments that they need, or all as `**arguments`. Their argument `windows` receives the windows of the call.
    """

    def register(oracle_function: Callable[..., Answer]) -> Callable[..., Answer]:
        for name in names or (oracle_function.__name__,):
            meaning, twin_function = (
                with_public_signature(name, function) for function in (oracle_function, twin)
            )
            RECORDS[name] = Pool(name, meaning, twin_function, operands=operands, **record_fields)
        return oracle_function

    return register


def with_public_signature(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, called with the arguments of the public function `name`, except `autodiff`.

    An oracle function with `ties` for a public function without it gets this argument as a keyword.
    """
    known = inspect.signature(getattr(jaxpool, name))
    declared = inspect.signature(function).parameters
    parameters = [each for each in known.parameters.values() if each.name != "autodiff"]
    if "ties" in declared and "ties" not in known.parameters:
        parameters.append(declared["ties"].replace(kind=inspect.Parameter.KEYWORD_ONLY))
    signature = known.replace(parameters=parameters, return_annotation=Answer)
    takes_all = any(each.kind is each.VAR_KEYWORD for each in declared.values())

    @functools.wraps(function)
    def bound(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        given = dict(call.arguments)
        if "windows" in declared:
            given["windows"] = windows_of_call(given["x"], given)
        return function(
            **{key: value for key, value in given.items() if takes_all or key in declared}
        )

    bound.__name__ = name
    bound.__signature__ = signature  # type: ignore[attr-defined]
    return bound


def pools() -> dict[str, Pool]:
    """The record of each public function that takes an array, by name.

    Raises:
        LookupError: a public function has no record. The message names the folder for it.

    Example:
        >>> import numpy as np
        >>> from jaxpool.testing import pools
        >>> pool = pools()["max_pool"]
        >>> pool.ties, pool.modes, pool.topic
        (('first', 'last', 'split'), ('vjp', 'jvp'), 'max_pool')
        >>> pool.meaning(np.arange(4.0)[:, None], (2,), (2,)).y.ravel()
        array([1., 3.])
    """
    importlib.import_module("jaxpool.testing.oracle")
    takes = {name: inspect.signature(getattr(jaxpool, name)).parameters for name in jaxpool.__all__}
    names = [
        name
        for name, parameters in takes.items()
        if any(parameter in parameters for parameter in ARRAY_PARAMETERS)
    ]
    missing_names = [name for name in names if name not in RECORDS]
    if missing_names:
        hint = "write its loops in `jaxpool/testing/oracle`, and `@record(twin=...)` above them"
        raise LookupError(f"jaxpool.{missing_names[0]} has no record: {hint}.")
    return {name: RECORDS[name] for name in names}


def call_by_argument_names(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call `function` with arguments by name; the arrays `xs` are passed as positional arguments."""
    keyword_arguments = dict(arguments)
    return function(*keyword_arguments.pop("xs", ()), **keyword_arguments)
