"""What morphology, blur and the k largest should give, in NumPy loops; see `jaxpool.testing.oracle` for the parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from jaxpool._geometry.window import make_window
from jaxpool.testing import _oracle
from jaxpool.testing._answer import Answer, Term, exact_values, rounded
from jaxpool.testing._oracle import Ties


def dilate(x: Any, kernel: Any, *args: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The largest sum of each window and the kernel, as in `jaxpool.dilate`; operand 1 is the kernel."""
    return _morphology("max", x, kernel, args, ties, **options)


def erode(x: Any, kernel: Any, *args: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The smallest difference of each window and the kernel, as in `jaxpool.erode`."""
    return _morphology("min", x, kernel, args, ties, **options)


def _morphology(
    kind: Literal["max", "min"],
    x: Any,
    kernel: Any,
    args: Any,
    ties: Ties,
    *,
    axes: Sequence[int] | None = None,
    **options: Any,
) -> Answer:
    x, kernel = np.asarray(x), np.asarray(kernel)
    rank = kernel.ndim - (kernel.ndim == x.ndim - 1) if axes is None else len(axes)
    window = make_window(x.shape, kernel.shape[:rank], *args, axes=axes, **options)
    channels = max(set(range(x.ndim)) - set(window.axes), default=0)
    best, sign = (max, 1) if kind == "max" else (min, -1)
    values, weights = exact_values(x), exact_values(kernel)
    y, terms = np.zeros(window.pooled(x.shape), object), []
    for target in np.ndindex(*y.shape):
        found = []
        for tap in np.ndindex(*window.window_shape):
            at = list(target)
            for dim, t in zip(window.dims, tap, strict=True):
                at[dim.axis] = target[dim.axis] * dim.stride - dim.low + t * dim.dilation
            if all(0 <= i < size for i, size in zip(at, x.shape, strict=True)):
                entry = tap if rank == kernel.ndim else (*tap, target[channels])
                found.append((tuple(at), entry, values[tuple(at)] + sign * weights[entry]))
        y[target], shares = _oracle._choose(best, ties)([value for *_, value in found])
        for (position, entry, _), share in zip(found, shares, strict=True):
            terms += [Term(target, 0, position, share), Term(target, 1, entry, sign * share)]
    inputs = ((x.shape, x.dtype), (kernel.shape, kernel.dtype))
    return Answer(rounded(y, x.dtype), inputs, tuple(term for term in terms if term.share))


def k_max_pool(x: Any, k: int, *, axis: int = -2) -> Answer:
    """The k largest of each lane in their order, as in `jaxpool.k_max_pool`."""
    x = np.asarray(x)
    values, axis, terms = exact_values(x), axis % x.ndim, []
    for lane in _oracle._lanes(x.shape, (axis,)):
        row = [_oracle._at(lane, (axis,), (i,)) for i in range(x.shape[axis])]
        nan = {at: values[at] != values[at] for at in row}
        order = sorted(row, key=lambda at: (not nan[at], 0 if nan[at] else -values[at]))
        for i, position in enumerate(sorted(order[:k])):
            terms.append(Term(_oracle._at(lane, (axis,), (i,)), 0, position, 1.0))
    y = np.zeros([k if i == axis else n for i, n in enumerate(x.shape)], x.dtype)
    for term in terms:
        y[term.output] = x[term.position]
    return Answer(y, ((x.shape, x.dtype),), tuple(terms))


def blur_pool(
    x: Any, window_shape: Any, strides: Any = None, padding: Any = "SAME", *, axes: Any = None
) -> Answer:
    """The binomial average of each window of the reflected x, as in `jaxpool.blur_pool`."""
    x = np.asarray(x)
    window = make_window(x.shape, window_shape, strides, padding, axes=axes)
    dtype = x.dtype if _oracle.is_floating(x.dtype) else np.dtype(np.float32)
    values, terms = exact_values(x), []
    y = np.zeros(window.pooled(x.shape))
    for target in np.ndindex(*y.shape):
        parts = []
        for tap in np.ndindex(*window.window_shape):
            at, share = list(target), 1.0
            for dim, t in zip(window.dims, tap, strict=True):
                place = target[dim.axis] * dim.stride - dim.low + t
                turn = max(1, 2 * dim.size - 2)
                at[dim.axis] = min(place % turn, turn - place % turn) if dim.size > 1 else 0
                share *= math.comb(dim.window - 1, t) / 2 ** (dim.window - 1)
            terms.append(Term(target, 0, tuple(at), share))
            parts.append(share * float(values[tuple(at)]))
        y[target] = _oracle.exact_sum(parts)
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms))
