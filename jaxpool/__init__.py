"""Pooling and elementwise max for JAX, with derivatives of their own.

This module holds the public names and nothing else. Behind it are rooms, each of which imports only
from those before it: `_arguments` (what a user passed), `_geometry` (windows), `_plan` (which form of a
kernel), `_kernels` (arrays in, arrays out), `_ops` (kernels with their derivatives), `_api` (the public
functions); then `_accelerate`, `compat`, `testing`, `sharded` and `_cli`, which none of those need.
"""

from jaxpool._accelerate.accelerate import accelerate
from jaxpool._api.adaptive import (
    adaptive_avg_pool,
    adaptive_max_pool,
    adaptive_max_pool_with_argmax,
)
from jaxpool._api.argmax import max_pool_with_argmax, max_unpool
from jaxpool._api.avg_pool import avg_pool, sum_pool
from jaxpool._api.blur import blur_pool, max_blur_pool
from jaxpool._api.cumulative import cummax, cummin
from jaxpool._api.elementwise import fmax, fmin, maximum, minimum
from jaxpool._api.max_pool import max_pool, min_pool
from jaxpool._api.memory import keep_memory
from jaxpool._api.morphology import dilate, erode
from jaxpool._api.power import gem_pool, lp_pool
from jaxpool._api.random import fractional_avg_pool, fractional_max_pool, stochastic_pool
from jaxpool._api.rank import k_max_pool, median_pool, rank_pool
from jaxpool._api.reduce import max, maxout, min
from jaxpool._api.soft import logsumexp_pool, softmax_pool
from jaxpool._api.whole import global_avg_pool, global_max_pool, spatial_pyramid_pool

__version__ = "0.1.0"

__all__ = [
    "accelerate",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "avg_pool",
    "blur_pool",
    "cummax",
    "cummin",
    "dilate",
    "erode",
    "fmax",
    "fmin",
    "fractional_avg_pool",
    "fractional_max_pool",
    "gem_pool",
    "global_avg_pool",
    "global_max_pool",
    "k_max_pool",
    "keep_memory",
    "logsumexp_pool",
    "lp_pool",
    "max",
    "max_blur_pool",
    "max_pool",
    "max_pool_with_argmax",
    "max_unpool",
    "maximum",
    "maxout",
    "median_pool",
    "min",
    "min_pool",
    "minimum",
    "rank_pool",
    "softmax_pool",
    "spatial_pyramid_pool",
    "stochastic_pool",
    "sum_pool",
]
