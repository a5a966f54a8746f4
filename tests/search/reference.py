"""The loops of `jaxpool.testing` for many arrays at once, in NumPy: which elements each output sees, and their shares.

It says nothing of its own: `test_search.py` holds it to the loops, one element at a time. A `Table` lists for each
output the flat positions of the inputs that it looks at, in the order that decides ties, -1 where there is none.
`choose`, `add` and the rules of soft pools give values and shares; `Shares` sends cotangents and tangents through them.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxpool._geometry.window import Window
from jaxpool.testing import pools
from jaxpool.testing.oracle.adaptive import adaptive_windows


@dataclasses.dataclass(frozen=True)
class Table:
    """Members (outputs, k) among the elements of the inputs laid end to end, and the shape of the result."""

    members: np.ndarray
    shape: tuple[int, ...]

    @property
    def real(self) -> np.ndarray:
        return self.members >= 0

    def of(self, x: np.ndarray) -> np.ndarray:
        """The members' values of arrays (cases, elements): (cases, outputs, k), anything where there is none."""
        return x[:, np.where(self.real, self.members, 0)]


def grid(shape: tuple[int, ...], axes: tuple[int, ...], along: list[np.ndarray]) -> Table:
    """Windows that are products of those `along` each of `axes`: (outputs, taps) positions, -1 where none."""
    flat = np.arange(math.prod(shape)).reshape(shape)
    real = np.ones(shape, bool)
    for axis, at in zip(axes, along, strict=True):  # the taps of each axis go behind, in order
        flat, real = (np.take(each, np.maximum(at, 0), axis) for each in (flat, real))
        there = (at >= 0).reshape((1,) * axis + at.shape + (1,) * (real.ndim - axis - 2))
        flat, real = (np.moveaxis(each, axis + 1, -1) for each in (flat, real & there))
    out = flat.shape[: len(shape)]
    members = np.where(real, flat, -1).reshape(math.prod(out), -1)
    return Table(members, out)


def windows(shape: tuple[int, ...], window: Window) -> Table:
    """The windows of a pool."""
    along = [np.where(dim.sources() < dim.size, dim.sources(), -1) for dim in window.dims]
    return grid(shape, window.axes, along)


def adaptive(shape: tuple[int, ...], axes: tuple[int, ...], outputs: tuple[int, ...]) -> Table:
    """The windows that the loops give."""
    along = []
    for axis, n in zip(axes, outputs, strict=True):
        own = adaptive_windows(shape[axis], n)
        longest = max(map(len, own))
        along.append(np.array([[*at, *[-1] * (longest - len(at))] for at in own]))
    return grid(shape, axes, along)


def running(shape: tuple[int, ...], axis: int, reverse: bool) -> Table:
    """All elements up to each one, or from it on."""
    at = np.arange(shape[axis])
    seen = at >= at[:, None] if reverse else at <= at[:, None]
    return grid(shape, (axis,), [np.where(seen, at, -1)])


def together(shapes: list[tuple[int, ...]]) -> Table:
    """The elements of several arrays, broadcast together, that share a position."""
    out, offset, members = np.broadcast_shapes(*shapes), 0, []
    for shape in shapes:
        flat = offset + np.arange(math.prod(shape)).reshape(shape)
        members.append(np.broadcast_to(flat, out).ravel())
        offset += math.prod(shape)
    return Table(np.stack(members, -1), out)


@dataclasses.dataclass(frozen=True)
class Shares:
    """Values (cases, outputs), the share (cases, outputs, k) of each member in the derivative."""

    table: Table
    y: np.ndarray
    shares: np.ndarray
    size: np.ndarray | float = 0.0  # (cases, outputs): of the terms of each value
    parts: np.ndarray | None = None  # as shares, the terms that those are sums of, if larger

    @property
    def absolute(self) -> Shares:
        """The same with the sizes of all shares: what the rounding of a derivative is measured by."""
        sizes = np.abs(self.shares) if self.parts is None else self.parts
        return dataclasses.replace(self, shares=sizes)

    def cotangents(self, dy: np.ndarray, elements: int) -> np.ndarray:
        """Of cotangents (cases, outputs) those of the inputs (cases, elements)."""
        cases = len(dy)
        with np.errstate(invalid="ignore"):
            sent = np.where(self.shares != 0, self.shares * dy[..., None], 0)
        to = np.where(self.table.real, self.table.members, elements) + np.arange(cases)[
            :, None, None
        ] * (elements + 1)
        found = np.bincount(to.ravel(), sent.ravel(), cases * (elements + 1))
        return found.reshape(cases, elements + 1)[:, :elements]

    def tangent(self, x_dot: np.ndarray) -> np.ndarray:
        """Of tangents (cases, elements) those of the outputs."""
        with np.errstate(invalid="ignore"):
            return np.where(self.shares != 0, self.shares * self.table.of(x_dot), 0).sum(-1)


def choose(table: Table, x: np.ndarray, kind: str, ties: str, nan: str = "wins") -> Shares:
    """The extreme of each window, NaN above all or below all numbers; shares of one element, or of all that tie."""
    real = np.broadcast_to(table.real, (len(x), *table.members.shape))
    return Shares(table, *chosen(table.of(x), real, kind, ties, nan))


def chosen(
    values: np.ndarray, real: np.ndarray, kind: str, ties: str, nan: str = "wins"
) -> tuple[np.ndarray, np.ndarray]:
    """The extreme along the last axis of what is real, and the shares."""
    missing = np.isnan(values) & real
    numbers = real & ~missing
    by_nan = missing.any(-1) if nan == "wins" else ~numbers.any(-1)
    worst = -np.inf if kind == "max" else np.inf
    best = getattr(np, kind)(np.where(numbers, values, worst), -1)
    tied = np.where(by_nan[..., None], missing, numbers & (values == best[..., None]))
    if ties == "split":
        shares = tied / np.maximum(tied.sum(-1, keepdims=True), 1)
    else:
        k = values.shape[-1]
        first = tied.argmax(-1) if ties == "first" else k - 1 - tied[..., ::-1].argmax(-1)
        shares = (np.arange(k) == first[..., None]) & tied
    return np.where(by_nan, np.nan, best), shares.astype(np.float64)


def add(table: Table, x: np.ndarray, divisor: np.ndarray | float = 1.0) -> Shares:
    """The sum of each window over its divisor (outputs)."""
    share = np.where(table.real, 1 / np.reshape(divisor, (-1, 1)), 0)
    values = np.where(table.real, table.of(x), 0)
    with np.errstate(invalid="ignore", over="ignore"):
        y = values.sum(-1) / np.reshape(divisor, (-1,))
        size = (np.abs(values) * np.abs(share)).sum(-1)
    return Shares(table, y, np.broadcast_to(share, values.shape), np.nan_to_num(size, posinf=0.0))


def counts(table: Table, window: Window, what: str) -> np.ndarray:
    """How many elements each window has: real ones, or those of the padding counted."""
    if what == "real":
        return table.real.sum(-1)
    count = np.ones([1] * len(table.shape))
    for dim in window.dims:
        own = np.array([dim.counted(o) for o in range(dim.out)], np.float64)
        count = count * own.reshape([-1 if i == dim.axis else 1 for i in range(len(table.shape))])
    return np.broadcast_to(count, table.shape).ravel()


def soft(table: Table, x: np.ndarray, name: str, p: float) -> Shares:
    """Norms, generalised means and pools by exponential weights: value, and the partial derivatives."""
    values, real = table.of(x), table.real
    if name == "lp_pool":
        sizes = np.where(real, np.abs(values), 0)
        largest = sizes.max(-1, keepdims=True)
        parts = sizes / np.where(largest == 0, 1, largest)
        if p == math.inf:
            first = np.arange(values.shape[-1]) == sizes.argmax(-1)[..., None]
            return Shares(table, largest[..., 0], first * np.sign(values), largest[..., 0])
        root = (parts**p).sum(-1, keepdims=True) ** (1 / p)
        live = (sizes > 0) & (root > 0)
        slope = np.where(live, parts / np.where(live, root, 1), 1) ** (p - 1)
        y = (largest * root)[..., 0]
        return Shares(table, y, np.where(live, np.sign(values) * slope, 0), y)
    if pools()[name].takes("eps"):
        eps, n = 1e-6, real.sum(-1, keepdims=True)
        powers = np.where(real, np.maximum(values, eps) ** p, 0)
        y = (powers.sum(-1, keepdims=True) / n) ** (1 / p)
        slope = powers / np.maximum(values, eps) / n * y ** (1 - p)
        return Shares(table, y[..., 0], np.where(real & (values > eps), slope, 0), y[..., 0])
    heights = np.where(real, values / p, -np.inf)
    top = heights.max(-1, keepdims=True)
    parts = np.exp(heights - top)
    total = parts.sum(-1, keepdims=True)
    weights = parts / total
    if name == "logsumexp_pool":
        y = p * (top + np.log(total))[..., 0]
        return Shares(table, y, weights, np.abs(p * top[..., 0]) + p * (1 + np.log(total)[..., 0]))
    y = np.where(real, weights * values, 0).sum(-1, keepdims=True)
    slope = weights * (1 + (np.where(real, values, 0) - y) / p)
    size = np.where(real, weights * np.abs(values), 0).sum(-1)
    parts = weights * (1 + (np.abs(np.where(real, values, 0)) + np.abs(y)) / p)
    return Shares(table, y[..., 0], np.where(real, slope, 0), size, parts)
