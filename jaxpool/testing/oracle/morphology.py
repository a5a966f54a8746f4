"""Oracle of `dilate` (maximum of window plus kernel) and `erode` (minimum of window minus kernel)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Term, as_exact_numbers, is_floating, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import WindowPositions, Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Kind, Ties


def _morphology_in_jnp(kind: Kind, x: Any, kernel: Any, windows: Windows) -> Any:
    kernel = jnp.asarray(kernel)
    values, tap_exists = jnp_windows.gather(x, windows)
    numbers = jnp_windows.flat_positions(windows.axes, windows.window_shape, x.ndim)
    inside = _taps_inside_input(windows)
    tap_numbers = jnp_windows.gather_windows(numbers, windows.axes, inside)[0]
    # (..., taps, channels or 1)
    weights = kernel.reshape(windows.taps_per_window, -1)[tap_numbers]
    if len(windows.axes) < kernel.ndim:
        channel_axis = max(set(range(x.ndim)) - set(windows.axes))
        weights = jnp.moveaxis(jnp.squeeze(weights, channel_axis), -1, channel_axis)
    else:
        weights = weights[..., 0]
    if kind == "max":
        return jnp_windows.max_over_taps(values + weights, tap_exists)
    return jnp_windows.min_over_taps(values - weights, tap_exists)


def _taps_inside_input(windows: Windows) -> WindowPositions:
    """The indices within each window, along each axis, of positions that are inside the input."""
    return [
        [[t for t, position in enumerate(taps) if 0 <= position < size] for taps in axis_windows]
        for size, axis_windows in zip(windows.input_shape, windows.tap_positions, strict=True)
    ]


def _dilate_or_erode(kind: Kind, x: Any, kernel: Any, windows: Windows, ties: Ties) -> Answer:
    """The largest sum, or the smallest difference, of each window and the kernel. The kernel is operand 1."""
    x, kernel = np.asarray(x), np.asarray(kernel)
    channel_axis = max(set(range(x.ndim)) - set(windows.axes), default=0)
    reducer, sign = parts.extremum_reducer(parts.BEST_OF[kind], ties), 1 if kind == "max" else -1
    values, weights = as_exact_numbers(x), as_exact_numbers(kernel)
    y, terms = np.zeros(windows.output_shape_of(x.shape), object), []
    for target in np.ndindex(*y.shape):
        axis_taps = [
            taps[target[axis]]
            for axis, taps in zip(windows.axes, windows.tap_positions, strict=True)
        ]
        candidates = []
        for tap in np.ndindex(*windows.window_shape):
            pooled_position = tuple(taps[t] for taps, t in zip(axis_taps, tap, strict=True))
            x_position = parts.merge_positions(target, windows.axes, pooled_position)
            if all(0 <= i < size for i, size in zip(x_position, x.shape, strict=True)):
                entry = tap if len(tap) == kernel.ndim else (*tap, target[channel_axis])
                value = values[x_position] + sign * weights[entry]
                if not is_floating(x.dtype) and x.dtype.itemsize >= 4:
                    # Narrower integers are added in 32 bits; only the largest sum wraps around.
                    value = round_to_dtype(value, x.dtype).item()
                candidates.append((x_position, entry, value))
        y[target], shares = reducer([value for *_, value in candidates])
        for (position, entry, _), share in zip(candidates, shares, strict=True):
            terms += [Term(target, 0, position, share), Term(target, 1, entry, sign * share)]
    inputs = ((x.shape, x.dtype), (kernel.shape, kernel.dtype))
    return Answer(round_to_dtype(y, x.dtype), inputs, tuple(term for term in terms if term.share))


# An infinite element plus an infinite kernel entry may be NaN, so the tests use finite kernels.
for kind, name in zip(parts.KINDS, ("dilate", "erode"), strict=True):
    record(name, twin=partial(_morphology_in_jnp, kind), operands=("x", "kernel"))(
        partial(_dilate_or_erode, kind)
    )
