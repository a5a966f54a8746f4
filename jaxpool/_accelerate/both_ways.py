"""Each reduction that is taken over, computed by lax as well: `python -m jaxpool run --check`.

The array of a reduction's first call is kept, for in a traced program it is there only while that runs: a
callback of jax hands it out. Both ways are compared afterwards, outside of any trace and of any callback, which
may not compute by itself. Maxima and minima must be equal; sums, and cotangents that meet at one element, may
differ by the rounding of as many additions as a window has elements. 8- and 16-bit floats are added in float32 here,
so lax adds them in float32 as well, and its sums are rounded once.
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
from jaxpool._kernels.dtypes import accumulator

_PRIMITIVES = {kind: primitive for primitive, kind in KINDS.items() if kind}


class _Leaving(Handover):
    """Leaves every reduction to lax."""

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        raise LeftError("it is computed by lax to be compared with")


_leaving, _taking = _Leaving(), Handover()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a comparison of both ways gave."""

    said: str
    differs: bool = False


class BothWays(Handover):
    """A handover that keeps the array of each reduction's first call, and compares both ways on it."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._first: dict[LaxReduction, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {}
        self._compared: dict[LaxReduction, Comparison] = {}
        self._why_not: dict[LaxReduction, str] = {}
        self._lock = threading.Lock()

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction by our kernels, and its array kept if it is the first."""
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
            # A part of it is no array that lax reduces.
            self._why_not[reduction] = "its array lies on several processes"
            return
        with self._lock:
            if reduction not in self._first:
                copies = tuple(np.array(each) for each in args)
                self._first[reduction] = (primitive, params, copies)

    def compare(self) -> None:
        """Compares both ways on what was kept since the last time."""
        jax.effects_barrier()
        for reduction in [each for each in self._first if each not in self._compared]:
            primitive, params, args = self._first[reduction]
            self._compared[reduction] = compared(primitive, params, *args)
            self._first[reduction] = (primitive, params, ())  # the array is not needed any more

    @property
    def differs(self) -> bool:
        """Whether any reduction compared so far is another than lax's."""
        return any(each.differs for each in self._compared.values())

    def found(self, reduction: LaxReduction) -> Comparison:
        """What the comparison of a reduction gave."""
        if reduction in self._compared:
            return self._compared[reduction]
        reason = self._why_not.get(reduction, "it was traced and did not run")
        return Comparison(f"not compared, for {reason}")


def compared(primitive: Any, params: dict[str, Any], x: Any, *init: Any) -> Comparison:
    """Whether our value and cotangent of a reduction are lax's."""
    x, init = jnp.asarray(x), tuple(map(jnp.asarray, init))
    taps = math.prod(params["window_dimensions"])
    floats = jnp.issubdtype(x.dtype, jnp.floating)

    def reduce(x: Array) -> Any:
        y = primitive.bind(x, *init, **params)
        return y[0] if isinstance(y, list) else y

    def add(x: Array, *init: Array) -> Any:
        y = lax.reduce_window_sum_p.bind(x, **{name: params[name] for name in GEOMETRY})
        return sum(init, y)

    wide, *wide_init = (each.astype(accumulator(x.dtype)) for each in (x, *init))
    if floats and kind_of(primitive, params) == "sum":
        want = _value(_leaving, add, wide, *wide_init)
        sizes = _value(_leaving, add, *map(jnp.abs, (wide, *wide_init)))
        # Ours is rounded before the initial value is added, too.
        allowed = _rounding(
            x.dtype, taps + len(init), sizes, sum(map(jnp.abs, wide_init), jnp.abs(want))
        )
    else:
        want, allowed = _value(_leaving, reduce, x), 0.0
    said = _apart("value", _value(_taking, reduce, x), want.astype(x.dtype), allowed)
    if said:
        return Comparison(said, differs=True)
    if primitive is lax.reduce_window_p or not floats:
        return Comparison("equal")  # of a general reduction lax has no derivative
    # The cotangents of a maximum that is NaN or infinite follow another rule than lax's.
    counts = np.asarray(jnp.isfinite(want)) | (primitive is lax.reduce_window_sum_p)
    if want.size and not counts.any():
        return Comparison("equal in value; the cotangent was not compared, for NaN or infinity")
    # Between 1 and 2, so that where cotangents meet none cancels another.
    some = np.where(counts, np.random.default_rng(0).uniform(1.0, 2.0, want.shape), 0.0)
    dy = jnp.asarray(some, x.dtype)
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
    """Differentiated inside as well: a derivative of lax's may be bound as another windowed reduction."""
    with handing_over(handover):
        return jax.jit(lambda x, dy: jax.vjp(reduce, x)[1](dy)[0])(x, dy)


def _rounding(dtype: Any, additions: int, sizes: Any, result: Any) -> Any:
    """By how much sums may differ whose terms have absolute values that add up to `sizes`.

    By what the additions round, and where these are in a wider type, by how the `result` is rounded to `dtype`.
    """
    sizes, result = (np.abs(np.asarray(each, np.float64)) for each in (sizes, result))
    wide, narrow = jnp.finfo(accumulator(dtype)), jnp.finfo(dtype)
    allowed = float(wide.eps) * additions * sizes
    if narrow.bits < wide.bits:
        allowed = allowed + float(narrow.eps) * result + float(narrow.smallest_subnormal)
    return allowed


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
    finite = np.isfinite(want) if wide is np.float64 else True
    wrong = ~same & ~(finite & (apart <= allowed))
    if not wrong.any():
        return ""
    return f"{what} differs at {wrong.sum()} of {wrong.size} elements, by {apart[wrong].max():.3g}"
