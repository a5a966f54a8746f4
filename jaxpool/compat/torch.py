"""Pools of `torch.nn.functional` and `torch.nn`, and maxima, minima and medians of `torch`, without PyTorch.

The functions take jax arrays, channels first, with or without a batch axis. Arguments, defaults, ties and NaN follow
PyTorch. Indices are int32, and integers keep the width they have in jax.
"""

from jaxpool.compat._torch_adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from jaxpool.compat._torch_avg_pool import avg_pool1d, avg_pool2d, avg_pool3d
from jaxpool.compat._torch_cumulative import cummax, cummin, logcumsumexp
from jaxpool.compat._torch_elementwise import fmax, fmin, maximum, minimum
from jaxpool.compat._torch_fractional import fractional_max_pool2d, fractional_max_pool3d
from jaxpool.compat._torch_layers import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from jaxpool.compat._torch_lp import lp_pool1d, lp_pool2d, lp_pool3d
from jaxpool.compat._torch_max_pool import max_pool1d, max_pool2d, max_pool3d
from jaxpool.compat._torch_median import median, nanmedian
from jaxpool.compat._torch_reduce import amax, amin, aminmax, max, min
from jaxpool.compat._torch_unpool import max_unpool1d, max_unpool2d, max_unpool3d

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "amax",
    "amin",
    "aminmax",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "cummax",
    "cummin",
    "fmax",
    "fmin",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "logcumsumexp",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "maximum",
    "median",
    "min",
    "minimum",
    "nanmedian",
]
