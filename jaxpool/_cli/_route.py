"""The selected inputs of each output of a call on a small array, and the inputs that receive its cotangent.

`explain` creates a `CotangentRoute`; `_route_text`, `_route_picture` and `_page` show this route.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxpool._cli import UsageError
from jaxpool._cli._function_call import FunctionCall

Position = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LabelledArray:
    """A named array, with a mask of the inputs that are selected. `is_gradient` is True for the cotangent of inputs."""

    name: str
    values: np.ndarray
    selected_mask: np.ndarray | None = None
    is_gradient: bool = False

    @property
    def title(self) -> str:
        """The name and the size."""
        return f"{self.name} ({self.values.shape[0]}x{self.values.shape[1]})"


@dataclasses.dataclass(frozen=True)
class CotangentRoute:
    """A call on x, with the inputs and the derivative of every output.

    `cotangent_shares[i, j]` holds the cotangent of x for a cotangent of 1 at output (i, j). `input_masks[i, j]` is True
    for the inputs in the window of the output, or, without windows, for the inputs with a share. `num_tied[i, j]` is
    the number of elements between which the tie rule decides at output (i, j); of pixels, if points between them tie.
    """

    call: FunctionCall
    x: np.ndarray
    y: np.ndarray
    dy: np.ndarray
    dx: np.ndarray
    cotangent_shares: np.ndarray
    input_masks: np.ndarray
    num_tied: np.ndarray

    def cotangent_receivers_of(self, output: Position) -> list[tuple[Position, float]]:
        """The inputs that receive the cotangent of one output, and their shares of it."""
        shares = self.cotangent_shares[output]
        return [((r, c), float(shares[r, c])) for r, c in np.argwhere(shares != 0).tolist()]

    def labelled_arrays(self) -> list[tuple[LabelledArray, LabelledArray]]:
        """The grids to show: values, then cotangents, with inputs on the left and outputs on the right."""
        selected_mask = None
        if self.call.returns_mask:
            selected_mask = self.y.reshape(self.x.shape) != 0
        elif self.call.selects_elements:
            selected_mask = np.any(self.cotangent_shares != 0, axis=(0, 1))
        values = (
            LabelledArray("x: input", self.x, selected_mask),
            LabelledArray("y: output", self.y),
        )
        if self.call.returns_mask:
            return [values]
        cotangents = (
            LabelledArray("dx: what x gets", self.dx, is_gradient=True),
            LabelledArray("dy: cotangent of y", self.dy),
        )
        return [values, cotangents]


def route_cotangents(call: FunctionCall, dy: np.ndarray | None = None) -> CotangentRoute:
    """The route of each output's cotangent, as computed by the oracle of `jaxpool.testing`, which compiles nothing.

    `dy` is the cotangent of the output, 1 everywhere for None.
    """
    x = call.array
    try:
        answer = call.record.run(call.arguments, call.record.meaning)
    except ArithmeticError:
        name = call.record.name
        raise UsageError(f"{name} is explained for finite numbers and results only.") from None
    if not answer.y.size:
        raise UsageError(f"The output of {call.record.name} must have an element.")
    y = answer.y.reshape(_shape_of_two_axes(answer.y.shape))
    try:
        dy = np.broadcast_to(np.float32(1) if dy is None else dy, y.shape)
    except ValueError:
        sizes = "x".join(map(str, y.shape))
        raise UsageError(f"`--cotangent` must be a number or {sizes} numbers.") from None
    shares = np.zeros((y.size, x.size))
    for term in answer.terms:
        if term.operand == 0:
            output = np.ravel_multi_index(term.output, answer.y.shape)
            shares[output, np.ravel_multi_index(term.position, answer.inputs[0][0])] += term.share
    dx = np.where(shares == 0, 0, shares * dy.reshape(-1, 1)).sum(0).reshape(x.shape)
    shares = shares.reshape(*y.shape, *x.shape).astype(np.float32)
    input_masks = shares != 0
    if call.window is not None:
        row_mask, column_mask = (
            (dim.tap_positions()[..., None] == np.arange(dim.size)).any(1)
            for dim in call.window.dims
        )
        input_masks = row_mask[:, None, :, None] & column_mask[None, :, None, :]
    num_tied = _count_tied_elements(call, answer.y.shape).reshape(y.shape)
    return CotangentRoute(call, x, y, dy, dx.astype(np.float32), shares, input_masks, num_tied)


def _count_tied_elements(call: FunctionCall, output_shape: Position) -> np.ndarray:
    """The number of elements whose shares of an output depend on the tie rule. For a mask: 1 if the output does."""
    answers = [
        call.record.run(call.arguments | {"ties": ties}, call.record.meaning)
        for ties in call.record.oracle_ties
    ]
    num_tied = np.zeros(output_shape, int)
    if call.returns_mask:
        return num_tied + np.any([answer.y != answers[0].y for answer in answers], axis=0)
    if call.record.takes("k"):
        return _count_tied_of_k_max(answers[0].y, **call.arguments)
    shares_by_element: dict[Any, list[float]] = {}
    for n, answer in enumerate(answers):
        for term in answer.terms:
            # The kernel of `dilate` gets the cotangent that x gets.
            if term.operand == 0 or not call.record.takes("kernel"):
                element = term.output, term.operand, term.position
                shares = shares_by_element.setdefault(element, [0.0] * len(answers))
                shares[n] += term.share
    for (output, *_), shares in shares_by_element.items():
        num_tied[output] += len(set(map(str, shares))) > 1  # as text, NaN equals NaN
    return num_tied


def _count_tied_of_k_max(y: np.ndarray, x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """The number of elements that tie with each output y of `k_max_pool`, if not all of them are outputs."""
    x_lanes, y_lanes = (np.moveaxis(each, axis, -1)[..., None, :] for each in (x, y))
    outputs = np.swapaxes(y_lanes, -1, -2)
    num_in_x, num_in_y = (
        ((lane == outputs) | (lane != lane) & (outputs != outputs)).sum(-1)
        for lane in (x_lanes, y_lanes)
    )
    return np.moveaxis(np.where(num_in_x > num_in_y, num_in_x, 0), -1, axis)


def _shape_of_two_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Two axes for an output of any shape: the first axis longer than 1, and all axes after it."""
    if len(shape) == 2:
        return shape
    sizes = [size for size in shape if size > 1]
    return (sizes[0], math.prod(sizes[1:])) if len(sizes) > 1 else (1, math.prod(sizes))
