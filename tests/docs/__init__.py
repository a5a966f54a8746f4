"""What pages show runs as it stands, and what they say is so. Docstrings are tested by `pytest --doctest-modules`."""
