"""The public names, imported from their modules. `jaxpool` imports this module when a public name is first used."""

from jaxpool._accelerate.accelerate import accelerate, accelerated
from jaxpool._api.adaptive import (
    adaptive_avg_pool,
    adaptive_max_pool,
    adaptive_max_pool_with_argmax,
    global_avg_pool,
    global_max_pool,
    spatial_pyramid_pool,
)
from jaxpool._api.argmax import max_pool_with_argmax, max_unpool
from jaxpool._api.avg_pool import avg_pool, sum_pool
from jaxpool._api.blur import blur_pool, max_blur_pool
from jaxpool._api.cumulative import cummax, cummax_with_argmax, cummin, cummin_with_argmax
from jaxpool._api.elementwise import fmax, fmin, maximum, minimum
from jaxpool._api.max_pool import max_pool, min_pool
from jaxpool._api.memory import keep_memory
from jaxpool._api.morphology import dilate, erode
from jaxpool._api.peaks import local_maxima, local_minima
from jaxpool._api.plan_of import plan_of
from jaxpool._api.random import fractional_avg_pool, fractional_max_pool, stochastic_pool
from jaxpool._api.rank import k_max_pool, median_pool, rank_pool
from jaxpool._api.reduce import max, maxout, min
from jaxpool._api.regions import multilevel_roi_align, roi_align, roi_max_pool
from jaxpool._api.segments import (
    segment_logsumexp,
    segment_max,
    segment_max_with_argmax,
    segment_mean,
    segment_min,
    segment_softmax,
    segment_sum,
)
from jaxpool._api.sharded import sharded
from jaxpool._api.soft import gem_pool, logsumexp_pool, lp_pool, softmax_pool

__all__ = [
    "accelerate",
    "accelerated",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "avg_pool",
    "blur_pool",
    "cummax",
    "cummax_with_argmax",
    "cummin",
    "cummin_with_argmax",
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
    "local_maxima",
    "local_minima",
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
    "multilevel_roi_align",
    "plan_of",
    "rank_pool",
    "roi_align",
    "roi_max_pool",
    "segment_logsumexp",
    "segment_max",
    "segment_max_with_argmax",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
    "sharded",
    "softmax_pool",
    "spatial_pyramid_pool",
    "stochastic_pool",
    "sum_pool",
]
