"""Checks of arguments that are bools, or one of a few strings."""

from __future__ import annotations

from typing import Any

from jaxpool._arguments.errors import ArgumentError


def check_bool(argument: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(argument, "True or False", value, "Pass a bool.", TypeError)


def choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        rule = " or ".join([", ".join(map(repr, choices[:-1])), repr(choices[-1])])
        kind = ValueError if isinstance(value, str) else TypeError
        hint = case_matters(value, choices) or f"Leave it out for {choices[0]!r}."
        raise ArgumentError(argument, rule, value, hint, kind)


def case_matters(value: Any, choices: tuple[str, ...]) -> str:
    """A hint if `value` differs from one of `choices` only in case; empty otherwise."""
    close = [word for word in choices if isinstance(value, str) and word.lower() == value.lower()]
    return f"Case matters: pass {close[0]!r}." if close else ""
