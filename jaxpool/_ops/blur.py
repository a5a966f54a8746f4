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
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast
from jaxpool._kernels.slices import PadToRegion, Source, add_terms, materialise, run_pass
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.blur import blur_groups, blur_layout
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

    def _run_passes(self, platform: Platform, transposed: bool, x: Array) -> Array:
        """Blur x, which includes its reflected border; if `transposed`, map an output cotangent back to such an x."""
        groups = blur_groups(unpad_window(self.window), platform)
        for window in groups[::-1] if transposed else groups:
            pass_fn = functools.partial(_weighted_sums, window, platform, transposed)
            is_last = window is groups[0 if transposed else -1]
            x = pass_fn(x) if is_last else materialise(barrier_of(platform), pass_fn, x)
        return x

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        wide_x = cast(x, accumulator_dtype(x.dtype))
        reflected_x = materialise(barrier_of(platform), self._pad_by_reflection, wide_x)
        return cast(self._run_passes(platform, False, reflected_x), x.dtype)

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        wide_dy = cast(dy, accumulator_dtype(dy.dtype))
        run_passes = functools.partial(self._run_passes, platform, True)
        if tuning_of(platform).stores_reflected_cotangent:
            run_passes = functools.partial(materialise, barrier_of(platform), run_passes)
        padded_dx = run_passes(wide_dy)
        x = slices.zeros_like_with_sizes(wide_dy, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(self._pad_by_reflection, x)(padded_dx)
        return (cast(dx, dy.dtype),)


def _weighted_sums(window: Window, platform: Platform, transposed: bool, x: Array) -> Array:
    """Weighted sum of each window of x, or if `transposed`, the sum over the windows of each input element."""
    axis_weights = [binomial_weights(n, x.dtype) for n in window.window_shape]
    weights = functools.reduce(np.multiply.outer, axis_weights).ravel()
    problem = problem_of(window, x, platform, window.unpooled_shape(x.shape))
    step = make_step(window.dims)

    def term(tap: int, parts: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        weight = lax.full_like(parts[0], weights[tap])
        return pad_to_region(parts[0] * weight, fill=0)

    source = Source([x], [0], step.transposed_phases if transposed else step.phases)
    layout = blur_layout(problem, is_transposed=transposed)
    return run_pass(layout, step.axes, [source], term, add_terms)


def unpad_window(window: Window) -> Window:
    """The window with padding 0, for an array that already includes the reflected border."""
    sizes = [dim.low + dim.size + max(0, dim.used_high) for dim in window.dims]
    pairs = zip(window.dims, sizes, strict=True)
    return Window(tuple(dataclasses.replace(dim, size=n, low=0, high=0) for dim, n in pairs))


def binomial_weights(count: int, dtype: DType) -> np.ndarray:
    """Binomial weights of `count` elements, at least the smallest normal number of `dtype`, because inf * 0 is NaN."""
    weights = [math.comb(count - 1, tap) / 2 ** (count - 1) for tap in range(count)]
    return np.maximum(weights, float(jnp.finfo(dtype).tiny))
