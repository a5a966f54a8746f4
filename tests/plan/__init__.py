"""Which form a kernel takes: `jaxpool._plan`."""
