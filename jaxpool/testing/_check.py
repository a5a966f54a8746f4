"""`assert_pool_matches` compares a pool with the oracle: shape, dtype, value, and cotangents from `jax.vjp`.

Selected elements must be exact, and sums within a bound on their rounding error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool.testing._answer import Answer, as_exact_numbers, is_floating
from jaxpool.testing._case import Call, PoolCase
from jaxpool.testing._record import call_by_argument_names, pools


def assert_pool_matches(
    fn: Callable[..., Any], case: PoolCase | Call, *, jit: bool = True, rtol: float = 0.0
) -> None:
    """Asserts that the values and the gradient of `fn` match the oracle.

    Selected values (max, min) must be equal. Sums may differ by the rounding error of an accumulation in float32,
    or in float64 for float64. NaN and infinities must be at the same positions.

    Args:
        fn: The pool to test, called like the public function: `fn(x, window_shape=..., strides=..., padding=...,
            ...)`. Arguments of a `PoolCase` at their default are omitted, so `fn` may lack them.
        case: Drawn from `pool_cases` or `calls`, or constructed directly.
        jit: Whether to compile value and gradient in one program. `PoolCase`s with the same arguments share it.
        rtol: Additional relative error, for pools that accumulate in lower precision.

    Raises:
        AssertionError: A result differs. The message names the result and shows both arrays.
        ValueError: `dy` of the case does not have the shape and dtype of the output.
        TypeError: `case` is neither a PoolCase nor a Call.

    Example:
        >>> import numpy as np
        >>> import jaxpool
        >>> from jaxpool.testing import Call, PoolCase, assert_pool_matches, pools
        >>> x, dy = np.arange(8, dtype=np.float32)[:, None], np.ones((4, 1), np.float32)
        >>> case = PoolCase("max", x, dy, window_shape=(2,), strides=(2,), padding="VALID")
        >>> assert_pool_matches(jaxpool.max_pool, case)
        >>> assert_pool_matches(jaxpool.min_pool, case)
        Traceback (most recent call last):
        ...
        AssertionError: value of ...
        >>> assert_pool_matches(jaxpool.cummax, Call(pools()["cummax"], {"x": x, "axis": 0}))
    """
    if not isinstance(case, (PoolCase, Call)):
        with name_function_in_errors("testing.assert_pool_matches"):
            hint = "Draw one from pool_cases or calls, or write one out."
            raise ArgumentError("case", "a PoolCase or a Call", case, hint, TypeError)
    call = case.call() if isinstance(case, PoolCase) else case
    answer, pool, operands = call.answer(), call.pool, call.operands()
    _check_cotangent_type(call.dy, answer.y)
    if jit and isinstance(case, PoolCase):
        value_and_vjp = _jitted_value_and_vjp(fn, case.kind, tuple(sorted(case.kwargs().items())))
    else:
        value_and_vjp = _value_and_vjp(fn, call)
        value_and_vjp = jax.jit(value_and_vjp) if jit else value_and_vjp
    y, indices, dxs = value_and_vjp(operands, call.dy)
    num_terms = answer.max_terms_per_sum()
    if isinstance(case, PoolCase):
        num_terms = max(num_terms, case.window().taps_per_window)
    weight_error = pool.looseness(answer.y.dtype) if is_floating(answer.y.dtype) else 0.0

    def error_bound(want: np.ndarray, magnitudes: np.ndarray, *sent: np.ndarray) -> np.ndarray:
        """The bound for sums; rounded weights add an error relative to the largest of the arrays `sent`."""
        bound = rounding_error_bound(want, magnitudes, num_terms, rtol + weight_error)
        return bound + weight_error * max((_largest(array) for array in sent), default=0.0)

    compare_with_answer(
        call, answer, (y, indices, dxs, None), error_bound=error_bound, what=repr(case)
    )


def compare_with_answer(
    call: Call,
    answer: Answer,
    results: tuple[Any, Any, Any, Any],
    *,
    error_bound: Callable[..., np.ndarray],
    what: str,
    dxs_dot: Any = (),
    value_bound: Any = 0.0,
) -> None:
    """Assert that value, indices, cotangents and tangent equal those of the oracle; None are not compared.

    `error_bound(want, magnitudes, *sent)` bounds the error of sums of terms with these magnitudes, of arrays `sent`.
    Values that are no sums may differ by `value_bound`.
    """
    y, indices, dxs, y_dot = results
    if call.pool.rounds(call.given) and is_floating(answer.y.dtype):
        magnitudes = answer.size
        if magnitudes is None:
            operands = [np.asarray(x) for x in call.operands()]
            magnitudes = answer.exact_tangent(*operands, absolute=True)
        value_bound = error_bound(answer.y, magnitudes)
    assert_close(y, answer.y, value_bound, f"value of {what}")
    if indices is not None and answer.indices is not None:
        assert_close(indices, answer.indices, 0.0, f"indices of {what}")
    if dxs is not None and call.dy is not None:
        magnitudes_of_dxs = answer.exact_cotangents(call.dy, absolute=True)
        expected = answer.cotangents(call.dy)
        for dx, want, magnitudes in zip(dxs, expected, magnitudes_of_dxs, strict=False):
            assert_close(dx, want, error_bound(want, magnitudes, call.dy), f"cotangent of {what}")
    if y_dot is not None:
        want, magnitudes = answer.tangent(*dxs_dot), answer.exact_tangent(*dxs_dot, absolute=True)
        assert_close(y_dot, want, error_bound(want, magnitudes, *dxs_dot), f"tangent of {what}")


def _largest(array: Any) -> float:
    return float(np.abs(np.asarray(array).astype(np.float64)).max(initial=0.0))


def _check_cotangent_type(dy: Any, y: np.ndarray) -> None:
    """Raise if the cotangent does not fit the output of the case."""
    if dy is None:
        return
    expected_type = _type_string(y)
    with name_function_in_errors("testing.assert_pool_matches"):
        if not is_floating(y.dtype):
            hint = "Only floats have a gradient."
            raise ArgumentError("case.dy", f"None where the output is {expected_type}", dy, hint)
        is_array = hasattr(dy, "shape") and hasattr(dy, "dtype")
        if not is_array or (dy.shape, dy.dtype) != (y.shape, y.dtype):
            got = f"case.dy={_type_string(dy)}" if is_array else ""
            rule = f"an array of the shape and dtype of the output, {expected_type}"
            hint = "With dy=None the value alone is compared."
            raise ArgumentError("case.dy", rule, dy, hint, shown_value=got)


def _type_string(array: Any) -> str:
    """The type of an array in jax notation: float32[8,40,40,128]."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def assert_close(got: Any, want: np.ndarray, bound: Any, what: str) -> None:
    """Asserts that `got` equals `want` within `bound`, with the same shape and dtype; NaN equals NaN."""
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{what}: got {_type_string(got)}, want {_type_string(want)}")
    actual, desired = (as_exact_numbers(array) for array in (got, want))
    if not is_floating(want.dtype):
        is_wrong = np.asarray(actual != desired)
    else:
        with np.errstate(all="ignore"):
            within_bound = np.abs(actual - desired) <= bound
        is_wrong = ~(within_bound | (actual == desired) | (np.isnan(actual) & np.isnan(desired)))
    if is_wrong.any():
        position = tuple(int(index) for index in np.argwhere(is_wrong)[0])
        detail = f"{int(is_wrong.sum())} of {is_wrong.size} differ, {got[position]} for {want[position]} at {position}"
        raise AssertionError(f"{what}: {detail}\ngot\n{got}\nwant\n{want}")


def rounding_error_bound(
    expected: np.ndarray, sum_of_magnitudes: np.ndarray, num_terms: int, rtol: float
) -> np.ndarray:
    """Bound on the error of a sum of `num_terms` terms with the given sum of absolute values, rounded once."""
    info = jnp.finfo(expected.dtype)
    sum_info = jnp.finfo(np.float64 if expected.dtype == np.float64 else np.float32)
    min_value = info.smallest_normal if info.bits >= 32 else info.smallest_subnormal
    with np.errstate(all="ignore"):
        error = (float(info.eps) + rtol) * np.abs(expected.astype(np.float64))
        return np.nan_to_num(
            error + 2 * num_terms * float(sum_info.eps) * sum_of_magnitudes + float(min_value)
        )


def _value_and_vjp(fn: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """A function that returns the value, the indices (or None) and the cotangent of each operand for `dy`."""

    def value_and_indices(*operands: Any) -> tuple[Any, Any]:
        arguments = call.of(operands)
        if "xs" in arguments:
            result = call_by_argument_names(fn, arguments)
        else:  # a function under test may have another name for its first argument
            first, *others = arguments.items()
            result = fn(first[1], **dict(others))
        return result if isinstance(result, tuple) else (result, None)

    def value_indices_and_cotangents(operands: list[Any], dy: Any) -> tuple[Any, Any, Any]:
        if dy is None:
            return *value_and_indices(*operands), None
        y, vjp_fn, indices = jax.vjp(value_and_indices, *operands, has_aux=True)
        fits = y.shape == dy.shape and y.dtype == dy.dtype
        return y, indices, vjp_fn(dy) if fits else None

    return value_indices_and_cotangents


@functools.lru_cache(maxsize=64)
def _jitted_value_and_vjp(fn: Callable[..., Any], kind: str, kwargs: tuple[Any, ...]) -> Any:
    call = Call(pools()[f"{kind}_pool"], {"x": np.zeros(0), **dict(kwargs)})
    return jax.jit(_value_and_vjp(fn, call))
