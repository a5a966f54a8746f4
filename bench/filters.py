"""Matching of `--filter`, for the cases of every table."""

import re
from collections.abc import Sequence


def matches(text: str, filters: Sequence[str]) -> bool:
    """Whether every filter is a substring of the text, or matches it as a regular expression."""
    return all(wanted in text or _searched(wanted, text) for wanted in filters)


def _searched(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # a substring with an open bracket, such as the start of a name
        return False
