"""Tests of `python -m jaxpool`."""
