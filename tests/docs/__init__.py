"""The documentation: its code runs, and its statements hold. `pytest --doctest-modules` runs the docstrings."""
