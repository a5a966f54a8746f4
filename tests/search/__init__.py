"""Random search for failures over many thousands of cases: `python -m tests.search`."""
