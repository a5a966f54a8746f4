"""Ops beyond windows of one kind: what is drawn for them, how they are called, and what they should give.

Indices, segment ids and where windows begin are drawn from the number `draw` among the arguments; the
program reads them behind a barrier, so that XLA does not compute with them while it compiles.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import Array, lax

import jaxpool
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels.dtypes import losing
from jaxpool.testing import pools
from tests.search import boxes, chance
from tests.search.reference import Shares, Table, adaptive, chosen, grid, windows

POOLS = pools()


def _taking(*arguments: str, without: str = "") -> tuple[str, ...]:
    """The functions whose signature has these arguments, and not the other."""
    return tuple(n for n, p in POOLS.items() if p.takes(*arguments) and not p.takes(without))


RANKS = tuple(name for name, pool in POOLS.items() if pool.topic == "rank" and pool.ties)
MORPHOLOGY, LARGEST = _taking("kernel"), _taking("k")
SEGMENTS = tuple(  # whose only result is an extreme or a mean
    n for n in _taking("segment_ids") if POOLS[n].topic == "segments" and "argmax" not in n
)
BLUR = tuple(n for n, p in POOLS.items() if p.topic == "blur" and not p.takes("blur_shape"))
OTHERS = (*LARGEST, *BLUR, *_taking("indices"), *_taking("levels"))
BEYOND = (*RANKS, *MORPHOLOGY, *SEGMENTS, *OTHERS, *chance.NAMES, *boxes.NAMES)
TIES = (*RANKS, *MORPHOLOGY, "segment_max", "segment_min", "roi_max_pool")
ONE_MODE = (*SEGMENTS, *OTHERS, *chance.NAMES, *boxes.NAMES)  # functions without `autodiff`


def room(name: str) -> Any:
    """The module that knows the function, None for this one."""
    return next((each for each in (chance, boxes) if name in each.NAMES), None)


def adds(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether the function rounds sums."""
    if room(name):
        return bool(room(name).adds(name, kwargs))
    return POOLS[name].rounds(kwargs)


def patterns(spec: Any) -> tuple[str, ...]:
    """What numbers to draw, if not all that there are: those of which sums are exact, or the draw is known."""
    name, kwargs = spec.function, spec.kwargs
    if name in MORPHOLOGY or (name == "roi_align" and kwargs["kind"] == "max"):
        return ("ties", "special")
    if chance.is_mean(name, kwargs):
        return ("ties", "normal")
    if name in chance.DRAWING:  # a subnormal may weigh nothing
        return ("ties", "normal", "special", "lowest", "extremes")
    return ()


@st.composite
def arguments(
    draw: st.DrawFn, name: str, pooled: st.SearchStrategy[Any], sizes: Any
) -> tuple[tuple[tuple[int, ...], ...], dict[str, Any], int]:
    """Shapes, arguments, and about how many members all outputs have."""
    if name in chance.NAMES:
        return draw(chance.arguments(name, pooled))
    if name in boxes.NAMES:
        return draw(boxes.arguments(name, sizes))
    if name in (*RANKS, *MORPHOLOGY, *BLUR):
        return _windowed(draw, name, *draw(pooled))
    rank = draw(st.integers(1 + (name == "spatial_pyramid_pool"), 3))
    shape = draw(st.tuples(*[sizes((60, 20, 9)[rank - 1])] * rank))
    number = draw(st.integers(0, 99))
    if name in SEGMENTS:
        rows = {"num_segments": draw(st.integers(1, 9)), "indices_are_sorted": draw(st.booleans())}
        return (shape,), {**rows, "draw": number}, math.prod(shape) * rows["num_segments"]
    if name in LARGEST:
        axis = draw(st.integers(0, rank - 1))
        k = draw(st.integers(1, shape[axis]))
        return (shape,), {"axis": axis, "k": k}, math.prod(shape) * k
    if name == "max_unpool":
        axes = tuple(draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))])
        more = draw(st.tuples(*[st.tuples(st.integers(1, 4), st.integers(0, 2))] * len(axes)))
        to = tuple(shape[axis] * n + rest for axis, (n, rest) in zip(axes, more, strict=True))
        kwargs = {"spatial_shape": to, "axes": axes, "draw": number}
        return (shape,), kwargs, 8 * math.prod(to) * math.prod(shape)
    levels = sorted(draw(st.sets(st.integers(1, 5), min_size=1, max_size=3)))
    kind = draw(st.sampled_from(["max", "avg"]))
    kwargs = {"levels": tuple(levels), "kind": kind, "axes": tuple(range(rank - 1))}
    return (shape,), kwargs, 4 * len(levels) * math.prod(shape)


def _windowed(draw: st.DrawFn, name: str, shape: Any, kwargs: dict[str, Any]) -> Any:
    """The same of windows, some of which `make_window` refuses."""
    if name not in RANKS:
        refused = ("ceil_mode", "window_dilation")[: 1 + (name in BLUR)]
        kwargs = {key: value for key, value in kwargs.items() if key not in refused}
    found = make_window(shape, **kwargs)
    members = math.prod(found.pooled(shape)) * found.size
    if name == "rank_pool":
        real = math.prod(min(map(dim.real, range(dim.out))) for dim in found.dims)
        kwargs["rank"] = draw(st.integers(-real, real - 1))
    if name not in MORPHOLOGY:
        return (shape,), kwargs, members
    kernel = kwargs.pop("window_shape")
    kwargs["axes"] = found.axes
    if len(kernel) < len(shape) and draw(st.booleans()):
        kernel = (*kernel, shape[_channels(shape, found.axes)])
    return (shape, kernel), kwargs, 2 * members


def _channels(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """The axis of channels: the last that is not pooled."""
    return max(set(range(len(shape))) - set(axes))


def call(spec: Any, kwargs: dict[str, Any], *xs: Array) -> Array:
    """The function of arrays, and of what is drawn for it."""
    if room(spec.function):
        return room(spec.function).call(spec, kwargs, *xs)
    function = getattr(jaxpool, spec.function)
    if "draw" in kwargs:
        del kwargs["draw"]
        known = indices(spec) if spec.function == "max_unpool" else segments(spec)
        xs = (*xs, lax.optimization_barrier(jnp.asarray(known)))
    first = [kwargs.pop("rank")] if spec.function == "rank_pool" else []
    y: Array = function(*xs, *first, **kwargs)
    return y


def segments(spec: Any) -> np.ndarray:
    """Ids of the rows, some out of range."""
    rng, kwargs = np.random.default_rng(spec.kwargs["draw"]), spec.kwargs
    ids = rng.integers(-1, kwargs["num_segments"] + 1, spec.shapes[0][0]).astype(np.int32)
    return np.sort(ids) if kwargs["indices_are_sorted"] else ids


def indices(spec: Any) -> np.ndarray:
    """Positions: of each element in a window of its own, or anywhere, some out of range."""
    rng, kwargs, shape = np.random.default_rng(spec.kwargs["draw"]), spec.kwargs, spec.shapes[0]
    axes, sizes = kwargs["axes"], kwargs["spatial_shape"]
    if kwargs["draw"] % 2:
        return rng.integers(-1, math.prod(sizes) + 1, shape).astype(np.int32)
    flat = np.zeros(shape, np.int32)
    for axis, size in zip(axes, sizes, strict=True):
        width = size // shape[axis]
        first = np.expand_dims(
            np.arange(shape[axis]) * width, [a for a in range(len(shape)) if a != axis]
        )
        flat = flat * size + first + rng.integers(0, width, shape)
    return flat.astype(np.int32)


def window(spec: Any) -> Window:
    """The windows of morphology."""
    shape, kernel = spec.shapes
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "ties"}
    return make_window(shape, kernel[: len(kwargs["axes"])], **kwargs)


def table(spec: Any) -> Table:
    """Which elements each output sees: of morphology those of the kernel after those of x."""
    name, shape, kwargs = spec.function, spec.shapes[0], spec.kwargs
    if room(name):
        found: Table = room(name).table(spec)
        return found
    if name in RANKS:
        return windows(shape, spec.window)
    if name in MORPHOLOGY:
        at = windows(shape, window(spec))
        entries = np.arange(math.prod(spec.shapes[1])).reshape(
            at.members.shape[1], -1
        )  # taps, channels
        lane = 0
        if len(spec.shapes[1]) > len(kwargs["axes"]):
            lane = np.indices(at.shape)[_channels(shape, kwargs["axes"])].ravel()
        entries = np.broadcast_to(entries.T[lane], at.members.shape)
        entries = np.where(at.real, entries + math.prod(shape), -1)
        return Table(np.concatenate([at.members, entries], -1), at.shape)
    if name in BLUR:
        geometry = {key: value for key, value in kwargs.items() if key != "padding"}
        win = make_window(shape, **geometry, padding=kwargs.get("padding", "SAME"))
        along = []
        for dim in win.dims:
            at = np.arange(dim.out)[:, None] * dim.stride - dim.low + np.arange(dim.window)
            turn = max(1, 2 * dim.size - 2)
            along.append(np.minimum(at % turn, turn - at % turn) if dim.size > 1 else 0 * at)
        return grid(shape, win.axes, along)
    if name in LARGEST:
        axis = kwargs["axis"]
        return grid(shape, (axis,), [np.tile(np.arange(shape[axis]), (kwargs["k"], 1))])
    if name in SEGMENTS:
        ids = segments(spec)
        return _lists([np.flatnonzero(ids == s) for s in range(kwargs["num_segments"])], shape)
    if name == "max_unpool":
        return _unpooled(spec)
    parts = []
    for level in kwargs["levels"]:
        part = adaptive(shape, kwargs["axes"], (level,) * len(kwargs["axes"]))
        parts.append(part)
    most = max(part.members.shape[1] for part in parts)
    members = [
        np.pad(p.members, [(0, 0), (0, most - p.members.shape[1])], constant_values=-1)
        for p in parts
    ]
    whole = np.concatenate(members)
    return Table(whole, (len(whole),))


def _lists(rows: list[np.ndarray], shape: tuple[int, ...]) -> Table:
    """Lists of rows of an array, element by element."""
    most = max(1, *map(len, rows))
    at = np.stack([np.pad(row, (0, most - len(row)), constant_values=-1) for row in rows])
    return grid(shape, (0,), [at])


def _unpooled(spec: Any) -> Table:
    shape, axes = spec.shapes[0], spec.kwargs["axes"]
    sizes = spec.kwargs["spatial_shape"]
    ours, place = np.arange(math.prod(shape)).reshape(shape), indices(spec)
    lanes = [axis for axis in range(len(shape)) if axis not in axes]
    order = (*lanes, *axes)
    ours, place = (
        each.transpose(order).reshape(*[shape[a] for a in lanes], -1) for each in (ours, place)
    )
    rows: list[list[int]] = [[] for _ in range(math.prod(sizes) * (ours.size // ours.shape[-1]))]
    for lane, (own, to) in enumerate(
        zip(ours.reshape(-1, ours.shape[-1]), place.reshape(-1, ours.shape[-1]), strict=True)
    ):
        for element, position in zip(own, to, strict=True):
            if 0 <= position < math.prod(sizes):
                rows[lane * math.prod(sizes) + position].append(element)
    most = max(1, *map(len, rows))
    members = np.array([row + [-1] * (most - len(row)) for row in rows])
    out = tuple(shape[a] for a in lanes) + tuple(sizes)
    members = members.reshape(*out, most).transpose(*np.argsort(order), len(out))
    return Table(members.reshape(-1, most), members.shape[:-1])


def wanted(spec: Any, at: Table, x: np.ndarray) -> Shares:
    """What each function should give of arrays (cases, elements)."""
    name, kwargs = spec.function, spec.kwargs
    if room(name):
        found: Shares = room(name).wanted(spec, at, x)
        return found
    values, real = at.of(x), np.broadcast_to(at.real, (len(x), *at.members.shape))
    if name in MORPHOLOGY:
        k, sign = values.shape[-1] // 2, 1 if name == "dilate" else -1
        sums = values[..., :k] + sign * values[..., k:]
        y, share = chosen(sums, real[..., :k], "max" if sign > 0 else "min", kwargs["ties"])
        return Shares(at, y, np.concatenate([share, sign * share], -1))
    if name in RANKS:
        count = at.real.sum(-1)
        rank = kwargs.get("rank")
        place = count // 2 if rank is None else np.where(rank < 0, count + rank, rank)
        at_rank = np.broadcast_to(place[None, :, None], (len(x), len(place), 1))
        y = np.take_along_axis(values, np.take_along_axis(_order(values, real), at_rank, -1), -1)
        equal = real & ((values == y) | (np.isnan(values) & np.isnan(y)))
        share = chosen(equal.astype(float), real, "max", kwargs["ties"])[1]
        return Shares(at, y[..., 0], share)
    if name in LARGEST:
        axis, k = kwargs["axis"], kwargs["k"]
        order = np.sort(_order(values, real, largest=True)[..., :k], -1)
        slot = np.indices(at.shape)[axis].ravel()[None, :, None]
        which = np.take_along_axis(order, np.broadcast_to(slot, (*order.shape[:2], 1)), -1)
        share = (np.arange(values.shape[-1]) == which).astype(float)
        return Shares(at, np.take_along_axis(values, which, -1)[..., 0], share)
    if name == "max_unpool":
        last = np.maximum(at.real.sum(-1) - 1, 0)
        y = np.take_along_axis(
            values, np.broadcast_to(last[None, :, None], (*values.shape[:2], 1)), -1
        )
        return Shares(at, np.where(at.real.any(-1), y[..., 0], 0), at.real * np.ones(values.shape))
    if not adds(name, kwargs):
        kind = "min" if name == "segment_min" else "max"
        y, share = chosen(values, real, kind, kwargs.get("ties", "first"))
        empty = float(losing(jnp.dtype(spec.dtype), kind))
        return Shares(at, np.where(at.real.any(-1), y, empty), share)
    weight = at.real / np.maximum(at.real.sum(-1, keepdims=True), 1)
    if name in BLUR:
        rows = [
            [math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)]
            for n in kwargs["window_shape"]
        ]
        weight = np.ones(1)
        for row in rows:
            weight = np.multiply.outer(weight, row).ravel()
    with np.errstate(invalid="ignore"):
        terms = np.where(real, values * weight, 0)
    return Shares(at, terms.sum(-1), np.broadcast_to(weight, values.shape), np.abs(terms).sum(-1))


def _order(values: np.ndarray, real: np.ndarray, *, largest: bool = False) -> np.ndarray:
    """From the least element to the largest, or from the `largest`; NaN is largest, what is not real comes last."""
    nan = np.isnan(values)
    number = np.where(nan, 0, values)
    keys = (-number, ~nan, ~real) if largest else (number, nan, ~real)
    return np.lexsort(keys)
