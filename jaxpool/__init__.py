"""Pooling and elementwise max for JAX, with derivatives of their own."""

from jaxpool._accelerate import accelerate
from jaxpool._argmax import max_pool_with_argmax, max_unpool
from jaxpool._cumulative import cummax, cummin
from jaxpool._elementwise import fmax, fmin, maximum, minimum
from jaxpool._max import max_pool, min_pool
from jaxpool._power import gem_pool, lp_pool
from jaxpool._random import fractional_max_pool, stochastic_pool
from jaxpool._reduce import max, maxout, min
from jaxpool._soft import logsumexp_pool, softmax_pool
from jaxpool._sum import avg_pool, sum_pool

__version__ = "0.1.0"

__all__ = [
    "accelerate",
    "avg_pool",
    "cummax",
    "cummin",
    "fmax",
    "fmin",
    "fractional_max_pool",
    "gem_pool",
    "logsumexp_pool",
    "lp_pool",
    "max",
    "max_pool",
    "max_pool_with_argmax",
    "max_unpool",
    "maximum",
    "maxout",
    "min",
    "min_pool",
    "minimum",
    "softmax_pool",
    "stochastic_pool",
    "sum_pool",
]
