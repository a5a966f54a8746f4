"""The selected inputs of each output of a call on a small array, and the inputs that receive its cotangent.

`explain` creates a `CotangentRoute`; `_route_text`, `_route_picture` and `_page` show this route.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxpool._cli import UsageError
from jaxpool._cli._array import MAX_NUMBERS
from jaxpool._cli._function_call import FunctionCall

Position = tuple[int, ...]


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
    """A call on x, with the inputs and the derivative of every output.

    `cotangent_shares[i, j]` holds the cotangent of x for a cotangent of 1 at output (i, j). `input_masks[i, j]` is True
    for the inputs that the output reads, `windows[i, j]` for the elements of `array` in its window. For `max_unpool`, x
    holds the maxima of `array`, `indices` their positions, and y the unpooled array.
    """

    call: FunctionCall
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
            selects_elements = self.call.selects_elements
            mask = np.any(self.cotangent_shares != 0, axis=(0, 1))
            if self.call.returns_mask:
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
    call: FunctionCall, dy: np.ndarray | None = None, *, by_oracle: bool = False
) -> CotangentRoute:
    """The route of each output's cotangent, as the library or the oracle of `jaxpool.testing` computes it.

    `dy` is the cotangent of the output, 1 everywhere for None. Raises `UsageError`, and the errors of the library.
    """
    x, array, arguments, indices = call.array, call.array, call.arguments, None
    windows: Any = None
    if call.window is not None:
        row_mask, col_mask = (
            dim.tap_positions()[..., None] == np.arange(dim.size) for dim in call.window.dims
        )
        windows = row_mask.any(1)[:, None, :, None] & col_mask.any(1)[None, :, None, :]
    input_masks = windows
    if call.pooling is not None:
        x, indices = _maxima_and_indices(call.pooling, by_oracle)
        arguments = {"y": x, "indices": indices, "spatial_shape": array.shape, "axes": (0, 1)}
        is_put_here = np.arange(array.size)[:, None] == indices.ravel()
        input_masks = is_put_here.reshape(array.shape + x.shape)
    derivative = _derivative_of_oracle if by_oracle else _derivative_of_library
    y, dy, dx, shares = derivative(call.record, arguments, x, dy, input_masks)
    if input_masks is None:
        input_masks = windows = np.isnan(shares) | (shares != 0)
    shares = np.where(input_masks, shares, 0)
    return CotangentRoute(call, x, y, dy, dx, shares, input_masks, array, windows, indices)


def _maxima_and_indices(pooling: FunctionCall, by_oracle: bool) -> tuple[np.ndarray, np.ndarray]:
    if by_oracle:
        answer = pooling.record.run(pooling.arguments, pooling.record.meaning)
        return answer.y, answer.indices
    maxima, indices = pooling.record.run(pooling.arguments)
    return np.asarray(maxima), np.asarray(indices)


def _derivative_of_library(
    record: Any, arguments: dict[str, Any], x: np.ndarray, dy: Any, input_masks: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The output y of two axes, dy, dx, and the Jacobian, computed by the public function."""
    import jax

    main_operand = record.operands[0]
    value = arguments[main_operand]

    def first_output(x: jax.Array) -> jax.Array:
        is_tuple = isinstance(value, tuple)
        first = x.reshape(value[0].shape) if is_tuple else x.reshape(value.shape)
        operand = (first, *value[1:]) if is_tuple else first
        y = record.run({**arguments, main_operand: operand})
        y = y[0] if isinstance(y, tuple) else y
        return y if input_masks is not None else y.reshape(_shape_of_two_axes(y.shape))

    def value_and_cotangent(x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, vjp_fn = jax.vjp(first_output, x)
        return y, vjp_fn(dy)[0]

    output_shape = jax.eval_shape(first_output, x).shape
    dy = broadcast_cotangent(dy, output_shape)
    # The batch holds x with dy, and then x with a cotangent of 1 for each output. Elements outside the window of that
    # output are 0: a NaN there would make the cotangents of other windows NaN, even if their dy is 0.
    xs = np.broadcast_to(x, (1 + dy.size, *x.shape))
    if input_masks is not None:
        xs = np.concatenate([xs[:1], np.where(input_masks.reshape(-1, *x.shape), x, 0)])
    dys = np.concatenate([dy[None], np.eye(dy.size, dtype=dy.dtype).reshape(-1, *output_shape)])
    ys, dxs = (np.asarray(result) for result in jax.jit(jax.vmap(value_and_cotangent))(xs, dys))
    return ys[0], dy, dxs[0], dxs[1:].reshape(*output_shape, *x.shape)


def _derivative_of_oracle(
    record: Any, arguments: dict[str, Any], x: np.ndarray, dy: Any, input_masks: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same as `_derivative_of_library`, computed by the oracle, which needs no compilation."""
    answer = record.run(arguments, record.meaning)
    y = answer.y
    if input_masks is None:
        y = y.reshape(_shape_of_two_axes(y.shape))
    dy = broadcast_cotangent(dy, y.shape)
    shares = np.zeros((y.size, x.size))
    for term in answer.terms:
        if term.operand == 0:
            output = np.ravel_multi_index(term.output, answer.y.shape)
            shares[output, np.ravel_multi_index(term.position, answer.inputs[0][0])] += term.share
    dx = np.where(shares == 0, 0, shares * dy.reshape(-1, 1)).sum(0).reshape(x.shape)
    return y, dy, dx.astype(np.float32), shares.reshape(*y.shape, *x.shape).astype(np.float32)


def _shape_of_two_axes(shape: tuple[int, ...]) -> tuple[int, int]:
    """Two axes for an output of any shape: the first axis longer than 1, and all axes after it."""
    sizes = [size for size in shape if size > 1] or [1]
    rows = sizes[0] if len(sizes) > 1 else 1
    columns = math.prod(sizes) // rows
    if rows * columns > MAX_NUMBERS:
        raise UsageError(
            f"The output must have at most {MAX_NUMBERS} numbers; got {rows}x{columns}."
        )
    return rows, columns
