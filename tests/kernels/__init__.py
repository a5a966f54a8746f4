"""All variants of a kernel in `jaxpool._kernels` give the same numbers. `tests/api` tests the results of ops."""
