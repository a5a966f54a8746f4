"""Comparison of our reductions with lax: `python -m jaxpool run --check`.

`CheckedReplacer` copies the arrays of each reduction's first call; in a traced program, `jax.debug.callback` gets the
arrays. The comparison runs afterwards, because a callback must not run jax computations. Maxima and minima must be
equal. Sums, and cotangents of overlapping windows, may differ by the rounding of one addition for each element of a
window. Our sums of 8- and 16-bit floats are float32 sums rounded once, so lax gets float32 arrays too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._accelerate.bind import (
    GEOMETRY_PARAMETERS,
    KIND_OF_PRIMITIVE,
    LeftToLaxError,
    ReductionReplacer,
    ReportCallback,
    describe_reduction,
    reduction_kind,
    replacing_reductions,
)
from jaxpool._accelerate.report import LaxReduction
from jaxpool._kernels.dtypes import accumulator_dtype

_PRIMITIVE_OF_KIND = {kind: primitive for primitive, kind in KIND_OF_PRIMITIVE.items() if kind}


class _LaxOnlyReplacer(ReductionReplacer):
    """A replacer that leaves every reduction to lax."""

    def replace_reduction(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        raise LeftToLaxError("it is computed by lax to be compared with")


_lax_only_replacer, _our_replacer = _LaxOnlyReplacer(), ReductionReplacer()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison: a sentence for the user, and whether the arrays differ."""

    sentence: str
    differs: bool = False


class CheckedReplacer(ReductionReplacer):
    """A replacer that copies the array of each reduction's first call, and compares our result for it with lax's."""

    def __init__(self, report: ReportCallback) -> None:
        super().__init__(report)
        self._copied_calls: dict[LaxReduction, tuple[Any, ...]] = {}
        self._comparisons: dict[LaxReduction, Comparison] = {}

    def replace_reduction(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction, computed by our pools. Copies the operands of the first call."""
        y = super().replace_reduction(kind, aval, args, params)
        reduction = describe_reduction(kind, aval, params, None)
        if not all(isinstance(size, int) for size in aval.shape):
            self._comparisons[reduction] = Comparison("not compared, for its shape is symbolic")
        elif reduction not in self._copied_calls and reduction not in self._comparisons:
            primitive = lax.reduce_window_p if "jaxpr" in params else _PRIMITIVE_OF_KIND[kind]
            copy_call = functools.partial(self._copy_call, reduction, primitive, params)
            if any(isinstance(arg, jax.core.Tracer) for arg in args):
                jax.debug.callback(copy_call, *args)
            else:
                copy_call(*args)
        return y

    def _copy_call(self, reduction: LaxReduction, primitive: Any, params: Any, *args: Any) -> None:
        if any(isinstance(arg, Array) and not arg.is_fully_addressable for arg in args):
            # `np.array` cannot copy an array that spans processes, and lax reduces the whole array.
            sentence = "not compared, for its array lies on several processes"
            self._comparisons[reduction] = Comparison(sentence)
        elif reduction not in self._copied_calls and reduction not in self._comparisons:
            self._copied_calls[reduction] = (primitive, params, *map(np.array, args))

    def compare_copied_calls(self) -> None:
        """Compare our results with lax on the arrays copied since the last comparison."""
        jax.effects_barrier()
        while self._copied_calls:
            reduction, call = self._copied_calls.popitem()
            self._comparisons[reduction] = compare_with_lax(*call)

    @property
    def any_differs(self) -> bool:
        """Whether any reduction compared so far differs from lax."""
        return any(comparison.differs for comparison in self._comparisons.values())

    def get_comparison(self, reduction: LaxReduction) -> Comparison:
        """The comparison of a reduction, or a `Comparison` with the reason why there is none."""
        never_ran = Comparison("not compared, for it was traced and did not run")
        return self._comparisons.get(reduction, never_ran)


def compare_with_lax(primitive: Any, params: dict[str, Any], x: Any, *init: Any) -> Comparison:
    """Compare the value and cotangent of our reduction of x with lax."""
    x, init = jnp.asarray(x), tuple(map(jnp.asarray, init))
    num_taps = math.prod(params["window_dimensions"])
    is_float = jnp.issubdtype(x.dtype, jnp.floating)

    def reduce_window(x: Array) -> Any:
        y = primitive.bind(x, *init, **params)
        return y[0] if isinstance(y, list) else y

    def window_sum(x: Array, *init: Array) -> Any:
        y = lax.reduce_window_sum_p.bind(x, **{name: params[name] for name in GEOMETRY_PARAMETERS})
        return sum(init, y)

    wide_x, *wide_init = (array.astype(accumulator_dtype(x.dtype)) for array in (x, *init))
    if is_float and reduction_kind(primitive, params) == "sum":
        lax_y = _run_jitted(_lax_only_replacer, window_sum, wide_x, *wide_init)
        abs_sums = _run_jitted(_lax_only_replacer, window_sum, *map(jnp.abs, (wide_x, *wide_init)))
        # Our sum is rounded once more, before the initial value is added.
        tolerance = _rounding_tolerance(
            x.dtype, num_taps + len(init), abs_sums, sum(map(jnp.abs, wide_init), jnp.abs(lax_y))
        )
    else:
        lax_y, tolerance = _run_jitted(_lax_only_replacer, reduce_window, x), 0.0
    sentence = _difference_sentence(
        "value", _run_jitted(_our_replacer, reduce_window, x), lax_y.astype(x.dtype), tolerance
    )
    if sentence:
        return Comparison(sentence, differs=True)
    if primitive is lax.reduce_window_p or not is_float:
        return Comparison("equal")  # lax has no derivative of a general reduction
    # lax has another rule for the cotangent of a NaN or infinite maximum.
    is_compared = np.asarray(jnp.isfinite(lax_y)) | (primitive is lax.reduce_window_sum_p)
    if lax_y.size and not is_compared.any():
        return Comparison("equal in value; the cotangent was not compared, for NaN or infinity")
    # Cotangents are between 1 and 2, so that the sums of overlapping cotangents do not cancel.
    random_dy = np.where(is_compared, np.random.default_rng(0).uniform(1.0, 2.0, lax_y.shape), 0.0)
    dy = jnp.asarray(random_dy, x.dtype)
    lax_dx = _run_jitted_vjp(_lax_only_replacer, reduce_window, wide_x, dy.astype(wide_x.dtype))
    tolerance = _rounding_tolerance(x.dtype, num_taps, lax_dx, lax_dx)
    sentence = _difference_sentence(
        "cotangent",
        _run_jitted_vjp(_our_replacer, reduce_window, x, dy),
        lax_dx.astype(x.dtype),
        tolerance,
    )
    if sentence:
        return Comparison(sentence, differs=True)
    if is_compared.all():
        return Comparison("equal")
    return Comparison(
        f"equal; cotangents were compared of {is_compared.sum()} of {is_compared.size} windows, "
        "for NaN or infinity in the others"
    )


def _run_jitted(replacer: ReductionReplacer, reduction: Callable[..., Any], *args: Array) -> Any:
    with replacing_reductions(replacer):
        return jax.jit(reduction)(*args)


def _run_jitted_vjp(
    replacer: ReductionReplacer, reduction: Callable[[Array], Any], x: Array, dy: Array
) -> Any:
    """The cotangent of x. The `vjp` is inside the context: lax's derivative may bind another windowed reduction."""
    with replacing_reductions(replacer):
        return jax.jit(lambda x, dy: jax.vjp(reduction, x)[1](dy)[0])(x, dy)


def _rounding_tolerance(
    dtype: Any, num_additions: int, sums_of_magnitudes: Any, result: Any
) -> Any:
    """The allowed difference of two sums; `sums_of_magnitudes` holds the sums of the absolute values of the terms.

    It covers the rounding of the additions, and of the `result` to `dtype` if the additions use a wider dtype.
    """
    sums_of_magnitudes, result = (
        np.abs(np.asarray(array, np.float64)) for array in (sums_of_magnitudes, result)
    )
    sum_info, info = jnp.finfo(accumulator_dtype(dtype)), jnp.finfo(dtype)
    tolerance = float(sum_info.eps) * num_additions * sums_of_magnitudes
    if info.bits < sum_info.bits:
        tolerance = tolerance + float(info.eps) * result + float(info.smallest_subnormal)
    return tolerance


def _difference_sentence(quantity_name: str, our_array: Any, lax_array: Any, tolerance: Any) -> str:
    """A sentence about elements that differ by `tolerance` or more, or "" if there are none. NaN equals NaN."""
    got, want = np.asarray(our_array), np.asarray(lax_array)
    is_equal = (got == want) | ((got != got) & (want != want))
    with np.errstate(invalid="ignore"):
        gaps = np.abs(got.astype(np.float64) - want.astype(np.float64))
    is_wrong = ~is_equal & ~(gaps < tolerance)
    if not is_wrong.any():
        return ""
    return f"{quantity_name} differs at {is_wrong.sum()} of {is_wrong.size} elements, by {gaps[is_wrong].max():.3g}"
