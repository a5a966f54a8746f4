"""Tests of `jaxpool._geometry`: windows as numbers, without arrays."""
