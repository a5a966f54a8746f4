"""`ArgumentError` and the contexts that turn it into the message of a public function.

Inner code raises `ArgumentError` with the reason alone. `@public` adds the name of the function that was
called and the shapes it was called with.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 200  # characters of a value that a message shows
STATIC = (
    "It is traced, as an argument of a function under jax.jit is: name that argument in "
    "static_argnums or static_argnames, or close over a Python value."
)


class ArgumentError(Exception):
    """An invalid argument: `argument` must be `rule`, but got `value`. `hint` tells the user how to correct it.

    `of` names an attribute if `value` is an attribute of the argument, such as its dtype. `got` replaces the
    description of the value. Pass `static=False` for array arguments, which may be traced. For all others, a traced
    value is the error.
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

    def of_call(self, function: str, context: Mapping[str, Any]) -> Exception:
        """The exception that the user of `jaxpool.<function>` sees; it shows no value of the context twice."""
        got = self.got or f"{self.source}={shown(self.value)}"
        context = {name: shown(value) for name, value in context.items() if name != self.source}
        others = [each for each in map("=".join, context.items()) if each not in got]
        message = f"jaxpool.{function}: `{self.argument}` must be {self.rule}; got {got}"
        message += f" ({', '.join(others)}). " if others else ". "
        return self.kind(message + self.hint)


def _traced(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_traced, value))
    return _is_tracer(value)


def _is_tracer(value: Any) -> bool:
    jax = sys.modules.get("jax")  # if it is not imported, nothing is traced
    return jax is not None and isinstance(value, jax.core.Tracer)


def _words(value: Any) -> str:
    """The repr of `value`, with the name of a dtype and the type and shape of traced numbers."""
    numpy = sys.modules.get("numpy")  # if it is not imported, nothing is a dtype
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
    """The beginning of the repr of a value, on one line. The value may be any object."""
    try:
        line = " ".join(_words(value).split())
    except Exception:  # a repr that fails; an int of more digits than Python converts
        line = f"<{type(value).__name__}>"
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


@contextlib.contextmanager
def calling(function: str, **context: Any) -> Iterator[None]:
    """Convert an `ArgumentError` raised inside into the exception that the user of `jaxpool.<function>` sees.

    For methods and inner functions: `@public` does this for a public function.
    """
    try:
        yield
    except ArgumentError as error:
        raise error.of_call(function, context) from None
