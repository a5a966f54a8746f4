"""`jaxpool.accelerate`: programs that others wrote, with the windowed reductions of lax handed to our ops.

Here live the context in which reductions are handed over (`bind`), the reading of lax's parameters as a
window (`windows`), and the report of what was replaced. The ops are those of `_ops`; this package
has none of its own, and it never goes through the public functions of `_api`.
"""
