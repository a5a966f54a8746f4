"""Windows as numbers: `jaxpool._geometry`, without arrays."""
