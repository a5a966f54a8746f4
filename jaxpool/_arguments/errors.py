"""One voice for every message about an argument.

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
    """Turn an `ArgumentError` raised inside into the exception that the user of `jaxpool.<function>` sees.

    For methods and inner functions; a function under `@public` does this by itself.
    """
    try:
        yield
    except ArgumentError as error:
        raise error.of_call(function, context) from None
