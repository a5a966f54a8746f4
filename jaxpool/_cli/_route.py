"""The selected inputs of each output of a pool of a small array, and the inputs that receive its cotangent.

`explain` creates a `CotangentRoute`; `_route_text`, `_route_picture` and `_page` show this route.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from jaxpool._arguments.errors import name_function_in_errors
from jaxpool._cli import UsageError
from jaxpool._cli._array import MAX_NUMBERS
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Window, make_window

IntPair = tuple[int, int]
Position = tuple[int, ...]
# Windowed ops over two axes, which the HTML page computes too; `_jacobian.py` covers any other function.
ADAPTIVE_OPS = ("adaptive_max", "adaptive_avg")
MORPHOLOGY_OPS = ("dilate", "erode")  # with a kernel of zeros
POOL_OPS = ("max", "min", "avg", "sum", "lp", "median", "rank", *ADAPTIVE_OPS)
FUNCTION_OF_OP = {
    **{op: f"{op}_pool" for op in POOL_OPS},
    **{op: op for op in MORPHOLOGY_OPS},
    "unpool": "max_pool_with_argmax",
}
SELECTING_OPS = ("max", "min", "median", "rank", *MORPHOLOGY_OPS, "adaptive_max", "unpool")


@dataclasses.dataclass(frozen=True)
class PoolSettings:
    """A pool over the two axes of an array. Fields that an op does not use stay at their defaults."""

    op: str = "max"
    window: IntPair = (2, 2)
    strides: IntPair = (2, 2)
    padding: str | tuple[IntPair, IntPair] = "VALID"
    window_dilation: IntPair = (1, 1)
    ceil_mode: bool = False
    ties: Literal["first", "last", "split"] = "first"
    count_include_pad: bool = True
    divisor: float | None = None
    p: float = 2.0
    rank: int = 0
    output_shape: IntPair = (2, 2)

    has_window = True
    returns_mask = False

    @property
    def selects_elements(self) -> bool:
        """Whether outputs are elements of the input rather than sums of elements."""
        return self.op in SELECTING_OPS

    @property
    def prints_shares_as_fractions(self) -> bool:
        """Whether shares of a cotangent are printed as fractions, such as 1/3."""
        return self.op != "lp"

    def as_dict(self) -> dict[str, Any]:
        """The settings for `--json`."""
        return dataclasses.asdict(self)

    @property
    def positional_arguments(self) -> tuple[Any, ...]:
        """The positional arguments after x in a call of the function of `op`."""
        if self.op in ADAPTIVE_OPS:
            return (self.output_shape,)
        if self.op in MORPHOLOGY_OPS:
            return np.zeros(self.window, np.float32), self.strides, self.padding
        leading_args = {"lp": (self.p,), "rank": (self.rank,)}.get(self.op, ())
        return (*leading_args, self.window, self.strides, self.padding)

    @property
    def keyword_arguments(self) -> dict[str, Any]:
        """The keyword arguments of the function of `op` that differ from their defaults, and `axes`."""
        names = [] if self.op in ADAPTIVE_OPS else ["window_dilation", "ceil_mode"]
        names += ["ties"] if self.op in SELECTING_OPS else []
        names += ["count_include_pad", "divisor"] if self.op == "avg" else []
        defaults = PoolSettings()
        changed_names = [name for name in names if getattr(self, name) != getattr(defaults, name)]
        return {name: getattr(self, name) for name in changed_names} | {"axes": (0, 1)}

    def source_code(self, shape: tuple[int, ...]) -> str:
        """The call on an array of `shape` as Python source."""
        padding = self.padding
        pads = set() if isinstance(padding, str) else {pad for pair in padding for pad in pair}
        short_padding = pads.pop() if len(pads) == 1 else padding
        positional_sources = [
            _as_source_code(short_padding if value is padding else value)
            for value in self.positional_arguments
        ]
        if padding == "VALID" and self.op not in ADAPTIVE_OPS:
            positional_sources.pop()
        keyword_sources = [
            f"{name}={_as_source_code(value)}" for name, value in self.keyword_arguments.items()
        ]
        call = f"jaxpool.{FUNCTION_OF_OP[self.op]}({', '.join(['x', *positional_sources, *keyword_sources])})"
        if self.op != "unpool":
            return call
        return f"y, indices = {call}\njaxpool.max_unpool(y, indices, {shape}, axes=(0, 1))"


def _as_source_code(value: Any) -> str:
    """A value as Python source."""
    if isinstance(value, np.ndarray):
        return f"jnp.zeros({value.shape})"
    if isinstance(value, float):
        return 'float("inf")' if value == float("inf") else repr(value).removesuffix(".0")
    return f'"{value}"' if isinstance(value, str) else f"{value!r}"


@dataclasses.dataclass(frozen=True)
class LabelledArray:
    """A named array, with a mask of the inputs that are selected or of the elements that receive a cotangent."""

    name: str
    values: np.ndarray
    selected_mask: np.ndarray | None = None
    receives_cotangent_mask: np.ndarray | None = None

    @property
    def title(self) -> str:
        """The name and the size."""
        return f"{self.name} ({self.values.shape[0]}x{self.values.shape[1]})"


@dataclasses.dataclass(frozen=True)
class CotangentRoute:
    """A pool of x, with the inputs and the derivative of every output.

    `cotangent_shares[i, j]` holds the cotangent of x for a cotangent of 1 at output (i, j). `input_masks[i, j]` is True
    for the inputs that the output reads, `windows[i, j]` for the elements of `array` in its window. For `max_unpool`, x
    holds the maxima of `array`, `indices` their positions, and y the unpooled array.
    """

    settings: Any  # `PoolSettings`, or the `FunctionCall` of `_jacobian.py`
    x: np.ndarray
    y: np.ndarray
    dy: np.ndarray
    dx: np.ndarray
    cotangent_shares: np.ndarray
    input_masks: np.ndarray
    array: np.ndarray
    windows: np.ndarray
    indices: np.ndarray | None = None

    def cotangent_receivers_of(self, output: Position) -> list[tuple[Position, float]]:
        """The inputs that receive the cotangent of one output, and their shares of it."""
        shares = self.cotangent_shares[output]
        receivers = np.argwhere(np.isnan(shares) | (shares != 0)).tolist()
        return [((row, column), float(shares[row, column])) for row, column in receivers]

    def rows_and_columns_read_by(self, output: Position) -> tuple[list[int], list[int]]:
        """The rows and columns of the inputs in the window of one output."""
        rows, columns = np.nonzero(self.input_masks[output])
        return sorted(set(rows.tolist())), sorted(set(columns.tolist()))

    def labelled_arrays(self) -> list[tuple[LabelledArray, LabelledArray]]:
        """The grids to show: values, then cotangents, with inputs on the left and outputs on the right."""
        if self.indices is None:
            selects_elements = self.settings.selects_elements
            mask = np.any(self.cotangent_shares != 0, axis=(0, 1))
            if self.settings.returns_mask:
                y_mask = self.y.reshape(self.x.shape) != 0
                return [
                    (LabelledArray("x: input", self.x, y_mask), LabelledArray("y: output", self.y))
                ]
            return [
                (
                    LabelledArray("x: input", self.x, mask if selects_elements else None),
                    LabelledArray("y: output", self.y),
                ),
                (
                    LabelledArray("dx: what x gets", self.dx, receives_cotangent_mask=self.dx != 0),
                    LabelledArray("dy: cotangent of y", self.dy),
                ),
            ]
        mask = np.any(self.input_masks, axis=(2, 3))
        return [
            (LabelledArray("array", self.array, mask), LabelledArray("y: its maxima", self.x)),
            (
                LabelledArray("x: y put back", self.y, mask),
                LabelledArray("indices of y", self.indices),
            ),
            (
                LabelledArray("dx: cotangent of x", self.dy),
                LabelledArray("dy: what y gets", self.dx, receives_cotangent_mask=self.dx != 0),
            ),
        ]


def window_of_settings(settings: PoolSettings, shape: tuple[int, ...]) -> Window:
    """The windows of a pool over an array of `shape`. Raises the errors of the public function."""
    name = FUNCTION_OF_OP[settings.op]
    if settings.op in ADAPTIVE_OPS:
        with name_function_in_errors(name, **{"x.shape": shape}):
            window = adaptive_window(shape, settings.output_shape, (0, 1))
    else:
        if settings.window[0] * settings.window[1] > MAX_NUMBERS:
            got = f"got --window={'x'.join(map(str, settings.window))}"
            raise UsageError(f"`--window` must have at most {MAX_NUMBERS} numbers; {got}.")
        with name_function_in_errors(name, **{"x.shape": shape, "window_shape": settings.window}):
            window = make_window(
                shape,
                settings.window,
                settings.strides,
                settings.padding,
                window_dilation=settings.window_dilation,
                ceil_mode=settings.ceil_mode,
                axes=(0, 1),
            )
    rows, columns = window.output_shape
    if rows * columns > MAX_NUMBERS:
        got = f"got {rows}x{columns}. Use larger strides or less padding"
        raise UsageError(f"The output must have at most {MAX_NUMBERS} numbers; {got}.")
    return window


def broadcast_cotangent(dy: np.ndarray | None, output_shape: tuple[int, ...]) -> np.ndarray:
    """The cotangent of an output of shape `output_shape`: 1 everywhere for None, and a single number broadcasts."""
    if dy is None:
        return np.ones(output_shape, np.float32)
    if dy.size == 1:
        return np.full(output_shape, dy.item(), np.float32)
    if dy.shape != output_shape:
        sizes = " or ".join(dict.fromkeys(["1", "x".join(map(str, output_shape))]))
        got = "x".join(map(str, dy.shape))
        raise UsageError(f"`--cotangent` must be of the size of the output, {sizes}; got {got}.")
    return dy


def route_cotangents(
    settings: PoolSettings, array: np.ndarray, dy: np.ndarray | None = None
) -> CotangentRoute:
    """Pool `array`, and route each output's cotangent by the derivative rule of the pool.

    `dy` is the cotangent of the output, 1 everywhere for None. Raises `UsageError`, and the errors of the library.
    """
    window = window_of_settings(settings, array.shape)
    row_mask, col_mask = (
        dim.tap_positions()[..., None] == np.arange(dim.size) for dim in window.dims
    )
    input_masks = row_mask.any(1)[:, None, :, None] & col_mask.any(1)[None, :, None, :]

    import jax
    import jax.numpy as jnp

    import jaxpool

    positional_arguments, keyword_arguments = (
        settings.positional_arguments,
        settings.keyword_arguments,
    )
    x, indices, windows = array, None, input_masks
    if settings.op == "unpool":
        maxima, positions = jaxpool.max_pool_with_argmax(
            jnp.asarray(array), *positional_arguments, **keyword_arguments
        )
        x, indices = np.asarray(maxima), np.asarray(positions)
        input_masks = (np.arange(array.size)[:, None] == indices.ravel()).reshape(
            array.shape + x.shape
        )

    def pool_function(x: jax.Array) -> jax.Array:
        if indices is not None:
            return jaxpool.max_unpool(x, indices, array.shape, axes=(0, 1))
        return getattr(jaxpool, FUNCTION_OF_OP[settings.op])(
            x, *positional_arguments, **keyword_arguments
        )

    output_shape = input_masks.shape[:2]
    dy = broadcast_cotangent(dy, output_shape)

    def value_and_cotangent(x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, vjp_fn = jax.vjp(pool_function, x)
        return y, vjp_fn(dy)[0]

    # The batch holds the whole array, then each window alone with a cotangent of 1. Elements outside a window are 0: a
    # NaN there would make the cotangents of other windows NaN, even if their dy is 0.
    flat_masks = input_masks.reshape(-1, *x.shape)
    xs = np.concatenate([x[None], np.where(flat_masks, x, 0)])
    dys = np.concatenate([dy[None], np.eye(dy.size, dtype=dy.dtype).reshape(-1, *output_shape)])
    ys, dxs = (np.asarray(result) for result in jax.jit(jax.vmap(value_and_cotangent))(xs, dys))
    shares = np.where(flat_masks, dxs[1:], 0).reshape(input_masks.shape)
    return CotangentRoute(
        settings, x, ys[0], dy, dxs[0], shares, input_masks, array, windows, indices
    )
