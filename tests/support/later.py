"""What README's test command has no time for, and `.ci/run` runs in a step of its own (`-m ci`)."""

from typing import Any

import pytest

LATER = (pytest.mark.slow, pytest.mark.ci)


def in_turn(values: Any, every: int = 2) -> list[Any]:
    """Parameters of a test, of which each `every`th is quick and the others come later."""
    return [
        value if number % every == 0 else pytest.param(value, marks=LATER)
        for number, value in enumerate(values)
    ]


def first(number: int, values: Any) -> list[Any]:
    """Parameters of a test, of which the first few are quick and the others come later."""
    return [
        value if at < number else pytest.param(value, marks=LATER)
        for at, value in enumerate(values)
    ]
