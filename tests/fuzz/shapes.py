"""What shapes and dtypes calls should give, counted without the library: windows one after another."""

import enum
import math
import operator

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import pools


def sizes(value, rank):
    """An int, or None, for each of `rank` axes."""
    flat = np.asarray(value, object).ravel().tolist()
    every = flat * rank if len(flat) == 1 else flat
    return [None if each is None else operator.index(each) for each in every]


def is_infinite(norm):
    """Whether a norm is the maximum; one that is traced is not."""
    return not isinstance(norm, jax.ShapeDtypeStruct) and abs(float(norm)) == math.inf


def count(size, window, stride, low, high, dilation, ceil):
    """How many windows begin where the last tap, or with `ceil` the first, is still in the padded input."""
    span, total = (window - 1) * dilation + 1, size + low + high
    if ceil:
        return len(range(0, min(total - span + stride, size + low), stride))
    return len(range(0, total - span + 1, stride))


def pooled(shape, axes, window, strides=None, padding="VALID", dilation=None, ceil=False):
    """The shape that windows over `axes` give."""
    rank, shape = len(axes), list(shape)
    window, steps = sizes(window, rank), sizes(1 if strides is None else strides, rank)
    apart = sizes(1 if dilation is None else dilation, rank)
    same = isinstance(padding, str) and padding != "VALID"
    pads = np.zeros(1, int) if isinstance(padding, str) else np.asarray(padding, object)
    pairs = pads.tolist() if pads.ndim == 2 else [(p, p) for p in sizes(pads, rank)]
    for axis, w, s, (low, high), d in zip(axes, window, steps, pairs, apart, strict=True):
        if same:  # a window for each stride that begins in the input
            shape[axis] = len(range(0, shape[axis], s))
        else:
            shape[axis] = count(shape[axis], w, s, low, high, d, ceil)
    return tuple(shape)


def inner(ndim, axes, rank):
    """The axes, without any those before the last one."""
    axes = range(ndim - 1 - rank, ndim - 1) if axes is None else sizes(axes, 1)
    return [axis % ndim for axis in axes]


def without(shape, axes, keepdims):
    axes = [axis % len(shape) for axis in axes]
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def replaced(shape, axes, new):
    """The shape with other sizes along `axes`, but where None stands."""
    new = {i: n for i, n in zip(axes, new, strict=True) if n is not None}
    return tuple(new.get(i, n) for i, n in enumerate(shape))


def rank_of(value):
    return np.asarray(value, object).size if np.ndim(value) else None


def expected(name, x, given):
    """Shapes and dtypes of the results of `name` of a main array x; None if nothing is known."""
    room, _, short = name.rpartition(".")
    shape = x.shape
    floating = jnp.issubdtype(x.dtype, jnp.inexact)  # Flax averages complex numbers
    mean = x.dtype if floating else jnp.dtype(np.float32)
    if room == "compat.scipy":
        output = given.get("output")
        return [(shape, x.dtype if output is None else jax.dtypes.canonicalize_dtype(output))]
    if room == "compat.torch":
        return torch(short, x, given)
    if room == "compat.torchvision":
        cells = sizes(given["output_size"], 2)
        boxes = given["boxes"]
        number = sum(map(len, boxes)) if isinstance(boxes, (list, tuple)) else len(boxes)
        own = cells[0] * cells[1] if short.startswith("ps_") else 1
        return [((number, shape[1] // own, *cells), x.dtype)]
    return public(pools()[short], x, given, mean)


def public(pool, x, given, mean):
    """The same of a public function, by the arguments that its signature has."""
    takes, shape, ndim = pool.takes, x.shape, len(x.shape)
    if pool.operands in (("xs",), ("x", "y")):
        others = given.get("xs") or (given["x"], given["y"])
        dtype = jnp.result_type(*[int(y) if isinstance(y, enum.IntEnum) else y for y in others])
        return [(jnp.broadcast_shapes(*map(np.shape, others)), dtype)]
    dtype = mean if pool.averages(given) else x.dtype
    if takes("segment_ids"):
        number = given["num_segments"]
        if number is None and not isinstance(given["segment_ids"], np.ndarray):
            return None
        if number is None:
            number = max(int(np.max(given["segment_ids"], initial=-1)) + 1, 0)
        return [((operator.index(number), *shape[1:]), dtype)]
    if takes("boxes"):
        cells = sizes(given["output_shape"], 2)
        return [((*given["boxes"].shape[:-1], *cells, shape[-1]), dtype)]
    if takes("axis"):
        return [(along(pool, shape, given), dtype)]
    if takes("keepdims") or takes("levels"):
        axes = range(1, ndim - 1) if given["axes"] is None else sizes(given["axes"], 1)
        if takes("keepdims"):
            return [(without(shape, axes, given["keepdims"]), dtype)]
        bins = sum(level ** len(axes) for level in sizes(given["levels"], 1))
        *lead, channels = without(shape, axes, False) or (1,)
        return [((*lead, channels * bins), dtype)]
    if takes("spatial_shape") or takes("output_shape"):
        wanted = given["spatial_shape" if takes("spatial_shape") else "output_shape"]
        axes = inner(ndim, given["axes"], rank_of(wanted) or len(sizes(given["axes"] or 0, 1)))
        y = replaced(shape, axes, sizes(wanted, len(axes)))
    else:
        y = windowed(pool, shape, given)
    return [(y, dtype), (y, np.int32)][: 1 + pool.name.endswith("argmax")]


def along(pool, shape, given):
    """The shape of what goes along one axis, or several."""
    if pool.takes("reverse"):
        return shape
    axis = given["axis"]
    for wanted in ("groups", "k"):
        if pool.takes(wanted):
            return replaced(shape, [axis % len(shape)], [given[wanted]])
    axes = range(len(shape)) if axis is None else np.ravel(np.asarray(axis, int)).tolist()
    return without(shape, axes, given["keepdims"])


def windowed(pool, shape, given):
    """The shape of a pool over windows, or of two after each other."""
    window, padding = given.get("window_shape"), given["padding"]
    if pool.takes("kernel"):
        kernel = np.shape(given["kernel"])
        many = len(shape) - 1 if given["axes"] is None else len(sizes(given["axes"], 1)) + 1
        window = kernel[: len(kernel) - (len(kernel) == many)]
    axes = inner(len(shape), given["axes"], rank_of(window))
    if pool.takes("blur_shape"):
        shape, window = pooled(shape, axes, window, None, padding), given["blur_shape"]
    options = given.get("window_dilation"), given.get("ceil_mode", False)
    return pooled(shape, axes, window, given["strides"], padding, *options)


def torch(short, x, given):
    """The same of the drop-ins for PyTorch: pooled axes last, a stride that is the window."""
    shape = x.shape
    if not short.endswith("d"):
        return None
    rank = int(short[-2])
    axes = range(len(shape) - rank, len(shape))
    both = [None, np.int32][: 1 + bool(given.get("return_indices"))]
    if "fractional" in short or "unpool" in short:
        wanted = given["output_size"]
        if wanted is None:
            return None
        y = replaced(shape, axes, sizes(wanted, rank)) if "fractional" in short else None
        return None if y is None else [(y, dtype or x.dtype) for dtype in both]
    if "adaptive" in short:
        y = replaced(shape, axes, sizes(given["output_size"], rank))
        return [(y, dtype or x.dtype) for dtype in both]
    kernel, stride = given["kernel_size"], given["stride"]
    unset = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    padding = sizes(given.get("padding", 0), rank)
    more = given.get("dilation", 1), given["ceil_mode"]
    y = pooled(shape, axes, kernel, kernel if unset else stride, padding, *more)
    adds = "lp" in short and not is_infinite(given["norm_type"])
    kind = np.float32 if adds and not jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    return [(y, dtype or kind) for dtype in both]
