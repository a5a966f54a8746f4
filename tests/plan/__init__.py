"""Tests of the plans that select the variant of each kernel: `jaxpool._plan`."""
