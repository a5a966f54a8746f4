"""Hypothesis strategies: calls of any public function, and cases of windowed pools.

An outline of a call has the shapes of the pooled arrays, the other arguments, and the number of members. Members are
the elements that the outputs depend on, counted for each output. The time of the oracle is proportional to their
number. `calls` fills an outline with numbers. The search of the repository's tests compiles an outline once and fills
it many times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st

from jaxpool.testing._answer import is_floating
from jaxpool.testing._array_arguments import with_array_arguments
from jaxpool.testing._case import Call, Geometry, PoolCase, PoolKind
from jaxpool.testing._record import TUPLE_PARAMETERS, Pool
from jaxpool.testing._values import ValueKind, draw_values
from jaxpool.testing._windows import WINDOW_ARGUMENTS, NoWindowError, sliding_windows
from jaxpool.testing.oracle._parts import Ties

Shape = tuple[int, ...]
Layout = Literal["channels_last", "channels_first", "any"]
Outline = tuple[tuple[Shape, ...], dict[str, Any], int]
Sizes = Callable[[int], st.SearchStrategy[int]]  # from the largest size to a strategy of sizes
MAX_MEMBERS = 20_000  # of a call

# Cases of windowed pools


@st.composite
def geometries(
    draw: st.DrawFn,
    *,
    ranks: Sequence[int] = (1, 2, 3),
    layouts: Sequence[Layout] = ("channels_last", "channels_first", "any"),
    dilation: bool = True,
    ceil_mode: bool = True,
    max_size: int = 8,
) -> Geometry:
    """Valid geometries: no empty window, no empty output, pooled axes of at most `max_size` elements."""
    rank = draw(st.sampled_from(ranks))
    sizes = draw(st.tuples(*[st.integers(1, max(2, max_size - 2 * (rank - 1)))] * rank))
    window_shape = draw(st.tuples(*[st.integers(1, 4 if rank < 3 else 3)] * rank))
    strides = draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilations = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank)) if dilation else None
    pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME_LOWER"]) | st.tuples(*[pair] * rank))
    rounds_up = draw(st.booleans()) if ceil_mode else False
    batch = draw(st.lists(st.integers(1, 2), max_size=2))
    layout = draw(st.sampled_from(layouts))
    shape, explicit_axes = _draw_layout(draw, layout, sizes, batch, draw(st.integers(1, 3)))
    axes = None if layout == "channels_last" else explicit_axes
    fields = (window_shape, strides, padding, dilations, rounds_up, axes)
    try:
        sliding_windows(
            shape, *fields[:3], window_dilation=dilations, ceil_mode=rounds_up, axes=axes
        )
    except NoWindowError:
        reject()
    return Geometry(shape, *fields)


def _draw_layout(
    draw: st.DrawFn, layout: Layout, sizes: Sequence[int], batch: Sequence[int], channels: int
) -> tuple[Shape, Shape]:
    """Draw the shape of an array with pooled axes of these sizes, and the pooled axes."""
    rank = len(sizes)
    if layout == "channels_last":
        return (*batch, *sizes, channels), tuple(range(len(batch), len(batch) + rank))
    if layout == "channels_first":
        return (*batch, channels, *sizes), tuple(range(-rank, 0))
    others = [*batch, channels] if draw(st.booleans()) else batch
    order = draw(st.permutations(range(rank + len(others))))
    size_by_axis = dict(zip(order, [*sizes, *others], strict=True))
    return tuple(size for _, size in sorted(size_by_axis.items())), tuple(order[:rank])


@st.composite
def pool_cases(
    draw: st.DrawFn,
    *,
    kinds: Sequence[PoolKind] = ("max", "min", "avg", "sum"),
    geometry: st.SearchStrategy[Geometry] | None = None,
    dtypes: Sequence[Any] = (np.float32,),
    values: Sequence[ValueKind] = ("ties", "normal", "special", "lowest"),
    ties: Sequence[Ties] = ("first", "last", "split"),
) -> PoolCase:
    """Cases of these kinds, dtypes and values. `geometry` defaults to `geometries()`.

    To test a pool that lacks an argument, exclude the argument from the draw: `ties=("first",)`, or
    `geometry=geometries(dilation=False, ceil_mode=False, layouts=("channels_last",))`.

    Values: "ties" are a few small integers, "normal" a normal distribution, "special" mixes NaN, both infinities and
    both zeros with numbers, "lowest" is mostly the lowest value of the dtype (-inf, or the highest for a min pool).

    Example:
        >>> from hypothesis import given
        >>> import jaxpool
        >>> from jaxpool.testing import assert_pool_matches, pool_cases
        >>> @given(pool_cases(kinds=("max",), values=("ties",)))
        ... def test_max_pool(case):
        ...     assert_pool_matches(jaxpool.max_pool, case)
    """
    kind = draw(st.sampled_from(kinds))
    drawn_geometry = draw(geometries() if geometry is None else geometry)
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    value = draw(st.sampled_from(values))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw_values(rng, drawn_geometry.shape, dtype, value, greatest=kind == "min")
    fields = dataclasses.asdict(drawn_geometry)
    del fields["shape"]
    if kind in ("max", "min", "median", "rank"):
        fields["ties"] = draw(st.sampled_from(ties))
    elif kind == "avg":
        fields["count_include_pad"] = draw(st.booleans())
        fields["divisor"] = draw(st.sampled_from([None, None, 3, -2.5]))
    case = PoolCase(kind, x, None, **fields)
    if kind == "rank":
        min_elements = case.window().min_elements_per_window
        case = dataclasses.replace(case, rank=draw(st.integers(-min_elements, min_elements - 1)))
    if not is_floating(dtype):
        return case
    dy = draw_values(
        rng, case.window().output_shape_of(x.shape), dtype, "ties" if value == "ties" else "normal"
    )
    return dataclasses.replace(case, dy=dy)


# Calls of any function


@st.composite
def calls(
    draw: st.DrawFn,
    pool: Pool,
    *,
    dtypes: Sequence[Any] = (np.float32,),
    values: Sequence[ValueKind] | None = None,
) -> Call:
    """Valid calls of a public function with a cotangent, for some dtypes and kinds of values.

    Args:
        draw: Passed by hypothesis.
        pool: The record of the function, from `pools()`.
        dtypes: Dtypes of the arrays.
        values: Kinds of values (see `pool_cases`); None is every kind in `pool.covers`.

    Example:
        >>> from hypothesis import given
        >>> from jaxpool.testing import assert_pool_matches, calls, pools
        >>> @given(calls(pools()["cummax"]))
        ... def test_cummax(call):
        ...     assert_pool_matches(call.pool.function, call)
    """
    kinds = [kind for kind in (values or pool.covers) if kind in pool.covers]
    kind: Any = draw(st.sampled_from(kinds))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes, arguments, members = draw_outline(draw, pool, lambda most: st.integers(1, min(most, 4)))
    assume(members <= MAX_MEMBERS)
    if pool.takes("boxes"):
        arguments["seed"] |= 1  # weights of points are exact
    if pool.takes("indices"):
        arguments["seed"] &= ~1  # indices are in range
    arrays = []
    for shape in shapes:
        x = draw_values(rng, shape, dtype, kind)
        arrays.append(pool.usual["x"](x) if "x" in pool.usual else x)
    if pool.takes("kernel"):  # an infinite kernel over infinite padding is NaN
        arrays[1] = draw_values(rng, shapes[1], dtype, "ties")
    others = with_array_arguments(pool, shapes[0], arguments)
    if "batch_indices" in others:
        others["batch_indices"] = np.clip(others["batch_indices"], 0, shapes[0][0] - 1)
    given = arguments_by_name(pool, arrays) | others
    call = Call(pool, {name: given[name] for name in pool.parameters if name in given})
    if pool.marks or not all(is_floating(np.asarray(x).dtype) for x in call.operands()):
        return call
    y = call.answer().y
    dy = draw_values(rng, y.shape, y.dtype, "ties" if kind == "ties" else "normal")
    return Call(pool, call.given, dy)


def arguments_by_name(pool: Pool, arrays: Sequence[Any]) -> dict[str, Any]:
    """The pooled arrays of a call by name."""
    if pool.operands[0] in TUPLE_PARAMETERS:
        return {pool.operands[0]: tuple(arrays)}
    return dict(zip(pool.operands, arrays, strict=True))


def draw_outline(draw: st.DrawFn, pool: Pool, sizes: Sizes) -> Outline:
    """Draw an outline of one call."""
    if pool.operands in (("xs",), ("x", "y")):
        draw_of_kind = _draw_elementwise
    elif pool.takes("boxes"):
        draw_of_kind = _draw_box_call
    elif pool.takes("window_shape") or pool.takes("kernel"):
        draw_of_kind = _draw_windowed
    else:
        draw_of_kind = _draw_axis_call
    try:
        shapes, arguments, members = draw_of_kind(draw, pool, sizes)
    except NoWindowError:
        reject()
    _draw_other_arguments(draw, pool, arguments)
    return shapes, arguments, members


def _draw_other_arguments(draw: st.DrawFn, pool: Pool, arguments: dict[str, Any]) -> None:
    """Add arguments that do not change shapes: ties, masks, and the choices of the record."""
    drawn_before = ("axis", "k", "rank", "key", "initial", "samples", *arguments)
    for name, values in {"ties": pool.ties, **pool.choices}.items():
        known = [value for value in values if not isinstance(value, np.ndarray)]
        if name in drawn_before or not known:
            continue
        if pool.parameters[name].default is not pool.parameters[name].empty and name != "ties":
            known = [None, *known]
        value = draw(st.sampled_from(known))
        if value is not None:
            arguments[name] = value
    for name in ("where", "reset"):
        if pool.takes(name) and draw(st.booleans()):
            arguments[name] = True
            arguments.setdefault("seed", draw(_SEEDS))
            if name == "where" and pool.takes("initial"):
                arguments["initial"] = 1


_SEEDS = st.integers(0, 99)


def _draw_elementwise(draw: st.DrawFn, pool: Pool, sizes: Sizes) -> Outline:
    count = len(pool.operands) if pool.operands != ("xs",) else draw(st.integers(2, 9))
    full = draw(st.lists(st.integers(1, 5), max_size=3))
    shapes = [tuple(full)]
    for _ in range(count - 1):  # drop the first `lead` axes, and broadcast along some others
        lead = draw(st.integers(0, 3))
        shapes.append(tuple(draw(st.sampled_from([n, n, 1])) for n in full[lead:]))
    return tuple(shapes), {}, math.prod(full) * count


def _draw_geometry(draw: st.DrawFn, sizes: Sizes) -> tuple[Shape, dict[str, Any]]:
    """Draw the shape and the geometry of a windowed pool."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 2, 3]))
    dilation = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank))
    window = draw(st.tuples(*[sizes((65, 17, 5)[rank - 1])] * rank))
    strides = draw(st.none() | st.tuples(*[st.integers(1, 4) | st.just(8)] * rank))
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation or (1,) * rank, strict=True)]
    extra = draw(st.tuples(*[st.integers(0, 3) | sizes((90, 24, 6)[rank - 1])] * rank))
    pairs = st.tuples(*[st.tuples(*[st.integers(0, 3)] * 2)] * rank)
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME", "SAME_LOWER"]) | pairs)
    short = 0 if padding == "VALID" else draw(st.integers(0, 3))
    lengths = [max(1, span + more - short) for span, more in zip(spans, extra, strict=True)]
    geometry: dict[str, Any] = {"window_shape": window, "strides": strides, "padding": padding}
    geometry |= {"window_dilation": dilation, "ceil_mode": draw(st.booleans())}
    channels, batch = draw(sizes(33)), draw(st.lists(st.integers(1, 3), max_size=2))
    layout: Any = draw(st.sampled_from([*["channels_last"] * 3, "channels_first", "any"]))
    channels = min(channels, 3) if layout == "channels_first" else channels
    shape, axes = _draw_layout(draw, layout, lengths, batch, channels)
    geometry["axes"] = tuple(axis % len(shape) for axis in axes)
    return shape, {name: value for name, value in geometry.items() if value is not None}


def _draw_windowed(draw: st.DrawFn, pool: Pool, sizes: Sizes) -> Outline:
    """Draw a call of a windowed pool. Some arguments raise `NoWindowError`."""
    shape, geometry = _draw_geometry(draw, sizes)
    window_shape, axes = geometry["window_shape"], geometry["axes"]
    arguments = {
        name: geometry[name]
        for name in ("axes", *WINDOW_ARGUMENTS)
        if name in geometry and (pool.takes(name) or name == "window_shape")
    }
    if pool.takes("output_shape"):  # windows at random positions
        most = [shape[axis] - w + 1 for axis, w in zip(axes, window_shape, strict=True)]
        assume(min(most) > 0)
        outs = tuple(draw(st.integers(1, n)) for n in most)
        lanes = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
        arguments |= {"output_shape": outs, "seed": draw(_SEEDS)}
        return (shape,), arguments, lanes * math.prod(outs) * math.prod(window_shape)
    windows = sliding_windows(shape, **{"padding": "SAME", **arguments})
    members = math.prod(windows.output_shape_of(shape)) * windows.taps_per_window
    if pool.takes("blur_shape"):
        blur_shape = draw(st.tuples(*[st.integers(1, 4)] * len(axes)))
        strides, padding = arguments.get("strides", (1,) * len(axes)), arguments["padding"]
        arguments |= {"blur_shape": blur_shape, "strides": strides}
        between = sliding_windows(shape, window_shape, None, padding, axes=axes)
        sliding_windows(between.output_shape_of(shape), blur_shape, strides, padding, axes=axes)
        members *= 4
    if pool.takes("rank"):
        fewest = windows.min_elements_per_window
        arguments["rank"] = draw(st.integers(-fewest, fewest - 1))
    if pool.takes("key"):
        seed = draw(_SEEDS)
        arguments["seed"] = draw(st.sampled_from([seed, seed, seed, None]))
    if not pool.takes("kernel"):
        return (shape,), arguments, members
    kernel_shape = arguments.pop("window_shape")
    if len(kernel_shape) < len(shape) and draw(st.booleans()):
        kernel_shape = (*kernel_shape, shape[max(set(range(len(shape))) - set(axes))])
    return (shape, kernel_shape), arguments, 2 * members


def _draw_box_call(draw: st.DrawFn, pool: Pool, sizes: Sizes) -> Outline:
    shape: Shape = (draw(sizes(30)), draw(sizes(17)), draw(sizes(9)))
    images = draw(st.sampled_from([None, None, 1, 3]))
    count, seed = draw(st.integers(1, 5) | st.just(17)), draw(_SEEDS)
    scale = draw(st.sampled_from([1.0, 0.5, 2.0]))
    arguments: dict[str, Any] = {"boxes": count, "seed": seed, "spatial_scale": scale}
    cells = draw(st.tuples(*[st.integers(1, 4)] * 2))
    seen = math.prod(shape[:2])
    if pool.takes("samples"):
        arguments |= {"aligned": draw(st.booleans()), "samples": draw(st.integers(1, 4))}
        if pool.takes("kind"):
            arguments["kind"] = draw(st.sampled_from(["avg", "avg", "max"]))
            arguments["seed"] |= arguments["kind"] == "max"
        if arguments["seed"] % 2:  # powers of two, so that weights are exact
            cells = (1 << cells[0] // 2, 1 << cells[1] // 2)
            arguments["samples"] = 1 << arguments["samples"] // 2
        seen = 4 * arguments["samples"] ** 2
    full = shape if images is None else (images, *shape)
    shapes: tuple[Shape, ...] = (full,)
    if "features" in pool.operands:
        levels = draw(st.integers(1, 3))
        shapes = tuple(
            (*full[:-3], *(max(n >> i, 1) for n in shape[:2]), shape[2]) for i in range(levels)
        )
        arguments |= {"canonical_size": draw(st.sampled_from([2.0, 5.0])), "canonical_level": 0}
    members = 3 * count * math.prod(cells) * shape[2] * seen
    return shapes, arguments | {"output_shape": cells}, members


def _draw_axis_call(draw: st.DrawFn, pool: Pool, sizes: Sizes) -> Outline:
    """Draw a call of a function over whole axes, groups, segments or indices."""
    rank = draw(st.integers(1 + pool.takes("levels"), 3))
    small = pool.takes("segment_ids") or pool.takes("k") or pool.takes("indices")
    longest = (60, 20, 9) if small or pool.takes("levels") else (130, 40, 18)
    shape = draw(st.tuples(*[sizes(longest[rank - 1])] * rank))
    axes = tuple(draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))])
    axis, members = axes[0], math.prod(shape)
    seed = draw(_SEEDS)
    arguments: dict[str, Any]
    if pool.takes("segment_ids"):
        arguments = {"num_segments": draw(st.integers(1, 9)), "seed": seed}
        arguments["indices_are_sorted"] = draw(st.booleans())
        members *= arguments["num_segments"]
        if pool.takes("temperature"):  # a row depends on its whole segment
            members *= shape[0]
    elif pool.takes("k"):
        arguments = {"axis": axis, "k": draw(st.integers(1, shape[axis]))}
        members *= arguments["k"]
    elif pool.takes("indices"):
        more = draw(st.tuples(*[st.tuples(st.integers(1, 4), st.integers(0, 2))] * len(axes)))
        to = tuple(shape[a] * n + rest for a, (n, rest) in zip(axes, more, strict=True))
        arguments = {"spatial_shape": to, "axes": axes, "seed": seed}
        members = members * 2 + math.prod(to)
    elif pool.takes("levels"):
        levels = sorted(draw(st.sets(st.integers(1, 5), min_size=1, max_size=3)))
        kind = draw(st.sampled_from(["max", "avg"]))
        arguments = {"levels": tuple(levels), "kind": kind, "axes": tuple(range(rank - 1))}
        members *= 4 * len(levels)
    elif pool.takes("output_shape"):
        arguments = {"output_shape": tuple(draw(sizes(shape[a])) for a in axes), "axes": axes}
        members *= 4
    elif pool.takes("reverse"):
        arguments = {"axis": axis, "reverse": draw(st.booleans())}
        members *= shape[axis]
    elif pool.takes("keepdims"):
        name = "axes" if pool.takes("axes") else "axis"
        arguments = {name: axes, "keepdims": draw(st.booleans())}
    else:
        arguments = {"groups": draw(st.integers(1, 4)), "axis": axis}
        members *= arguments["groups"]
        shape = tuple(n * arguments["groups"] if a == axis else n for a, n in enumerate(shape))
    return (shape,), arguments, members
