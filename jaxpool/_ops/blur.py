"""Blur pools: averages with binomial weights, computed for one group of axes after another."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, scalar_like
from jaxpool._kernels.passes import REFLECTED, PadToRegion, Source, run_pass
from jaxpool._kernels.slices import add_terms, materialise
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.blur import blur_layout, copies_only_ends, pass_windows
from jaxpool._plan.problem import Platform, barrier_of, make_step
from jaxpool._plan.tuning import tuning_of


@dataclasses.dataclass(frozen=True)
class BlurPool(Op):
    """Average of each window, with weight `C(k - 1, i) / 2^(k - 1)` for element i of k along each axis. No residual."""

    window: Window
    linear_in_x = True

    def _pad_by_reflection(self, x: Array) -> Array:
        pad_widths = {dim.axis: (dim.low, max(0, dim.used_high)) for dim in self.window.dims}
        return jnp.pad(x, [pad_widths.get(axis, (0, 0)) for axis in range(x.ndim)], "reflect")

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        if copies_only_ends(problem_of(self.window, x, platform)):
            return cast(_run_passes(self.window, platform, False, x), x.dtype)
        wide_x = cast(x, accumulator_dtype(x.dtype))
        reflected_x = materialise(barrier_of(platform), self._pad_by_reflection, wide_x)
        y = _run_passes(unpad_window(self.window), platform, False, reflected_x)
        return cast(y, x.dtype)

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        wide_dy = cast(dy, accumulator_dtype(dy.dtype))
        run_passes = functools.partial(_run_passes, unpad_window(self.window), platform, True)
        if tuning_of(platform).stores_reflected_cotangent:
            run_passes = functools.partial(materialise, barrier_of(platform), run_passes)
        padded_dx = run_passes(wide_dy)
        x = slices.zeros_like_with_sizes(wide_dy, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(self._pad_by_reflection, x)(padded_dx)
        return (cast(dx, dy.dtype),)


def _run_passes(window: Window, platform: Platform, transposed: bool, x: Array) -> Array:
    """Blur x in the accumulator dtype; if `transposed`, return the cotangent of x, padding included, for one of y."""
    windows = pass_windows(window, platform)
    for pass_window in windows[::-1] if transposed else windows:
        pass_fn = functools.partial(_weighted_sums, pass_window, platform, transposed)
        is_last = pass_window is windows[0 if transposed else -1]
        x = pass_fn(x) if is_last else materialise(barrier_of(platform), pass_fn, x)
    return x


def _weighted_sums(window: Window, platform: Platform, transposed: bool, x: Array) -> Array:
    """Weighted sum of each window of x, or if `transposed`, the sum over the windows of each input element."""
    sum_dtype = accumulator_dtype(x.dtype)
    axis_weights = [binomial_weights(n, sum_dtype) for n in window.window_shape]
    weights = functools.reduce(np.multiply.outer, axis_weights).ravel()
    problem = problem_of(window, x, platform, window.unpooled_shape(x.shape))
    step = make_step(window.dims)

    def term(tap: int, parts: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        wide = cast(parts[0], sum_dtype)
        return pad_to_region(lax.mul(wide, scalar_like(wide, weights[tap])), fill=0)

    fill, phases = (0, step.transposed_phases) if transposed else (REFLECTED, step.phases)
    layout = blur_layout(problem, is_transposed=transposed)
    return run_pass(layout, step.axes, [Source([x], [fill], phases)], term, add_terms)


def unpad_window(window: Window) -> Window:
    """The window with padding 0, for an array that already includes the reflected border."""
    sizes = [dim.low + dim.size + max(0, dim.used_high) for dim in window.dims]
    pairs = zip(window.dims, sizes, strict=True)
    return Window(tuple(dataclasses.replace(dim, size=n, low=0, high=0) for dim, n in pairs))


def binomial_weights(count: int, dtype: DType) -> np.ndarray:
    """Binomial weights of `count` elements, at least the smallest normal number of `dtype`, because inf * 0 is NaN."""
    weights = [math.comb(count - 1, tap) / 2 ** (count - 1) for tap in range(count)]
    return np.maximum(weights, float(jnp.finfo(dtype).tiny))
