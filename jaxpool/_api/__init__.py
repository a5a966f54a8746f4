"""The public functions, one module per topic, with their signatures, docstrings and argument checks.

Each function checks its arguments, builds an op (a dataclass that defines a value and its derivative) and applies the
op. `_ops` defines the ops; `_arguments` and `_geometry` have the checks that many functions share.
"""
