"""Pools of arrays that are sharded along pooled axes.

They take what the plain functions take, and `mesh` and `spec`, which are read from the array where it says them.
Each device pools its own shard with the kernels that one device runs, and gets from its neighbours the rows that its
windows reach, no more: the halo. Arrays that are sharded along batch and channel axes alone need no halo, and the
plain functions do.

Here live the halo, where an array lies on a mesh, and the functions with their docstrings. `_ops` of this package
holds what a pool must be told about rows beyond the array; all else that is computed is in the package's rooms.
"""

from jaxpool.sharded._argmax import max_pool_with_argmax
from jaxpool.sharded._avg_pool import avg_pool, sum_pool
from jaxpool.sharded._global import global_avg_pool, global_max_pool
from jaxpool.sharded._max_pool import max_pool, min_pool
from jaxpool.sharded._power import lp_pool

__all__ = [
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_pool_with_argmax",
    "min_pool",
    "sum_pool",
]
