"""Comparison of our reductions with lax: `python -m jaxpool run --check`.

`CheckedHandover` copies the arrays of each reduction's first call; in a traced program, a `jax.debug.callback` delivers
them. The comparison runs afterwards, because a callback must not run jax computations. Maxima and minima must be equal.
Sums, and cotangents of overlapping windows, may differ by the rounding of one addition for each element of a window.
Our sums of 8- and 16-bit floats are float32 sums, so lax gets float32 arrays too, and its result is rounded once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._accelerate.bind import Handover, Report, described, handing_over
from jaxpool._accelerate.report import LaxReduction
from jaxpool._accelerate.windows import GEOMETRY, KINDS, LeftError, kind_of
from jaxpool._kernels.dtypes import accumulator_dtype

_PRIMITIVES = {kind: primitive for primitive, kind in KINDS.items() if kind}


class _Leaving(Handover):
    """A handover that leaves every reduction to lax."""

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        raise LeftError("it is computed by lax to be compared with")


_leaving, _taking = _Leaving(), Handover()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison: a sentence for the user, and whether the arrays differ."""

    said: str
    differs: bool = False


class CheckedHandover(Handover):
    """A handover that copies the array of each reduction's first call, and compares ours with lax on it."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._first: dict[LaxReduction, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {}
        self._compared: dict[LaxReduction, Comparison] = {}
        self._why_not: dict[LaxReduction, str] = {}
        self._lock = threading.Lock()

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction, computed by our pools; copies its arrays at the first call."""
        y = super().take_over(kind, aval, args, params)
        reduction = described(kind, aval, params, None)
        if reduction in self._first:
            return y
        if not all(isinstance(size, int) for size in aval.shape):
            self._why_not[reduction] = "its shape is symbolic"
            return y
        primitive = lax.reduce_window_p if "jaxpr" in params else _PRIMITIVES[kind]
        keep = functools.partial(self._keep, reduction, primitive, params)
        if any(isinstance(each, jax.core.Tracer) for each in args):
            jax.debug.callback(keep, *args)
        else:
            keep(*args)
        return y

    def _keep(self, reduction: LaxReduction, primitive: Any, params: Any, *args: Any) -> None:
        if any(isinstance(each, Array) and not each.is_fully_addressable for each in args):
            # `np.array` cannot copy it, and the part of one process is not the array that lax reduces.
            self._why_not[reduction] = "its array lies on several processes"
            return
        with self._lock:
            if reduction not in self._first:
                copies = tuple(np.array(each) for each in args)
                self._first[reduction] = (primitive, params, copies)

    def compare(self) -> None:
        """Compare ours with lax on the arrays copied since the last call."""
        jax.effects_barrier()
        for reduction in [each for each in self._first if each not in self._compared]:
            primitive, params, args = self._first[reduction]
            self._compared[reduction] = compared(primitive, params, *args)
            self._first[reduction] = (primitive, params, ())  # frees the array

    @property
    def differs(self) -> bool:
        """Whether any reduction compared so far differs from lax."""
        return any(each.differs for each in self._compared.values())

    def comparison(self, reduction: LaxReduction) -> Comparison:
        """The comparison of a reduction, or the reason why there is none."""
        if reduction in self._compared:
            return self._compared[reduction]
        reason = self._why_not.get(reduction, "it was traced and did not run")
        return Comparison(f"not compared, for {reason}")


def compared(primitive: Any, params: dict[str, Any], x: Any, *init: Any) -> Comparison:
    """Compare the value and cotangent of our reduction of x with lax."""
    x, init = jnp.asarray(x), tuple(map(jnp.asarray, init))
    taps = math.prod(params["window_dimensions"])
    floats = jnp.issubdtype(x.dtype, jnp.floating)

    def reduce(x: Array) -> Any:
        y = primitive.bind(x, *init, **params)
        return y[0] if isinstance(y, list) else y

    def add(x: Array, *init: Array) -> Any:
        y = lax.reduce_window_sum_p.bind(x, **{name: params[name] for name in GEOMETRY})
        return sum(init, y)

    wide, *wide_init = (each.astype(accumulator_dtype(x.dtype)) for each in (x, *init))
    if floats and kind_of(primitive, params) == "sum":
        want = _value(_leaving, add, wide, *wide_init)
        sizes = _value(_leaving, add, *map(jnp.abs, (wide, *wide_init)))
        # Our sum is rounded once more, before the initial value is added.
        allowed = _rounding(
            x.dtype, taps + len(init), sizes, sum(map(jnp.abs, wide_init), jnp.abs(want))
        )
    else:
        want, allowed = _value(_leaving, reduce, x), 0.0
    said = _apart("value", _value(_taking, reduce, x), want.astype(x.dtype), allowed)
    if said:
        return Comparison(said, differs=True)
    if primitive is lax.reduce_window_p or not floats:
        return Comparison("equal")  # lax has no derivative of a general reduction
    # lax has another rule for the cotangent of a NaN or infinite maximum.
    counts = np.asarray(jnp.isfinite(want)) | (primitive is lax.reduce_window_sum_p)
    if want.size and not counts.any():
        return Comparison("equal in value; the cotangent was not compared, for NaN or infinity")
    # Between 1 and 2, so that overlapping cotangents do not cancel.
    random = np.where(counts, np.random.default_rng(0).uniform(1.0, 2.0, want.shape), 0.0)
    dy = jnp.asarray(random, x.dtype)
    want_dx = _cotangent(_leaving, reduce, wide, dy.astype(wide.dtype))
    allowed = _rounding(x.dtype, taps, want_dx, want_dx)
    said = _apart("cotangent", _cotangent(_taking, reduce, x, dy), want_dx.astype(x.dtype), allowed)
    if said:
        return Comparison(said, differs=True)
    if counts.all():
        return Comparison("equal")
    return Comparison(
        f"equal; cotangents were compared of {counts.sum()} of {counts.size} windows, "
        "for NaN or infinity in the others"
    )


def _value(handover: Handover, reduce: Callable[..., Any], *args: Array) -> Any:
    with handing_over(handover):
        return jax.jit(reduce)(*args)


def _cotangent(handover: Handover, reduce: Callable[[Array], Any], x: Array, dy: Array) -> Any:
    """The cotangent of x. The `vjp` is inside the context: lax's derivative may bind another windowed reduction."""
    with handing_over(handover):
        return jax.jit(lambda x, dy: jax.vjp(reduce, x)[1](dy)[0])(x, dy)


def _rounding(dtype: Any, additions: int, sizes: Any, result: Any) -> Any:
    """The allowed difference of sums; `sizes` holds the sums of the absolute values of their terms.

    It is the rounding of the additions, and of the `result` to `dtype` if the additions use a wider dtype.
    """
    sizes, result = (np.abs(np.asarray(each, np.float64)) for each in (sizes, result))
    wide, narrow = jnp.finfo(accumulator_dtype(dtype)), jnp.finfo(dtype)
    allowed = float(wide.eps) * additions * sizes
    if narrow.bits < wide.bits:
        allowed = allowed + float(narrow.eps) * result + float(narrow.smallest_subnormal)
    return allowed


def _apart(what: str, ours: Any, theirs: Any, allowed: Any) -> str:
    """A sentence about elements that differ by more than `allowed`, or "" if there are none. NaN equals NaN."""
    got, want = (np.asarray(each) for each in (ours, theirs))
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{what} is {got.dtype}{list(got.shape)}, lax's {want.dtype}{list(want.shape)}"
    wide = np.float64 if jnp.issubdtype(want.dtype, jnp.floating) else want.dtype
    got, want = got.astype(wide), want.astype(wide)
    same = (got == want) | ((got != got) & (want != want))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(got - want)) if wide is np.float64 else ~same
    finite = np.isfinite(want) if wide is np.float64 else True
    wrong = ~same & ~(finite & (apart <= allowed))
    if not wrong.any():
        return ""
    return f"{what} differs at {wrong.sum()} of {wrong.size} elements, by {apart[wrong].max():.3g}"
