"""The drop-ins of `jaxpool.compat`, each compared with its original."""
