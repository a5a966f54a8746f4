"""Hypothesis strategies for windowed pools: geometry, layout, dtype and values worth testing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from jaxpool.testing._answer import is_floating
from jaxpool.testing._case import Geometry, PoolCase, PoolKind
from jaxpool.testing._values import ValueKind, draw_values
from jaxpool.testing._windows import NoWindowError, sliding_windows
from jaxpool.testing.oracle._parts import Ties

Layout = Literal["channels_last", "channels_first", "any"]


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
    max_axis_size = max(2, max_size - 2 * (rank - 1))
    sizes = draw(st.tuples(*[st.integers(1, max_axis_size)] * rank))
    window_shape = draw(st.tuples(*[st.integers(1, 4 if rank < 3 else 3)] * rank))
    strides = draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilations = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank)) if dilation else None
    pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME_LOWER"]) | st.tuples(*[pair] * rank))
    rounds_up = draw(st.booleans()) if ceil_mode else False
    batch_shape = draw(st.lists(st.integers(1, 2), max_size=2))
    channels = draw(st.integers(1, 3))
    layout = draw(st.sampled_from(layouts))
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None
    if layout == "channels_last":
        shape, axes = (*batch_shape, *sizes, channels), None
    elif layout == "channels_first":
        shape, axes = (*batch_shape, channels, *sizes), tuple(range(-rank, 0))
    else:
        num_other_axes = len(batch_shape) + draw(st.integers(0, 1))
        axis_order = draw(st.permutations(range(rank + num_other_axes)))
        axes = tuple(axis_order[:rank])
        size_by_axis = dict(zip(axes, sizes, strict=True))
        shape = tuple(size_by_axis.get(axis, 2) for axis in range(rank + num_other_axes))
    geometry = Geometry(shape, window_shape, strides, padding, dilations, rounds_up, axes)
    assume(_has_nonempty_windows(geometry))
    return geometry


def _has_nonempty_windows(geometry: Geometry) -> bool:
    fields = dataclasses.asdict(geometry)
    try:
        sliding_windows(fields.pop("shape"), **fields)
    except NoWindowError:
        return False
    return True


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
    fields = {
        f.name: getattr(drawn_geometry, f.name)
        for f in dataclasses.fields(drawn_geometry)
        if f.name != "shape"
    }
    extra_fields: dict[str, Any] = {}
    if kind in ("max", "min", "median", "rank"):
        extra_fields["ties"] = draw(st.sampled_from(ties))
    elif kind == "avg":
        extra_fields["count_include_pad"] = draw(st.booleans())
        extra_fields["divisor"] = draw(st.sampled_from([None, None, 3, -2.5]))
    case = PoolCase(kind, x, None, **fields, **extra_fields)
    if kind == "rank":
        min_elements = case.window().min_elements_per_window
        case = dataclasses.replace(case, rank=draw(st.integers(-min_elements, min_elements - 1)))
    if not is_floating(dtype):
        return case
    dy = draw_values(
        rng, case.window().output_shape_of(x.shape), dtype, "ties" if value == "ties" else "normal"
    )
    return dataclasses.replace(case, dy=dy)
