"""What norms and generalised means should give: value, and what each element gets of the cotangent."""

import numpy as np

from tests.support.side_by_side import Gathered

GEOMETRIES = {
    "overlapping": ((2, 4, 5, 2), {"window_shape": (3, 2), "padding": "SAME"}),
    "tiled, a tail": ((5, 5, 2), {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
    "dilated, channels first": (
        (2, 2, 9),
        {
            "window_shape": (3,),
            "strides": (2,),
            "padding": ((2, 1),),
            "window_dilation": (2,),
            "axes": (-1,),
        },
    ),
    "long": ((20, 2), {"window_shape": (13,), "padding": "SAME_LOWER"}),
}


@np.errstate(all="ignore")
def norm(x, p, **geometry):
    """y, and the function from dy to dx."""
    at = Gathered(x.shape, **geometry)
    x = at.gather(x.astype(np.float64), 0)
    sizes = np.abs(x)
    largest = sizes.max(-1, keepdims=True)
    if p == np.inf:
        sizes = np.where(at.real, sizes, -1)
        chosen = np.arange(x.shape[-1]) == sizes.argmax(-1)[..., None]
        return largest[..., 0], lambda dy: at.scatter(np.sign(x) * chosen * dy[..., None])
    parts = sizes / np.where(largest == 0, 1, largest)
    root = (parts**p).sum(-1, keepdims=True) ** (1 / p)
    live = (sizes > 0) & (root > 0)
    slopes = np.where(live, np.sign(x), 0) * np.where(live, parts / root, 1) ** (p - 1)
    return (largest * root)[..., 0], lambda dy: at.scatter(slopes * dy[..., None])


@np.errstate(all="ignore")
def mean(x, p, eps=1e-6, **geometry):
    """y, the function from dy to dx, and dy / dp."""
    at = Gathered(x.shape, **geometry)
    x = at.gather(x.astype(np.float64), eps)
    p = np.asarray(p, np.float64)
    p = (np.broadcast_to(p, x.shape[:-1]) if p.ndim else p)[..., None]
    logs = np.where(at.real, np.log(np.maximum(x, eps)), 0)
    height = np.where(at.real, p * logs, -np.inf).max(-1, keepdims=True)
    powers = np.where(at.real, np.exp(p * logs - height), 0)
    total, count = powers.sum(-1, keepdims=True), at.real.sum(-1, keepdims=True)
    log_mean = height + np.log(total / count)
    y = np.exp(log_mean / p)
    above = np.where(x == eps, 0.5, x > eps)
    shares = above * powers / total * y / np.exp(logs)
    slope = y * ((powers * logs).sum(-1, keepdims=True) / total - log_mean / p) / p
    return y[..., 0], lambda dy: at.scatter(shares * dy[..., None]), slope[..., 0]
