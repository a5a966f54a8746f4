"""Hypothesis strategies for pooling cases: geometry, layout, dtype and values worth trying."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window
from jaxpool.testing import _oracle

Kind = Literal["max", "min", "avg", "sum", "median", "rank"]
Layout = Literal["channels_last", "channels_first", "any"]
Values = Literal["ties", "normal", "special", "lowest"]


@dataclasses.dataclass(frozen=True, eq=False)
class PoolCase:
    """One pool to try: which, on what `x`, with which arguments, and a cotangent for it.

    `dy` is None where `x` has no gradient (integers and bool).
    """

    kind: Kind
    x: np.ndarray
    dy: np.ndarray | None
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...]
    window_dilation: tuple[int, ...] | None = None
    ceil_mode: bool = False
    axes: tuple[int, ...] | None = None
    ties: _oracle.Ties = "first"
    count_include_pad: bool = True
    divisor: float | None = None
    rank: int | None = None

    def geometry(self) -> dict[str, Any]:
        """The arguments that place the windows, without those that stand at their default."""
        chosen: dict[str, Any] = {
            "window_shape": self.window_shape,
            "strides": self.strides,
            "padding": self.padding,
        }
        if self.window_dilation is not None:
            chosen["window_dilation"] = self.window_dilation
        if self.ceil_mode:
            chosen["ceil_mode"] = True
        if self.axes is not None:
            chosen["axes"] = self.axes
        return chosen

    def kwargs(self) -> dict[str, Any]:
        """What to pass beside `x`; optional arguments only where they are not at their default."""
        chosen = self.geometry()
        if self.ties != "first":
            chosen["ties"] = self.ties
        if not self.count_include_pad:
            chosen["count_include_pad"] = False
        if self.divisor is not None:
            chosen["divisor"] = self.divisor
        if self.rank is not None:
            chosen["rank"] = self.rank
        return chosen

    def window(self) -> Window:
        """The geometry in numbers."""
        return make_window(self.x.shape, **self.geometry())

    def answer(self) -> _oracle.Answer:
        """What the oracle makes of the case."""
        return getattr(_oracle, f"{self.kind}_pool")(self.x, **self.kwargs())


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shape, layout and window of a case before values are drawn: what a program depends on."""

    shape: tuple[int, ...]
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...] = "VALID"
    window_dilation: tuple[int, ...] | None = None
    ceil_mode: bool = False
    axes: tuple[int, ...] | None = None


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
    """Valid geometries: no empty window, no empty output, pooled axes of up to `max_size`."""
    rank = draw(st.sampled_from(ranks))
    longest = max(2, max_size - 2 * (rank - 1))
    sizes = draw(st.tuples(*[st.integers(1, longest)] * rank))
    window_shape = draw(st.tuples(*[st.integers(1, 4 if rank < 3 else 3)] * rank))
    strides = draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilations = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank)) if dilation else None
    pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME_LOWER"]) | st.tuples(*[pair] * rank))
    rounds_up = draw(st.booleans()) if ceil_mode else False
    batch = draw(st.lists(st.integers(1, 2), max_size=2))
    channels = draw(st.integers(1, 3))
    layout = draw(st.sampled_from(layouts))
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None
    if layout == "channels_last":
        shape, axes = (*batch, *sizes, channels), None
    elif layout == "channels_first":
        shape, axes = (*batch, channels, *sizes), tuple(range(-rank, 0))
    else:
        others = len(batch) + draw(st.integers(0, 1))
        order = draw(st.permutations(range(rank + others)))
        axes = tuple(order[:rank])
        lengths = dict(zip(axes, sizes, strict=True))
        shape = tuple(lengths.get(axis, 2) for axis in range(rank + others))
    geometry = Geometry(shape, window_shape, strides, padding, dilations, rounds_up, axes)
    assume(_valid(geometry))
    return geometry


def _valid(geometry: Geometry) -> bool:
    fields = dataclasses.asdict(geometry)
    try:
        make_window(fields.pop("shape"), **fields)
    except ArgumentError:
        return False
    return True


@st.composite
def pool_cases(
    draw: st.DrawFn,
    *,
    kinds: Sequence[Kind] = ("max", "min", "avg", "sum"),
    geometry: st.SearchStrategy[Geometry] | None = None,
    dtypes: Sequence[Any] = (np.float32,),
    values: Sequence[Values] = ("ties", "normal", "special", "lowest"),
    ties: Sequence[_oracle.Ties] = ("first", "last", "split"),
) -> PoolCase:
    """Cases of the given kinds, dtypes and values. `geometry` defaults to `geometries()`.

    A pool that lacks an argument can be tried by leaving it out of the draw: `ties=("first",)`, or
    `geometry=geometries(dilation=False, ceil_mode=False, layouts=("channels_last",))`.

    Values: "ties" are a few small integers, "normal" a bell curve, "special" mixes NaN, both
    infinities and both zeros with numbers, "lowest" is mostly the least value of the dtype (-inf,
    or the greatest for a min pool).

    Example:
        >>> from hypothesis import given
        >>> import jaxpool
        >>> from jaxpool.testing import assert_pool_matches, pool_cases
        >>> @given(pool_cases(kinds=("max",), values=("ties",)))
        ... def test_max_pool(case):
        ...     assert_pool_matches(jaxpool.max_pool, case)
    """
    kind = draw(st.sampled_from(kinds))
    shape = draw(geometries() if geometry is None else geometry)
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    value = draw(st.sampled_from(values))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw_values(rng, shape.shape, dtype, value, greatest=kind == "min")
    fields = {
        f.name: getattr(shape, f.name) for f in dataclasses.fields(shape) if f.name != "shape"
    }
    extra: dict[str, Any] = {}
    if kind in ("max", "min", "median", "rank"):
        extra["ties"] = draw(st.sampled_from(ties))
    elif kind == "avg":
        extra["count_include_pad"] = draw(st.booleans())
        extra["divisor"] = draw(st.sampled_from([None, None, 3, -2.5]))
    case = PoolCase(kind, x, None, **fields, **extra)
    if kind == "rank":
        real = [min(map(dim.real, range(dim.out))) for dim in case.window().dims]
        fewest = int(np.prod(real))
        case = dataclasses.replace(case, rank=draw(st.integers(-fewest, fewest - 1)))
    if not _oracle.is_floating(dtype):
        return case
    dy = draw_values(
        rng, case.window().pooled(x.shape), dtype, "ties" if value == "ties" else "normal"
    )
    return dataclasses.replace(case, dy=dy)


def draw_values(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: Any,
    values: Values,
    *,
    greatest: bool = False,
) -> np.ndarray:
    """An array of `dtype` filled with `values` (see `pool_cases`) from a seeded generator.

    Example:
        >>> import numpy as np
        >>> draw_values(np.random.default_rng(0), (4,), np.float32, "ties")
        array([ 2.,  1.,  0., -1.], dtype=float32)
    """
    dtype = np.dtype(dtype)
    if values == "normal" and _oracle.is_floating(dtype):
        return _cast(rng.standard_normal(shape) * 2, dtype)
    if values in ("ties", "normal"):
        return _cast(
            rng.integers(-2 if values == "ties" else -100, 3 if values == "ties" else 101, shape),
            dtype,
        )
    if _oracle.is_floating(dtype):
        least, most, others = -np.inf, np.inf, [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0]
    elif dtype == np.bool_:
        least, most, others = False, True, [False, True]
    else:
        info = jnp.iinfo(dtype)
        least, most = int(info.min), int(info.max)
        others = [least, least + 1, 0, 1, most - 1, most]
    if values == "special":
        return _cast(rng.choice(np.array(others, object), shape), dtype)
    extreme = most if greatest else least
    mostly = rng.random(shape) < 0.8
    return _cast(np.where(mostly, extreme, rng.choice(np.array(others, object), shape)), dtype)


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` in `dtype`: ints wrap, floats lose what they cannot hold, bool is odd or even."""
    if dtype == np.bool_:
        return (values.astype(np.int64) % 2).astype(np.bool_)
    if _oracle.is_floating(dtype):
        info = jnp.finfo(dtype)
        wide = values.astype(np.float64)
        if float(info.min) >= 0:  # no sign and no zero: powers of two alone
            wide = np.exp2(np.clip(np.nan_to_num(wide, nan=0.0), -4, 4))
        elif np.isnan(np.asarray(np.inf, dtype).astype(np.float64)):  # no infinity
            wide = np.where(np.isinf(wide), np.copysign(float(info.max), wide), wide)
        with np.errstate(all="ignore"):
            return wide.astype(dtype)
    return _oracle.rounded(values, dtype)
