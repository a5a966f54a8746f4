"""A benchmark case: an op, its arguments, and the arrays that it runs on.

Cases are plain data, and importing them does not import jax, which reads the environment when it is imported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes  # noqa: F401 - makes "bfloat16" a dtype of NumPy
import numpy as np

Mode = Literal["forward", "forward_and_vjp"]
MODES: tuple[Mode, ...] = ("forward", "forward_and_vjp")

ELEMENTWISE = ("maximum", "minimum")
AVERAGES = ("avg_pool", "sum_pool")
ADAPTIVE = ("adaptive_max_pool", "adaptive_avg_pool")
ARGMAX = "max_pool_with_argmax"
UNPOOL = "max_unpool"
CUMMAX = "cummax"
MAX = "max"
TRAIN_STEP = "train_step"
TRAIN_STEP_CALL = "bench.train_steps:first_step"


class Unsupported(Exception):
    """The peer lacks the op, dtype, layout or derivative, or is not installed."""


@dataclasses.dataclass(frozen=True)
class Given:
    """Stand-in for an array argument in a call, printed as its dtype and shape."""

    shape: tuple[int, ...]
    dtype: str

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True)
class Case:
    """One call to time. `shape` is the shape of each input, batch first.

    `op` is a name in `jaxpool`, or "train_step" with `net` a name in `bench.train_steps`.
    `axes` are the pooled axes. The axis that is neither pooled nor the first holds the channels.
    `output` holds the sizes along `axes` of the result of an adaptive pool or an unpool.
    An unpool has the window and strides of the pool that computed its indices.
    """

    op: str
    shape: tuple[int, ...]
    window: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    padding: str | tuple[tuple[int, int], ...] = "VALID"
    dilation: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    dtype: str = "float32"
    arity: int = 1
    net: str = ""
    tags: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The call, in the syntax of `info --plan`: "max_pool(float32[8,40,40,64], (5, 5), padding='SAME')"."""
        positional, named = self.arguments
        words = [*map(repr, positional), *(f"{name}={value!r}" for name, value in named.items())]
        called = TRAIN_STEP_CALL if self.op == TRAIN_STEP else self.op
        return f"{called}({', '.join(words)})"

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the op. Arrays are `Given`; defaults are omitted."""
        xs = (Given(self.shape, self.dtype),) * self.arity
        usual = tuple(range(1, len(self.shape) - 1))
        named: dict[str, Any] = {} if self.axes == usual else {"axes": self.axes}
        if self.op == TRAIN_STEP:
            return (self.net, *xs), {}
        if self.op in ELEMENTWISE:
            return xs, {}
        if self.op == MAX:
            return (*xs, self.axes), {"keepdims": True, "ties": "split"}
        if self.op == CUMMAX:
            return (*xs, *self.axes), {}
        if self.op == UNPOOL:
            return (*xs, Given(self.shape, "int32"), self.output), named
        if self.op in ADAPTIVE:
            return (*xs, self.output), named
        if any(d > 1 for d in self.dilation):
            named = {**named, "window_dilation": self.dilation}
        padded = self.padding != "VALID"
        if any(stride > 1 for stride in self.strides):
            return (*xs, self.window, self.strides, *[self.padding] * padded), named
        return (*xs, self.window), {"padding": self.padding, **named} if padded else named

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as a function of the input arrays, with the other arguments of the case bound."""
        positional, named = self.arguments
        words = [each for each in positional if not isinstance(each, Given)]
        return lambda *xs: function(*xs, *words, **named)

    @property
    def channels_first(self) -> bool:
        return bool(self.axes) and self.channel_axis == 1 and len(self.shape) > 2

    @property
    def channel_axis(self) -> int:
        free = [a for a in range(1, len(self.shape)) if a not in self.axes]
        return free[-1]

    @property
    def sample(self) -> tuple[slice, ...]:
        """Slices that select the first and last batch entry and channel, in any array library.

        A pool does not mix batch entries or channels, so these are enough to reveal a wrong answer.
        The reference stays cheap even for a window of 63x63.
        """
        index = [slice(None)] * len(self.shape)
        for axis in {self.channel_axis, 0}:
            index[axis] = slice(None, None, max(self.shape[axis] - 1, 1))
        return tuple(index)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Integers have no derivative, and a train step has no forward pass of its own."""
        if self.dtype.startswith("int"):
            return ("forward",)
        return ("forward_and_vjp",) if self.op == TRAIN_STEP else MODES

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(low, high) padding of each pooled axis, also for "SAME"."""
        if not isinstance(self.padding, str):
            return self.padding
        if self.padding == "VALID":
            return ((0, 0),) * len(self.window)
        sizes = zip(self.spatial_shape, self.extents, self.strides, strict=True)
        totals = [
            max((-(-size // stride) - 1) * stride + extent - size, 0)
            for size, extent, stride in sizes
        ]
        return tuple((total // 2, total - total // 2) for total in totals)

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.axes)

    @property
    def extents(self) -> tuple[int, ...]:
        """Window sizes including dilation."""
        return tuple((w - 1) * d + 1 for w, d in zip(self.window, self.dilation, strict=True))

    @property
    def output_shape(self) -> tuple[int, ...]:
        shape = list(self.shape)
        if self.output or self.op == MAX:
            for axis, size in zip(self.axes, self.output or (1,) * len(self.axes), strict=True):
                shape[axis] = size
            return tuple(shape)
        if not self.window:
            return self.shape
        geometry = zip(self.axes, self.pads, self.extents, self.strides, strict=True)
        for axis, (low, high), extent, stride in geometry:
            shape[axis] = (shape[axis] + low + high - extent) // stride + 1
        return tuple(shape)

    def floor_bytes(self, mode: Mode) -> int:
        """Least number of bytes that any implementation must read and write. Residuals are not counted.

        The forward pass reads the inputs and writes y. The backward pass reads dy and writes one dx per input.
        Positions are written or read at least once.
        """
        if self.op == TRAIN_STEP:
            return 0
        inputs, outputs = math.prod(self.shape), math.prod(self.output_shape)
        values = (self.arity * inputs + outputs) * np.dtype(self.dtype).itemsize
        positions = {ARGMAX: outputs, UNPOOL: inputs}.get(self.op, 0)
        return (1 if mode == "forward" else 2) * values + positions * np.dtype(np.int32).itemsize

    def inputs(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """The input arrays, equal in every process. Arrays with a gradient precede positions."""
        rng = np.random.default_rng(seed)
        arrays = [_draw(rng, self.shape, self.dtype) for _ in range(self.arity)]
        if self.op == UNPOOL:
            arrays.append(_positions(rng, self))
        return tuple(arrays)

    def cotangent(self, seed: int = 1) -> np.ndarray:
        return _draw(np.random.default_rng(seed), self.output_shape, self.dtype)


def outputs_of(result: Any) -> tuple[Any, ...]:
    """The outputs of an op that returns y, or y and positions."""
    return result if isinstance(result, tuple) else (result,)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if np.issubdtype(kind, np.integer):
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    if kind == np.float64:
        return rng.standard_normal(shape)
    return rng.standard_normal(shape, dtype=np.float32).astype(kind, copy=False)


def _positions(rng: np.random.Generator, case: Case) -> np.ndarray:
    """Random positions, one inside each window, as a max pool without padding could return them."""
    flat = np.zeros(case.shape, np.int32)
    geometry = zip(case.axes, case.window, case.strides, case.output, strict=True)
    for axis, window, stride, size in geometry:
        starts = stride * np.arange(case.shape[axis], dtype=np.int32)
        starts = starts.reshape([-1 if a == axis else 1 for a in range(len(case.shape))])
        flat = flat * size + starts + rng.integers(0, window, case.shape, np.int32)
    return flat
