"""Tests: one folder per package of `jaxpool`, folders for topics that span several packages, and helpers in `support`."""
