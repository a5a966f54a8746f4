"""Forms of a case: kernels called with plans from modified thresholds, for `bench.tune`.

An op normally makes its plan during lowering for a platform. Here the plan is made first and passed to the kernel.
Two forms of one case can thus run in one process, without any change to the state of the library.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench._case import ADAPTIVE, AVERAGES, MAX, Case
from jaxpool._api.plan_text import HOWS
from jaxpool._geometry.access import terms
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import make_window
from jaxpool._kernels import reduce
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.select import select
from jaxpool._kernels.sums import Epilogue, window_spread, window_sum
from jaxpool._ops.adaptive_pool import AdaptiveMean, AdaptiveSelect
from jaxpool._ops.op import Op
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.select_pool import LevelPool, MaskPool, SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.max_pool import Pass, plan_max
from jaxpool._plan.problem import Platform, Problem, barrier_on
from jaxpool._plan.sum_pool import SumPass, plan_sum
from jaxpool._plan.tuning import LIMITS, TUNING, Limits, Tuning


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """The thresholds that determine a form, for one platform."""

    platform: Platform
    tuning: Tuning
    limits: Limits = LIMITS

    @classmethod
    def of(cls, platform: Platform) -> Thresholds:
        """The thresholds of the library."""
        return cls(platform, TUNING[platform])

    def get(self, field: str) -> Any:
        return getattr(getattr(self, self._part(field)), field)

    def moved(self, field: str, value: Any) -> Thresholds:
        """A copy with one threshold replaced."""
        part = self._part(field)
        whole = dataclasses.replace(getattr(self, part), **{field: value})
        return dataclasses.replace(self, **{part: whole})

    def _part(self, field: str) -> str:
        return "tuning" if hasattr(self.tuning, field) else "limits"


class Form(NamedTuple):
    """One form of a case. Equal plans give equal programs. `reads` names the arguments of `run`."""

    plan: Any
    words: str
    reads: tuple[str, ...]
    run: Callable[..., Any]


def forms(case: Case, by: Thresholds) -> Mapping[str, Form]:
    """The forms of a case under these thresholds, by direction: "forward", "backward" and others."""
    make = {
        "max_pool": _selection,
        "min_pool": _selection,
        MAX: _reduction,
        **dict.fromkeys(AVERAGES, _sum),
        **dict.fromkeys(ADAPTIVE, _adaptive),
    }.get(case.op)
    return make(case, by) if make else {}


def arrays(case: Case, names: Sequence[str]) -> list[jax.Array]:
    """The arguments of a form. A forward pass computes the index."""
    by_name = {}
    if "index" in names:
        forward = forms(case, Thresholds.of("cpu"))["forward"]
        by_name["index"] = jax.jit(forward.run)(*arrays(case, forward.reads))[1]
    if "dy" in names:
        by_name["dy"] = jnp.asarray(case.cotangent())
    if "x" in names:
        by_name |= zip(("x", "positions"), map(jnp.asarray, case.inputs()), strict=False)
    return [by_name[name] for name in names]


def _problem(case: Case, by: Thresholds) -> Problem:
    geometry = {"window_dilation": case.dilation or 1, "axes": case.axes}
    window = make_window(case.shape, case.window, case.strides, case.padding, **geometry)
    return Problem(window, case.shape, case.dtype, by.platform, thresholds=by.tuning)


def _selection(case: Case, by: Thresholds) -> dict[str, Form]:
    problem = _problem(case, by)
    window, kind = problem.window, "max" if case.op == "max_pool" else "min"
    plan, barrier = plan_max(problem), barrier_on(by.platform, by.tuning)

    def forward(x: jax.Array) -> Any:
        return materialise(barrier, lambda x: select(x, window, kind, "first", plan), x)

    def backward(dy: jax.Array, index: jax.Array) -> Any:
        return route(dy, index, plan)

    def tangent(x: jax.Array, index: jax.Array) -> Any:
        return pick(x, index, plan)

    def both(x: jax.Array, dy: jax.Array) -> Any:
        y, index = forward(x)
        return y, backward(dy, index)

    chosen = plan.forward
    ways = {"forward": Form(chosen, _words(plan.forward), ("x",), forward)}
    if case.integer:
        return ways
    sent = (plan.widen, plan.backward)
    ways["backward"] = Form(sent, _words(plan.backward), ("dy", "index"), backward)
    ways["tangent"] = Form(plan.tangent, _words(plan.tangent), ("x", "index"), tangent)
    ways["both ways, kept"] = Form(barrier, barrier, ("x", "dy"), both)
    whole = all(dim.whole for dim in window.dims) and window.size > by.limits.whole_taps
    ways["both ways"] = _op(
        Reduction(kind, "first", window.axes, window.input_shape)
        if whole
        else SelectPool(window, kind, "first"),
        by,
    )
    few = window.size <= by.limits.masked_taps
    ways["both ways, ties split"] = _op((MaskPool if few else LevelPool)(window, kind), by)
    return ways


def _sum(case: Case, by: Thresholds) -> dict[str, Form]:
    problem = _problem(case, by)
    taps, barrier = problem.window.size, barrier_on(by.platform, by.tuning)
    end = Epilogue(jnp.dtype(case.dtype), (lambda y: y / taps) if case.op == "avg_pool" else None)
    plans = [plan_sum(problem, transposed=transposed) for transposed in (False, True)]

    def forward(x: jax.Array) -> Any:
        return window_sum(x, plans[0], end)

    def backward(dy: jax.Array) -> Any:
        return window_spread(dy, plans[1], end)

    def both(x: jax.Array) -> Any:
        y = forward(x)
        return y, backward(y)

    passes = [each for plan in plans for each in plan.passes]
    forward_plan, backward_plan = (dataclasses.replace(plan, barrier="barrier") for plan in plans)
    ways = {
        "forward": Form(forward_plan, _words(forward_plan.passes), ("x",), forward),
        "backward": Form(backward_plan, _words(backward_plan.passes), ("dy",), backward),
    }
    if len(passes) > len(plans) or any(each.layout.reading == "tables" for each in passes):
        ways["both ways, kept"] = Form(barrier, barrier, ("x",), both)
    return ways


def _adaptive(case: Case, by: Thresholds) -> dict[str, Form]:
    window = adaptive_window(case.shape, case.output, case.axes)
    ordinary = case.as_windows and max(window.window_shape) <= by.limits.adaptive_window
    op: Op = SumPool(window, "counted") if ordinary else AdaptiveMean(window)
    if case.op == "adaptive_max_pool":
        op = SelectPool(window, "max", "first") if ordinary else AdaptiveSelect(window, "first")
    return {"both ways": _op(op, by)}


def _op(op: Op, by: Thresholds) -> Form:
    """An op and its transpose in one program, for thresholds that select the op class."""

    def both(x: jax.Array, dy: jax.Array) -> Any:
        if op.linear_in_x:
            return op.linear(by.platform, (), x), op.transpose(by.platform, (), dy)
        y, residual = op.primal(by.platform, x)
        return y, op.transpose(by.platform, residual, dy)

    return Form(type(op), type(op).__name__, ("x", "dy"), both)


def _reduction(case: Case, by: Thresholds) -> dict[str, Form]:
    lost = by.tuning.loses_nan
    run = functools.partial(reduce.extreme, axes=case.axes, kind="max", loses_nan=lost)
    return {"forward": Form(lost, "looks for a NaN" if lost else "does not look", ("x",), run)}


def _words(passes: Sequence[Pass | SumPass]) -> str:
    """Passes as one line: axes, number of terms, and the layout that they read."""
    return "; ".join(_pass(each) for each in passes) or "no pass"


def _pass(each: Pass | SumPass) -> str:
    if isinstance(each, SumPass):
        axes, count = each.axes, math.prod(map(terms, each.sources[0]))
    else:
        axes, count = each.step.axes, len(each.step.starts)
    regions = f", {each.layout.regions} regions" if each.layout.regions > 1 else ""
    return f"axes {axes}: {count} terms, {HOWS[each.layout.reading][0]}{regions}"
