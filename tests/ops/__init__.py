"""Tests of derivative rules and their residuals: `jaxpool._ops`. Transformations are in `tests/transformations`."""
