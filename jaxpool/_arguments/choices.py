"""Checks of arguments that are bools, or one of a few strings."""

from __future__ import annotations

from typing import Any

from jaxpool._arguments.errors import ArgumentError


def check_bool(arg_name: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(arg_name, "True or False", value, "Pass a bool.", TypeError)


def check_choice(arg_name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        rule = " or ".join([", ".join(map(repr, choices[:-1])), repr(choices[-1])])
        error_type = ValueError if isinstance(value, str) else TypeError
        hint = wrong_case_hint(value, choices) or f"Leave it out for {choices[0]!r}."
        raise ArgumentError(arg_name, rule, value, hint, error_type)


def wrong_case_hint(value: Any, choices: tuple[str, ...]) -> str:
    """A hint if `value` differs from one of `choices` only in upper or lower case; "" otherwise."""
    matches = [word for word in choices if isinstance(value, str) and word.lower() == value.lower()]
    return f"Case matters: pass {matches[0]!r}." if matches else ""
