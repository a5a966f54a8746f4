"""What README's test command has no time for, and `.ci/run` runs in a step of its own (`-m ci`)."""

from typing import Any

import pytest

LATER = (pytest.mark.slow, pytest.mark.ci)


def later(*values: Any) -> Any:
    """The values of the arguments of a test, to be run later."""
    return pytest.param(*values, marks=LATER)


def in_turn(values: Any, every: int = 2) -> list[Any]:
    """Values of one argument, of which each `every`th is quick and the others come later."""
    return [each if at % every == 0 else later(each) for at, each in enumerate(values)]


def first(number: int, values: Any) -> list[Any]:
    """Values of one argument, of which the first few are quick and the others come later."""
    return [each if at < number else later(each) for at, each in enumerate(values)]


def by_turns(rows: Any, columns: Any) -> list[Any]:
    """Pairs of two arguments: each row is quick with one column, one after another, and with the others later."""
    columns = list(columns)
    return [
        (row, column) if at % len(columns) == turn else later(row, column)
        for at, row in enumerate(rows)
        for turn, column in enumerate(columns)
    ]
