"""What is drawn: an op, its arguments, shapes and a type, with sizes on both sides of the thresholds of the plans."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, TUNING
from jaxpool.testing import pools
from tests.search import beyond

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "bool")
POOLS = ("max_pool", "min_pool", "avg_pool", "sum_pool")
SOFT = tuple(n for n, p in pools().items() if p.coefficients or (p.takes("p") and p.adds))
ADAPTIVE = ("adaptive_max_pool", "adaptive_avg_pool")
WHOLE = ("max", "min", "global_avg_pool")
RUNNING = ("cummax", "cummin")
ELEMENTWISE = ("maximum", "minimum", "fmax", "fmin")
FUNCTIONS = (*POOLS, *SOFT, *ADAPTIVE, *WHOLE, *RUNNING, *ELEMENTWISE, "maxout", *beyond.BEYOND)
SUMS = ("avg_pool", "sum_pool", "adaptive_avg_pool", "global_avg_pool", *SOFT)
WORK = 1 << 21  # members of all windows of all arrays of a spec, what the reference holds at once
ARRAYS = 128


@dataclasses.dataclass(frozen=True)
class Spec:
    """One program: a function of arrays of `shapes` with `arguments`, as a platform would compute it."""

    function: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    arguments: tuple[tuple[str, Any], ...]
    platform: Platform = "cpu"
    hasty: bool = True

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(self.arguments)

    @property
    def window(self) -> Window:
        """The windows of a windowed pool."""
        names = ("window_shape", "strides", "padding", "window_dilation", "ceil_mode", "axes")
        geometry = {name: value for name, value in self.arguments if name in names}
        return make_window(self.shapes[0], **geometry)

    @property
    def adds(self) -> bool:
        """Whether values are rounded sums."""
        return self.function in SUMS or beyond.adds(self.function, self.kwargs)

    def text(self) -> str:
        """As one line, which `read` takes."""
        return json.dumps(dataclasses.asdict(self))


def read(text: str) -> Spec:
    """The spec that `Spec.text` wrote."""
    fields = json.loads(text)
    return Spec(**{name: _frozen(value) for name, value in fields.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thresholds() -> list[int]:
    """Every threshold that counts taps, positions, rows or windows, and its neighbours."""
    fields = [*dataclasses.asdict(LIMITS).values()]
    for tuning in TUNING.values():
        fields += dataclasses.asdict(tuning).values()
    whole = {n for n in fields if type(n) is int and 1 < n <= 128}
    return sorted({n + step for n in whole for step in (-1, 0, 1)})


COUNTS = _thresholds()


def _sizes(most: int) -> st.SearchStrategy[int]:
    """Up to `most`, half of the time beside a threshold."""
    near = [n for n in COUNTS if n <= most]
    small = st.integers(1, min(most, 9))
    return small | st.sampled_from(near) if near else small


@st.composite
def _pooled(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape and the geometry of a windowed pool."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 2, 3]))
    dilation = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank))
    window = draw(st.tuples(*[_sizes((65, 17, 5)[rank - 1])] * rank))
    strides = draw(st.none() | st.tuples(*[st.integers(1, 4) | st.just(8)] * rank))
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation or (1,) * rank, strict=True)]
    extra = draw(st.tuples(*[st.integers(0, 5) | st.integers(0, (90, 24, 6)[rank - 1])] * rank))
    pairs = st.tuples(*[st.tuples(*[st.integers(0, 3)] * 2)] * rank)
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME", "SAME_LOWER"]) | pairs)
    short = 0 if padding == "VALID" else draw(st.integers(0, 3))
    sizes = [max(1, span + more - short) for span, more in zip(spans, extra, strict=True)]
    geometry: dict[str, Any] = {"window_shape": window, "strides": strides, "padding": padding}
    geometry |= {"window_dilation": dilation, "ceil_mode": draw(st.booleans())}
    row, batch = draw(_sizes(33)), draw(st.lists(st.integers(1, 3), max_size=2))
    layout = draw(st.sampled_from(["last", "last", "last", "first", "any"]))
    if layout == "last":
        shape = (*batch, *sizes, row)
    elif layout == "first":
        shape = (*batch, min(row, 3), *sizes)
        geometry["axes"] = tuple(range(len(shape) - rank, len(shape)))
    else:
        order = draw(st.permutations(range(rank + len(batch))))
        lengths = dict(zip(order, [*sizes, *batch], strict=True))
        shape = tuple(lengths[axis] for axis in range(rank + len(batch)))
        geometry["axes"] = tuple(order[:rank])
    return shape, {name: value for name, value in geometry.items() if value is not None}


@st.composite
def specs(draw: st.DrawFn, functions: tuple[str, ...] = FUNCTIONS) -> Spec:
    """Any op, with arguments that it takes."""
    name = draw(st.sampled_from((*functions, *(f for f in POOLS if f in functions))))
    kwargs: dict[str, Any] = {}
    shapes: tuple[tuple[int, ...], ...]
    if name in POOLS or name in SOFT:
        shape, kwargs = draw(_pooled())
        shapes = (shape,)
        try:
            window = make_window(shape, **kwargs)
        except ArgumentError:
            assume(False)
        members = math.prod(window.pooled(shape)) * window.size
        if name == "avg_pool":
            kwargs["count_include_pad"] = draw(st.booleans())
            kwargs["divisor"] = draw(st.sampled_from([None, None, 3.0, -2.5]))
        elif name == "lp_pool":
            kwargs["p"] = draw(st.sampled_from([1.0, 2.0, 3.0, 0.5, math.inf]))
        elif name in SOFT:
            kwargs[pools()[name].coefficients[0]] = draw(st.sampled_from([0.5, 1.0, 3.0]))
    elif name in beyond.BEYOND:
        try:
            shapes, kwargs, members = draw(beyond.arguments(name, _pooled(), _sizes))
        except ArgumentError:
            assume(False)
    elif name in ELEMENTWISE:
        count = 2 if name in ("fmax", "fmin") else draw(st.integers(2, 9))
        full = draw(st.lists(st.integers(1, 5), max_size=3))
        cut = [draw(st.tuples(st.integers(0, 3), st.integers(0, 7))) for _ in range(count - 1)]
        shapes = (tuple(full), *(_thinner(full, lead, ones) for lead, ones in cut))
        members = math.prod(full) * count
    else:
        rank = draw(st.integers(1, 3))
        shape = draw(st.tuples(*[_sizes((130, 40, 18)[rank - 1])] * rank))
        axes = tuple(draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))])
        members = math.prod(shape)
        if name in ADAPTIVE:
            kwargs["output_shape"] = tuple(draw(_sizes(shape[axis])) for axis in axes)
            kwargs["axes"] = axes
            members *= 4
        elif name in WHOLE:
            kwargs["axes" if name == "global_avg_pool" else "axis"] = axes
        elif name in RUNNING:
            kwargs |= {"axis": axes[0], "reverse": draw(st.booleans())}
            members *= shape[axes[0]]
        else:
            groups = draw(st.integers(1, 4))
            shape = tuple(n * groups if axis == axes[0] else n for axis, n in enumerate(shape))
            kwargs |= {"groups": groups, "axis": axes[0]}
            members *= groups
        shapes = (shape,)
    assume(0 < members * 2 <= WORK)
    sums = name in SUMS or beyond.adds(name, kwargs)
    if name in beyond.TIES or (not sums and name not in beyond.BEYOND):
        kwargs["ties"] = draw(st.sampled_from(["first", "last", "split"][: 3 - (name in RUNNING)]))
    exact = FLOATS[:3] if sums or name in beyond.MORPHOLOGY else FLOATS + INTEGERS
    dtype = draw(st.sampled_from(exact))
    platform = draw(st.sampled_from(["cpu", "cpu", "gpu", "tpu", "portable"]))
    hasty = platform != "cpu" or draw(st.integers(0, 7)) > 0
    return Spec(name, shapes, dtype, tuple(sorted(kwargs.items())), platform, hasty)


def _thinner(full: list[int], lead: int, ones: int) -> tuple[int, ...]:
    """Without the first `lead` axes, and of size 1 where a bit of `ones` says so."""
    return tuple(1 if ones >> i & 1 else n for i, n in enumerate(full) if i >= lead)
