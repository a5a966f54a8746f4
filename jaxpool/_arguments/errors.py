"""One voice for every message about an argument.

Inner code raises `ArgumentError` with the reason alone; the public function that was called adds
its name and the shapes it was called with, once, through `calling`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

LONGEST = 200  # characters of a value that a message shows
STATIC = (
    "It is traced, as an argument of a function under jax.jit is: name that argument in "
    "static_argnums or static_argnames, or close over a Python value."
)


class ArgumentError(Exception):
    """Why an argument cannot be taken: `argument` must be `rule`, got `value`; `hint` says what to do.

    `of` names the attribute of the argument whose value it is, if it is not the argument's own, and
    `got` is all that was received, in words, where one value does not say it. What is not `static`
    is an array: all other arguments must be known when a function is traced.
    """

    def __init__(
        self,
        argument: str,
        rule: str,
        value: Any,
        hint: str,
        kind: type[Exception] = ValueError,
        *,
        of: str = "",
        got: str = "",
        static: bool = True,
    ) -> None:
        super().__init__(argument, rule, value, hint, kind, of, got, static)
        self.argument, self.rule, self.value = argument, rule, value
        self.hint, self.kind = hint, kind
        self.source = f"{argument}.{of}" if of else argument
        self.got = got
        if static and _traced(value):
            self.rule, self.hint = f"static, {rule}", STATIC


def _traced(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_traced, value))
    return _is_tracer(value)


def _is_tracer(value: Any) -> bool:
    jax = sys.modules.get("jax")  # where it was not imported, nothing is traced
    return jax is not None and isinstance(value, jax.core.Tracer)


def _words(value: Any) -> str:
    """`value` as it is written: a dtype by its name, and traced numbers by their type and shape."""
    numpy = sys.modules.get("numpy")  # where it was not imported, nothing is a dtype
    if numpy is not None and isinstance(value, numpy.dtype):
        return str(value)
    if _is_tracer(value):
        return f"traced {value.dtype}{list(value.shape)}"
    if type(value) in (tuple, list) and _traced(value):
        inside = ", ".join(map(_words, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)


def shown(value: Any) -> str:
    """The beginning of a value in words, on one line: a user may pass any object where an array should be."""
    try:
        line = " ".join(_words(value).split())
    except Exception:  # a repr that fails; an int of more digits than Python converts
        line = f"<{type(value).__name__}>"
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


@contextlib.contextmanager
def calling(function: str, **context: Any) -> Iterator[None]:
    """Turns an `ArgumentError` raised inside into the exception that the user of `jaxpool.<function>` sees.

    What of the `context` is the value at fault is not said twice.
    """
    try:
        yield
    except ArgumentError as error:
        got = error.got or f"{error.source}={shown(error.value)}"
        known = {f"{name}={shown(value)}": name for name, value in context.items()}
        beside = ", ".join(said for said, name in known.items() if name != error.source)
        message = f"jaxpool.{function}: `{error.argument}` must be {error.rule}; got {got}"
        message += f" ({beside}). " if beside else ". "
        raise error.kind(message + error.hint) from None


def pooling(function: str, x: Any, window_shape: Any) -> contextlib.AbstractContextManager[None]:
    """`calling`, for what a pool does with windows over x."""
    return calling(function, **{"x.shape": x.shape, "window_shape": window_shape})
