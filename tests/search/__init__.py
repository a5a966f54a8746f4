"""Drawn cases by the hundred thousand: `python -m tests.search`."""
