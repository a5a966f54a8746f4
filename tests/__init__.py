"""Tests: one folder per package of `jaxpool`, folders for topics across packages, and helpers in `support`."""
