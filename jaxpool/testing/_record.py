"""The record of a public function: what shows that it is right, told once for tests, benches, pages and users.

What a function takes, in which modes it is differentiated and on which page it stands, its signature and its module
say; nothing of that is repeated here. A record adds what they cannot say: what the function means (the oracle), a
twin that jax differentiates by itself, and values worth trying. `jaxpool.testing.oracle` declares one beside the loops
of each function, by `@record(...)`.
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
from jaxpool.testing import _usual
from jaxpool.testing._answer import Answer

Given = dict[str, Any]  # arguments by name, those of a `*xs` as a tuple
ARRAYS = ("x", "y", "xs", "features")  # the arguments by which a function of an array is told
SEVERAL = ("xs", "features")  # those of them that are a tuple of arrays


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """One public function of an array, and what shows that it is right.

    - `meaning`: the oracle, loops in NumPy with the arguments of the function.
    - `twin`: plain jax.numpy with the same arguments. Its derivative is right wherever no elements tie.
    - `usual`: for an argument, a function that takes images x and gives the argument of a right call, where the
      name of the argument does not say it (`_usual.py` knows window_shape, strides and the like).
    - `choices`: for an argument, more values that are worth trying.
    - `adds`: whether values are rounded sums. Where that depends on the arguments, a function of them. A function
      that does not add selects elements, and must be exact.
    - `keeps_integers`: whether a function that adds gives integers for integers, and not floats.
    - `tolerance`: a relative error to allow on top of the rounding of a sum, in units of the eps of its accumulator.
    - `rounds_weights`: whether the derivative is computed from the value as it was rounded to its dtype.
    - `operands`: the arrays by which the function is differentiated.
    - `coefficients`: arguments that are numbers or arrays, by which it is differentiated too, such as a `temperature`.
    - `covers`: the kinds of numbers (see `draw_values`) for which the oracle and the function have the same derivative.
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
        """The parameters of its signature."""
        return inspect.signature(self.function).parameters

    def takes(self, *arguments: str) -> bool:
        """Whether its signature has all of these arguments."""
        return all(argument in self.parameters for argument in arguments)

    @property
    def topic(self) -> str:
        """The module that defines it: the page of the reference on which it stands."""
        return self.function.__module__.rpartition(".")[-1]

    @property
    def ties(self) -> tuple[str, ...]:
        """The rules of ties that it takes; none where it has no such argument."""
        if not self.takes("ties"):
            return ()
        if self.marks:
            return ("first", "last", "all")
        return ("first", "last") if self.takes("reverse") else ("first", "last", "split")

    @property
    def modes(self) -> tuple[str, ...]:
        """What `autodiff` may be; none where it has no such argument, and takes both modes."""
        return ("vjp", "jvp") if self.takes("autodiff") else ()

    def rounds(self, given: Mapping[str, Any]) -> bool:
        """Whether a call gives rounded sums."""
        return self.adds(**given) if callable(self.adds) else self.adds

    def looseness(self, dtype: Any) -> float:
        """The relative error of values and weights of a floating dtype, on top of the rounding of a sum."""
        accumulated = np.float64 if dtype == np.float64 else np.float32
        loose = self.tolerance * float(jnp.finfo(accumulated).eps)
        return loose + float(jnp.finfo(dtype).eps) if self.rounds_weights else loose

    def averages(self, given: Mapping[str, Any]) -> bool:
        """Whether a call gives floats for integers."""
        return self.rounds(given) and not self.keeps_integers

    def given(self, x: Any, /, **settings: Any) -> Given:
        """The arguments of a right call that pools the images x, (B, H, W, C), or one image, (H, W, C).

        `settings` are arguments to take in place of the usual ones; what the function does not take is left out.
        """
        found: Given = {}
        for name, parameter in self.parameters.items():
            if name in settings:
                found[name] = settings[name]
            elif name in self.usual:
                found[name] = self.usual[name](x)
            elif (
                name in _usual.WITH and self.takes(_usual.WITH[name])
            ) or parameter.default is parameter.empty:
                found[name] = _usual.value(self, name, x, found)
        return {name: value for name, value in found.items() if value is not _usual.LEFT_OUT}

    def run(self, given: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """What the function gives, or `function` in its place, called with `given`."""
        return called(self.function if function is None else function, given)

    def of(
        self, function: Callable[..., Any] | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        """The function of an array of images alone: its first result, in a right call of that array."""

        def pooled(x: Any) -> Any:
            y = self.run(self.given(x, **settings), function)
            return y[0] if isinstance(y, tuple) else y

        return pooled

    def samples(self) -> dict[str, Given]:
        """Right calls by name: small, of integers, long, of special values, and one for each other choice."""
        return _usual.samples(self)

    def drawn(self, **how: Any) -> Any:
        """A hypothesis strategy of calls: see `jaxpool.testing.calls`, which needs hypothesis."""
        return importlib.import_module("jaxpool.testing._drawn").calls(self, **how)


_RECORDS: dict[str, Pool] = {}


def record(
    *, twin: Callable[..., Any], operands: tuple[str, ...] = ("x",), **fields: Any
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Keeps the record of the public function that has the name of the loops below."""

    def register(meaning: Callable[..., Answer]) -> Callable[..., Answer]:
        name = meaning.__name__
        _RECORDS[name] = Pool(name, meaning, twin, operands=operands, **fields)
        return meaning

    return register


def pools() -> dict[str, Pool]:
    """The record of each public function that takes an array, by name.

    Raises:
        LookupError: a public function has no record; the message says where to put it.

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
        name for name, parameters in takes.items() if any(each in parameters for each in ARRAYS)
    ]
    missing = [name for name in names if name not in _RECORDS]
    if missing:
        where = "write its loops in `jaxpool/testing/oracle`, and `@record(twin=...)` above them"
        raise LookupError(f"jaxpool.{missing[0]} has no record: {where}.")
    return {name: _RECORDS[name] for name in names}


def called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """`function` of arguments by name, of which `xs` are positional."""
    named = dict(given)
    return function(*named.pop("xs", ()), **named)
