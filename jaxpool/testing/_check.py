"""Holds a pool against the oracle: shape, dtype, value, and the cotangent from `jax.vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _oracle
from jaxpool.testing._strategies import PoolCase


def assert_pool_matches(
    fn: Callable[..., Any], case: PoolCase, *, jit: bool = True, rtol: float = 0.0
) -> None:
    """Asserts that `fn(case.x, **case.kwargs())` and its gradient are what the oracle says.

    Values that are chosen (max, min) must be equal; sums may differ by the rounding of an
    accumulation in float32, or in float64 for float64. NaN and infinities must stand in the same
    places.

    Args:
        fn: The pool to try, called as `fn(x, window_shape=..., strides=..., padding=..., ...)`;
            arguments at their default are left out, so a pool that lacks one can be tried on cases
            that do not draw it.
        case: From `pool_cases`, or written out.
        jit: Whether to compile value and gradient in one program, kept for later cases with the
            same arguments.
        rtol: A relative error to allow on top, for pools that accumulate in less.

    Raises:
        AssertionError: A result differs; the message names which and shows both.

    Example:
        >>> import numpy as np
        >>> import jaxpool
        >>> from jaxpool.testing import PoolCase, assert_pool_matches
        >>> x, dy = np.arange(8, dtype=np.float32)[:, None], np.ones((4, 1), np.float32)
        >>> case = PoolCase("max", x, dy, window_shape=(2,), strides=(2,), padding="VALID")
        >>> assert_pool_matches(jaxpool.max_pool, case)
        >>> assert_pool_matches(jaxpool.min_pool, case)
        Traceback (most recent call last):
        ...
        AssertionError: value of ...
    """
    answer = case.answer()
    run = (
        _compiled(fn, _frozen(case))
        if jit
        else functools.partial(_value_and_cotangent, fn, case.kwargs())
    )
    y, dx = run(case.x, case.dy)
    terms = max(case.window().size, 1)
    exact = case.kind in ("max", "min", "median", "rank")
    bound = 0.0 if exact else _value_bound(case, answer, rtol)
    assert_close(y, answer.y, bound, f"value of {case!r}")
    if case.dy is not None:
        want = answer.cotangent(case.dy)
        (spread,) = answer.exact_cotangents(case.dy, absolute=True)
        assert_close(dx, want, _bound(want, spread, terms, rtol), f"cotangent of {case!r}")


def assert_close(got: Any, want: np.ndarray, bound: Any, what: str) -> None:
    """Asserts that `got` is `want` within `bound`, in the same shape and dtype; NaN equals NaN."""
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{what}: got {got.dtype}{got.shape}, want {want.dtype}{want.shape}")
    ours, theirs = (_oracle.exact_values(array) for array in (got, want))
    if not _oracle.is_floating(want.dtype):
        wrong = np.asarray(ours != theirs)
    else:
        with np.errstate(all="ignore"):
            near = np.abs(ours - theirs) <= bound
        wrong = ~(near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        detail = f"{int(wrong.sum())} of {wrong.size} differ, {got[at]} for {want[at]} at {at}"
        raise AssertionError(f"{what}: {detail}\ngot\n{got}\nwant\n{want}")


def _bound(want: np.ndarray, spread: np.ndarray, terms: int, rtol: float) -> np.ndarray:
    """The error that rounding may cause: `terms` terms accumulated, and the last step."""
    info = jnp.finfo(want.dtype)
    accumulated = jnp.finfo(np.float64 if want.dtype == np.float64 else np.float32)
    smallest = info.smallest_normal if info.bits >= 32 else info.smallest_subnormal
    with np.errstate(all="ignore"):
        rounding = (float(info.eps) + rtol) * np.abs(want.astype(np.float64))
        return np.nan_to_num(
            rounding + 2 * terms * float(accumulated.eps) * spread + float(smallest)
        )


def _value_bound(case: PoolCase, answer: _oracle.Answer, rtol: float) -> Any:
    """The bound for a sum or mean; integers stay exact, unless their mean is a float."""
    if not _oracle.is_floating(answer.y.dtype):
        return 0.0
    spread = np.zeros(answer.y.shape)
    x = np.abs(_oracle.exact_values(case.x).astype(np.float64))
    for term in answer.terms:
        spread[term.output] += abs(term.share) * x[term.position]
    return _bound(answer.y, spread, case.window().size, rtol)


def _value_and_cotangent(
    fn: Callable[..., Any], kwargs: dict[str, Any], x: Any, dy: Any
) -> tuple[Any, Any]:
    if dy is None:
        return fn(x, **kwargs), None
    y, pullback = jax.vjp(lambda x: fn(x, **kwargs), x)
    fits = y.shape == dy.shape and y.dtype == dy.dtype
    return y, pullback(dy)[0] if fits else None


def _frozen(case: PoolCase) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(case.kwargs().items()))


@functools.lru_cache(maxsize=64)
def _compiled(fn: Callable[..., Any], kwargs: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(functools.partial(_value_and_cotangent, fn, dict(kwargs)))
