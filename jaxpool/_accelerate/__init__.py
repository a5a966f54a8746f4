"""`jaxpool.accelerate`: programs of other libraries, with the windowed reductions of lax computed by jaxpool's ops.

`bind` intercepts reductions and reads their parameters as a `Window`, and `report` describes each reduction. The ops
come from `_ops` and `_shards`: this package defines no op, and does not call the public functions of `_api`.
"""
