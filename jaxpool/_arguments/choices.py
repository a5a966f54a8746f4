"""Arguments that are one of a few words."""

from __future__ import annotations

from typing import Any

from jaxpool._arguments.errors import ArgumentError


def choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raises unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        rule = " or ".join([", ".join(map(repr, choices[:-1])), repr(choices[-1])])
        kind = ValueError if isinstance(value, str) else TypeError
        raise ArgumentError(argument, rule, value, f"Leave it out for {choices[0]!r}.", kind)
