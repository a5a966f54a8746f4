"""What `--filter` chooses, among the cases of every table."""

import re
from collections.abc import Sequence


def matches(text: str, filters: Sequence[str]) -> bool:
    """Whether a name holds every filter as it stands, or matches it as a regular expression."""
    return all(wanted in text or _searched(wanted, text) for wanted in filters)


def _searched(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # the beginning of a name, say, in which a bracket stands open
        return False
