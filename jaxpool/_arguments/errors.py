"""One voice for every message about an argument.

Inner code raises `ArgumentError` with the reason alone; the public function that was called adds
its name and the shapes it was called with, once, through `calling`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

LONGEST = 200  # characters of a value that a message shows


class ArgumentError(Exception):
    """Why an argument cannot be taken: `argument` must be `rule`, got `value`; `hint` says what to do.

    `of` names the attribute of the argument whose value it is, if it is not the argument's own.
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
    ) -> None:
        super().__init__(argument, rule, value, hint, kind, of)
        self.argument, self.rule, self.value = argument, rule, value
        self.hint, self.kind = hint, kind
        self.source = f"{argument}.{of}" if of else argument


def _shortened(text: str) -> str:
    """The beginning of a text, on one line: a user may pass any object where an array should be."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


@contextlib.contextmanager
def calling(function: str, **context: Any) -> Iterator[None]:
    """Turns an `ArgumentError` raised inside into the exception that the user of `jaxpool.<function>` sees."""
    try:
        yield
    except ArgumentError as error:
        shown = ", ".join(f"{name}={value}" for name, value in context.items())
        got = _shortened(repr(error.value))
        message = (
            f"jaxpool.{function}: `{error.argument}` must be {error.rule}; got {error.source}={got}"
        )
        message += f" ({shown}). " if shown else ". "
        raise error.kind(message + error.hint) from None
