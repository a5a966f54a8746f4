"""The drop-ins of `jaxpool.compat`, each beside its original."""
