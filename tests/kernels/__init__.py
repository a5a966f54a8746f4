"""The forms of one kernel give the same numbers: `jaxpool._kernels`. What an op gives is tested in `api`."""
