"""`ArgumentError`, which states the reason; `@public` adds the name of the called function and its shapes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_SHOWN_CHARS = 200  # maximum length of a value's repr in a message
MAX_SHOWN_ELEMENTS = 16  # a larger array is shown as its dtype and shape
MAX_SHOWN_AXES = 2  # an array of more axes is shown in the same way
MAX_DEPTH = 100  # of nested tuples, lists and dicts
MAX_PARTS = 10**7  # of nested tuples, lists and dicts, counting a shared part each time
TRACED_VALUE_HINT = (
    "It is traced, as an argument of a function under jax.jit is: name that argument in "
    "static_argnums or static_argnames, or close over a Python value."
)


@dataclasses.dataclass(eq=False)
class ArgumentError(Exception):
    """An invalid argument: `arg_name` must be `rule`, but is `value`. `hint` explains how to correct the call.

    Pass `attribute` if `value` is an attribute of the argument, such as its dtype. `shown_value` replaces the repr of
    the value. Pass `must_be_static=False` for array arguments, which may be traced. For every other argument, a traced
    value is reported as the error.
    """

    arg_name: str
    rule: str
    value: object
    hint: str
    error_type: type[Exception] = ValueError
    _: dataclasses.KW_ONLY
    attribute: str = ""
    shown_value: str = ""
    must_be_static: bool = True

    def __post_init__(self) -> None:
        if self.must_be_static and _contains(_is_tracer, self.value):
            self.rule, self.hint = f"static, {self.rule}", TRACED_VALUE_HINT

    def error_for_function(
        self, function_name: str, shown_arguments: Mapping[str, object]
    ) -> Exception:
        """The exception that the user of `jaxpool.<function>` sees; its message shows no value twice."""
        shown_name = f"{self.arg_name}.{self.attribute}" if self.attribute else self.arg_name
        shown_value = self.shown_value or f"{shown_name}={short_repr(self.value)}"
        other_arguments = [
            text
            for name, value in shown_arguments.items()
            if name != shown_name and (text := f"{name}={short_repr(value)}") not in shown_value
        ]
        shown_value += f" ({', '.join(other_arguments)})" if other_arguments else ""
        return self.error_type(
            f"jaxpool.{function_name}: `{self.arg_name}` must be {self.rule}; got {shown_value}. {self.hint}"
        )


def is_nested_deeply(value: object) -> bool:
    """Whether tuples, lists and dicts contain themselves, or have too many layers or parts to be walked.

    For a list that contains itself, functions of `jax.tree` raise RecursionError, and then so does every later call in
    the process (jax 0.10 to 0.12). For 60 lists that each contain the next one twice, they and `repr` never return.
    """
    return _num_parts(value, MAX_DEPTH, {}) > MAX_PARTS


def _num_parts(value: object, max_depth: int, known: dict[int, float]) -> float:
    """The number of nested parts, or infinity if they are deeper than `max_depth`. `known` has those of other ids."""
    if not isinstance(value, (tuple, list, dict)):
        return 1
    if id(value) not in known:
        known[id(value)] = math.inf  # until it is counted, in case it contains itself
        parts = value.values() if isinstance(value, dict) else value
        if max_depth > 0:
            known[id(value)] = 1 + sum(_num_parts(part, max_depth - 1, known) for part in parts)
    return known[id(value)]


def check_nesting(arg_name: str, value: object) -> None:
    """Raise if `value` is nested too deeply."""
    if is_nested_deeply(value):
        hint = "It may contain itself, or one part many times."
        raise ArgumentError(arg_name, "nested less deeply", value, hint)


def _contains(is_match: Callable[[object], bool], value: object) -> bool:
    """Whether `is_match(value)`, or `value` is a tuple or list that contains such a value at any depth."""
    stack, seen_ids = [value], set()  # a list may contain itself
    while stack:
        part = stack.pop()
        if is_match(part):
            return True
        if isinstance(part, (tuple, list)) and id(part) not in seen_ids:
            seen_ids.add(id(part))
            stack += part
    return False


def _is_tracer(value: object) -> bool:
    jax = sys.modules.get("jax")  # if JAX is not imported, nothing is traced
    return jax is not None and isinstance(value, jax.core.Tracer)


def _is_shown_as_type(value: object) -> bool:
    """Whether messages show the dtype and shape of `value`: a traced array, or one of many elements or axes."""
    shape = getattr(value, "shape", None)
    return _is_tracer(value) or (
        hasattr(type(value), "__array__")
        and hasattr(value, "dtype")
        and isinstance(shape, tuple)
        and (math.prod(shape) > MAX_SHOWN_ELEMENTS or len(shape) > MAX_SHOWN_AXES)
    )


class _Text(str):
    """A string without quotes in its repr."""

    __repr__ = str.__str__


def _repr(value: Any) -> str:
    """The repr of `value`, but with names for dtypes, and with the dtype and shape of traced and large arrays."""
    numpy, jax = (sys.modules.get(name) for name in ("numpy", "jax"))  # None if not imported
    if numpy is not None and isinstance(value, numpy.dtype):
        return str(value)
    if jax is not None:

        def shown(part: Any) -> object:
            if not _is_shown_as_type(part):
                return part
            return _Text(f"{'traced ' * _is_tracer(part)}{part.dtype}{list(part.shape)}")

        value = jax.tree.map(shown, value, is_leaf=lambda x: not isinstance(x, (tuple, list, dict)))
    # Other objects show their large arrays by a few elements.
    options = {"threshold": MAX_SHOWN_ELEMENTS, "edgeitems": 1}
    with numpy.printoptions(**options) if numpy else contextlib.nullcontext():
        return repr(value)


def short_repr(value: object) -> str:
    """The beginning of the repr of `value`, which may be any object, on one line."""
    line = f"<{type(value).__name__}>"
    # `repr` may raise, for example for an int with more digits than Python converts.
    with contextlib.suppress(Exception):
        line = line if is_nested_deeply(value) else " ".join(_repr(value).split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 1] + "…"


@contextlib.contextmanager
def name_function_in_errors(function_name: str, **shown_arguments: object) -> Iterator[None]:
    """In the `with` block, convert an `ArgumentError` as `@public` does; for methods and inner functions."""
    try:
        yield
    except ArgumentError as error:
        raise error.error_for_function(function_name, shown_arguments) from None
