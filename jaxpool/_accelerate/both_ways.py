"""Each reduction that is taken over, computed by lax as well: `python -m jaxpool run --check`.

The array of a reduction's first call is kept, for in a traced program it is there only while that runs: a
callback of jax hands it out. Both ways are compared afterwards, outside of any trace and of any callback, which
may not compute by itself. Maxima and minima must be equal; sums, and cotangents that meet at one element, may
differ by the rounding of as many additions as a window has elements.
"""

from __future__ import annotations

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
from jaxpool._accelerate.windows import KINDS, LeftError

_PRIMITIVES = {kind: primitive for primitive, kind in KINDS.items() if kind}


class _Leaving(Handover):
    """Leaves every reduction to lax."""

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        raise LeftError("it is computed by lax to be compared with")


_leaving, _taking = _Leaving(), Handover()


class BothWays(Handover):
    """A handover that keeps the array of each reduction's first call, and compares both ways on it."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._first: dict[LaxReduction, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {}
        self._differences: dict[LaxReduction, str] = {}
        self._lock = threading.Lock()

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction by our kernels, and its array kept if it is the first."""
        y = super().take_over(kind, aval, args, params)
        reduction = described(kind, aval, params, None)
        if reduction in self._first or not all(isinstance(size, int) for size in aval.shape):
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
            return  # a part of an array of several processes is no array that lax reduces
        with self._lock:
            if reduction not in self._first:
                copies = tuple(np.array(each) for each in args)
                self._first[reduction] = (primitive, params, copies)

    def compare(self) -> None:
        """Compares both ways on what was kept since the last time."""
        jax.effects_barrier()
        for reduction in [each for each in self._first if each not in self._differences]:
            primitive, params, args = self._first[reduction]
            self._differences[reduction] = difference(primitive, params, *args)
            self._first[reduction] = (primitive, params, ())  # the array is not needed any more

    @property
    def differs(self) -> bool:
        """Whether any reduction compared so far is another than lax's."""
        return any(self._differences.values())

    def found(self, reduction: LaxReduction) -> str:
        """What the comparison of a reduction gave."""
        if reduction not in self._differences:
            return "not compared, for it was traced and did not run"
        return self._differences[reduction] or "equal"


def difference(primitive: Any, params: dict[str, Any], x: Any, *init: Any) -> str:
    """How our value or cotangent of a reduction differs from lax's; empty if neither does."""
    x, taps = jnp.asarray(x), math.prod(params["window_dimensions"])

    def reduce(x: Array) -> Any:
        y = primitive.bind(x, *map(jnp.asarray, init), **params)
        return y[0] if isinstance(y, list) else y

    want = _value(_leaving, reduce, x)
    scale: Any = 0.0
    if primitive is lax.reduce_window_sum_p:
        scale = np.abs(np.asarray(_value(_leaving, reduce, jnp.abs(x)), np.float64)) * _rounding(
            x.dtype, taps
        )
    said = _apart("value", _value(_taking, reduce, x), want, scale)
    if said or primitive is lax.reduce_window_p or not jnp.issubdtype(x.dtype, jnp.floating):
        return said  # of a general reduction lax has no derivative
    if primitive is not lax.reduce_window_sum_p and not bool(jnp.isfinite(want).all()):
        return ""  # the cotangents of NaN and of infinities follow another rule than lax's
    # Between 1 and 2, so that where cotangents meet none cancels another.
    dy = jnp.asarray(np.random.default_rng(0).uniform(1.0, 2.0, want.shape), want.dtype)
    want_dx = _cotangent(_leaving, reduce, x, dy)
    scale = np.abs(np.asarray(want_dx, np.float64)) * _rounding(x.dtype, taps)
    return _apart("cotangent", _cotangent(_taking, reduce, x, dy), want_dx, scale)


def _value(handover: Handover, reduce: Callable[[Array], Any], x: Array) -> Any:
    with handing_over(handover):
        return jax.jit(reduce)(x)


def _cotangent(handover: Handover, reduce: Callable[[Array], Any], x: Array, dy: Array) -> Any:
    """Differentiated inside as well: a derivative of lax's may be bound as another windowed reduction."""
    with handing_over(handover):
        return jax.jit(lambda x, dy: jax.vjp(reduce, x)[1](dy)[0])(x, dy)


def _rounding(dtype: Any, additions: int) -> float:
    return float(jnp.finfo(dtype).eps) * additions if jnp.issubdtype(dtype, jnp.floating) else 0.0


def _apart(what: str, ours: Any, theirs: Any, allowed: Any) -> str:
    """Where two arrays differ by more than is allowed, NaN being equal to NaN; empty if nowhere."""
    got, want = (np.asarray(each) for each in (ours, theirs))
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{what} is {got.dtype}{list(got.shape)}, lax's {want.dtype}{list(want.shape)}"
    wide = np.float64 if jnp.issubdtype(want.dtype, jnp.floating) else want.dtype
    got, want = got.astype(wide), want.astype(wide)
    same = (got == want) | ((got != got) & (want != want))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(got - want)) if wide is np.float64 else ~same
    wrong = ~same & ~(apart <= allowed)
    if not wrong.any():
        return ""
    return f"{what} differs at {wrong.sum()} of {wrong.size} elements, by {apart[wrong].max():.3g}"
