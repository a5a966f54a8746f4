"""The public functions, one module per topic, with their signatures, docstrings and argument checks.

Each function checks its arguments, builds an op and applies it. `_ops` defines values and derivatives of ops;
`_arguments` and `_geometry` have the checks that many functions share.
"""
