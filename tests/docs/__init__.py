"""README's programs run as they stand. Docstrings are tested by `pytest --doctest-modules`."""
