"""The operations: each op is a frozen dataclass that defines value, residual, linear map and transpose.

`op` holds the base class and the two primitives with their AD rules, and `apply` binds an op to arrays.
Every other module holds the ops of one topic and the functions that choose between them. Ops combine kernels from
`_kernels`. A tap is the index of an element within its window. Arguments are checked in `_api`, which no op imports.
"""
