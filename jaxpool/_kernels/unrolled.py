"""The functions of `sums.py` over the taps of a window as unrolled loops, for short windows on GPUs.

XLA for GPU fuses an unrolled loop to one kernel, with one load per tap; a loop would wait for the host at every tap.
All functions read at clamped positions. They have no derivative: JAX differentiates the portable loops.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import window_access
from jaxpool._geometry.window import Window
from jaxpool._kernels.clamped import T, run_clamped_pass
from jaxpool._kernels.passes import PadToRegion, Source
from jaxpool._kernels.slices import add_terms


def _run_pass(
    window: Window,
    arrays: Sequence[Array],
    term: Callable[..., T],
    join: Callable[[Sequence[T]], T],
) -> T:
    """`join` of the terms of all elements of each window; `term(elements, pad_to_region)`."""
    phases = [(window_access(dim),) for dim in window.dims]
    source = Source(arrays, [0] * len(arrays), phases)
    return run_clamped_pass(window.axes, [source], lambda tap, *args: term(*args), join)


def max_per_window(x: Array, window: Window) -> Array:
    """`sums.max_per_window`."""

    def term(elements: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        return pad_to_region(elements[0], fill=-np.inf)

    return _run_pass(window, [x], term, functools.partial(functools.reduce, lax.max))


def sum_over_taps(
    window: Window,
    terms_of_elements: Callable[..., tuple[Array, ...]],
    element_arrays: Sequence[Array],
    *mask: Array,
) -> tuple[Array, ...]:
    """`sums.sum_over_taps`."""

    def terms(elements: Sequence[Array], pad_to_region: PadToRegion) -> tuple[Array, ...]:
        terms = terms_of_elements(*elements[: len(element_arrays)])
        for is_included in elements[len(element_arrays) :]:
            terms = tuple(jnp.where(is_included, term, 0) for term in terms)
        return tuple(pad_to_region(term, fill=0) for term in terms)

    def add(terms: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
        return tuple(map(add_terms, zip(*terms, strict=True)))

    return _run_pass(window, [*element_arrays, *mask], terms, add)


def sum_over_taps_transpose(
    window: Window,
    x: Array,
    slope_of_term: Callable[..., Array],
    window_arrays: Sequence[Array],
    dy: Array,
) -> Array:
    """`sums.sum_over_taps_transpose`: each element reads the arrays of the windows that cover it."""

    def term(tap: int | Array, views: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        dy, *arrays = views
        return pad_to_region(slope_of_term(x, *arrays) * dy, fill=0)

    # XLA would gather a smaller array in a kernel of its own.
    arrays = [dy, *[jnp.broadcast_to(array, dy.shape) for array in window_arrays]]
    phases = [window_access(dim).transposed() for dim in window.dims]
    source = Source(arrays, [0] * len(arrays), phases)
    return run_clamped_pass(window.axes, [source], term, add_terms)
