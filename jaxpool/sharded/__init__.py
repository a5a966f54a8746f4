"""Pools of arrays that are sharded along pooled axes.

They take what the plain functions take, and `mesh` and `spec`, which are read from the array where it says them.
Each device pools its own shard with the kernels that one device runs, and gets from its neighbours the rows that its
windows reach, no more: the halo. The plain functions do the same where the type of an array says that it is sharded;
arrays that are sharded along batch and channel axes alone need no halo, and the plain functions do in any case.

The package `jaxpool._shards` computes them.
"""

from jaxpool.sharded._adaptive import (
    adaptive_avg_pool,
    adaptive_max_pool,
    adaptive_max_pool_with_argmax,
)
from jaxpool.sharded._argmax import max_pool_with_argmax
from jaxpool.sharded._avg_pool import avg_pool, sum_pool
from jaxpool.sharded._global import global_avg_pool, global_max_pool
from jaxpool.sharded._max_pool import max_pool, min_pool
from jaxpool.sharded._others import (
    blur_pool,
    dilate,
    erode,
    max_blur_pool,
    median_pool,
    rank_pool,
)
from jaxpool.sharded._power import lp_pool
from jaxpool.sharded._unpool import max_unpool

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "avg_pool",
    "blur_pool",
    "dilate",
    "erode",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_blur_pool",
    "max_pool",
    "max_pool_with_argmax",
    "max_unpool",
    "median_pool",
    "min_pool",
    "rank_pool",
    "sum_pool",
]
