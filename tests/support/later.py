"""Marks for parameters that README's test command skips and `.ci/run` tests in a separate step (`-m ci`)."""

from typing import Any

import pytest

LATER = (pytest.mark.slow, pytest.mark.ci)


def later(*values: Any) -> Any:
    """Mark one set of a test's arguments to run in the separate step."""
    return pytest.param(*values, marks=LATER)


def every_nth(values: Any, every: int = 2) -> list[Any]:
    """Parametrize one argument. Every `every`-th value runs always, the others later."""
    return [each if at % every == 0 else later(each) for at, each in enumerate(values)]


def first_values(number: int, values: Any) -> list[Any]:
    """Parametrize one argument. The first `number` values run always, the others later."""
    return [each if at < number else later(each) for at, each in enumerate(values)]
