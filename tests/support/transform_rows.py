"""Rows of the table of transformations: each op with its twin, an equivalent that jax differentiates by itself.

Twins come from the records. Without ties their derivatives are correct in every mode and of every order.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxpool
from jaxpool.testing import pools
from tests.support import lax_pools

MODES = ("vjp", "jvp")
POOLS = pools()
SHAPE = (2, 4, 3, 2)  # batch, two pooled axes, channels


def numbers(shape=SHAPE):
    """Distinct nonzero multiples of 0.1 plus 0.03, with distinct absolute values."""
    size = int(np.prod(shape))
    return (np.random.default_rng(1).permutation(size) / 10 - size / 20 + 0.03).reshape(shape)


def weights(shape):
    return jnp.asarray(np.cos(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape))


KERNEL = np.random.default_rng(3).permutation(6).reshape(3, 2) / 9
# Rows and columns of three boxes; one box is partly outside the image.
BOXES = np.array([[0.3, 0.2, 3.4, 2.6], [1.1, -0.6, 4.7, 1.9], [1.0, 1.0, 2.0, 2.0]])
# Some rows belong to no segment, and one segment is empty.
IDS = np.array([2, 0, 2, 1, 5, 0, -1, 2, 0, 2, 1, 2])
MASK = np.arange(12).reshape(1, *SHAPE[1:3], 1) % 5 != 1


def kernel_from_x(x):
    """Return a kernel that also depends on x."""
    return KERNEL + 0.1 * jnp.tanh(x.mean((0, -1))[:3, :2])


LARGE_KERNEL = {
    "kernel": lambda x: jnp.pad(kernel_from_x(x), 2, constant_values=-np.inf),
    "padding": ((2, 2), (2, 2)),
}


def flatten_pixels(x):
    """Flatten the pooled axes into a leading axis, followed by batch and channels."""
    moved = jnp.moveaxis(x, 0, 2)
    return moved.reshape(12, *moved.shape[2:])


def unflatten(segments):
    """Return the first result for three segments, with the batch first."""
    return jnp.moveaxis(jax.tree.leaves(segments)[0][:3], 1, 0)


def default_settings(pool):
    """Return the default settings of an op: overlapping windows, or adjacent ones for slow ops."""
    if pool.takes("window_shape", "output_shape"):
        return {}
    if pool.takes("segment_ids"):
        return {"x": flatten_pixels, "segment_ids": IDS, "num_segments": 4}
    if pool.takes("p") or pool.takes("temperature") or pool.takes("rank"):
        return {"window_shape": (2, 1), "strides": (2, 1), "temperature": 2.0}
    if pool.takes("key"):
        return {"window_shape": (2, 2), "strides": (2, 1)}
    settings = {"window_shape": (3, 2), "blur_shape": (3, 2), "output_shape": (3, 2)}
    if pool.takes("blur_shape"):
        settings["strides"] = None
    if pool.takes("boxes"):
        settings |= {"boxes": BOXES, "output_shape": (2, 2)}
    return settings | ({"kernel": kernel_from_x} if pool.takes("kernel") else {"padding": "SAME"})


def as_one_array(answer):
    """Stack a pool and its indices into one array, and convert bool to float."""
    if not isinstance(answer, tuple):
        return answer.astype(float) if answer.dtype == bool else answer
    y, indices = answer
    return jnp.stack([y, indices.astype(y.dtype)], -1)


@dataclasses.dataclass(frozen=True)
class Row:
    """An op `f` of x and its twin."""

    op: str
    f: Callable
    twin: Callable

    def modes(self):
        """Map mode names to the op; an op without the argument `autodiff` has the single mode "both"."""
        if "autodiff" not in inspect.signature(getattr(jaxpool, self.op)).parameters:
            return {"both": self.f}
        return {mode: functools.partial(self.f, autodiff=mode) for mode in MODES}


def row(op, shift=0, **settings):
    """Return the row of an op, applied to x + shift. Settings may be functions of x + shift."""
    pool = POOLS[op]
    settings = default_settings(pool) | settings

    def run(function, x, **mode):
        x = x + shift if shift else x
        given = {name: value(x) if callable(value) else value for name, value in settings.items()}
        y = pool.run(pool.given(x, **given) | mode, function)
        return unflatten(y) if pool.takes("segment_ids") else as_one_array(y)

    f, twin = functools.partial(run, pool.function), functools.partial(run, pool.twin)
    if pool.takes("boxes"):  # vmap over images, because the batch may be symbolic
        return Row(op, jax.vmap(f), jax.vmap(twin))
    return Row(op, f, twin)


def coefficient(x):
    """Return a coefficient of a row with shift 4, which also depends on x."""
    return 2.5 + 0.1 * jnp.tanh(x.mean((-3, -2), keepdims=True) - 4)


@jaxpool.accelerate
def lax_model(x):
    """A model without calls of jaxpool."""
    y = lax_pools.max_pool(x, (3, 2), padding=((1, 1), (0, 1)))
    return y + lax_pools.avg_pool(x, (3, 2), padding=((1, 1), (0, 1)))


def lax_model_twin(x):
    same = {"window_shape": (3, 2), "padding": "SAME"}
    return POOLS["max_pool"].twin(x, **same) + POOLS["sum_pool"].twin(x, **same) / 6


# Settings of an op's row in addition to `default_settings`.
SPECIAL = {
    "min_pool": {"window_shape": (2, 3), "strides": (2, 1), "padding": "VALID", "ties": "last"},
    "avg_pool": {"count_include_pad": False},
    "sum_pool": {"window_shape": (2, 3), "strides": (2, 1), "padding": "VALID"},
    "minimum": {"ties": "last"},
    "fmin": {"ties": "first"},
    "max": {"axis": (1, 2), "where": MASK, "initial": -1.0},
    "min": {"axis": 1, "ties": "first"},
    "cummax": {"axis": 1},
    "cummin": {"axis": 2, "reverse": True, "ties": "last"},
    "rank_pool": {"rank": 1, "ties": "last"},
    "erode": {"ties": "last"},
    "maxout": {"axis": 1},
}
ROWS = {
    name: row(name, shift=4 if "x" in pool.usual else 0, **SPECIAL.get(name, {}))
    for name, pool in POOLS.items()
} | {"accelerate": Row("accelerate", lax_model, lax_model_twin)}
# Other kernels of the same ops.
OVERLAPPING = {"window_shape": (3, 2), "strides": None, "padding": "SAME"}
LARGE = {"window_shape": (13, 11), "padding": "SAME"}  # every window covers the whole image
VARIANTS = {
    **{
        f"{name}, split": row(name, **SPECIAL.get(name, {}) | {"ties": "split"})
        for name, pool in POOLS.items()
        if "split" in pool.ties
    },
    **{
        f"{name}, large": row(name, **LARGE, strides=(1, 1), ties="split")
        for name, pool in POOLS.items()
        if pool.takes("window_shape") and "split" in pool.ties
    },
    **{
        f"{name}, overlapping": row(name, 4 if "x" in pool.usual else 0, **OVERLAPPING)
        for name, pool in POOLS.items()
        if pool.takes("temperature") or pool.takes("p")
    },
    **{
        f"{name}, {argument} of an array": row(name, 4, **OVERLAPPING, **{argument: coefficient})
        for name, pool in POOLS.items()
        for argument in pool.coefficients
    },
    **{
        f"{name}, without a key": row(name, shift=4, key=None, window_shape=(2, 1))
        for name, pool in POOLS.items()
        if None in pool.choices.get("key", ())
    },
    "max_pool, large, first": row("max_pool", **LARGE),
    "max_pool, dilated": row(
        "max_pool",
        window_shape=(2, 2),
        padding=((1, 1), (0, 0)),
        window_dilation=(2, 1),
        axes=(1, 2),
        ties="last",
    ),
    "max_pool, ceil": row("max_pool", window_shape=(2, 2), padding="VALID", ceil_mode=True),
    "max_pool, columns first": row("max_pool", window_shape=3, padding=1, axes=(2, 1)),
    "avg_pool, strided": row("avg_pool", window_shape=(2, 1), strides=(2, 1), padding="VALID"),
    "adaptive_max_pool, even": row("adaptive_max_pool", output_shape=(2, 3), ties="last"),
    "maximum, first": row("maximum", ties="first"),
    "max, last": row("max", **SPECIAL["max"], ties="last"),
    "cummax, last": row("cummax", axis=1, ties="last"),
    "dilate, large": row("dilate", **LARGE_KERNEL),
    "erode, large, split": row("erode", **LARGE_KERNEL, ties="split"),
    "lp_pool, inf": row("lp_pool", p=np.inf, **OVERLAPPING),
}
