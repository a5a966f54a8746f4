"""Cotangents of a maximum or minimum by XLA's select-and-scatter, which selects an element of each window again.

TPUs have hardware for the instruction. jax selects with `>=`, which loses NaN. Here NaN wins over every number, in one
of the ways of `Compared`: a second comparison, NaN replaced by infinity, or `>=` alone if there is no NaN. The
primitive has a batching rule but no derivative, because it is part of a linear map. Only plans for TPUs use it: XLA
for CPU treats padding as zeros in this instruction.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import batching, mlir

from jaxpool._geometry.window import Axis
from jaxpool._kernels.compare import Order
from jaxpool._kernels.dtypes import Kind, cast
from jaxpool._kernels.predicates import all_of
from jaxpool._kernels.reduce_window import group_extremes
from jaxpool._plan.max_pool import Compared, Groups, ScatterPlan

_scatter_p = core.Primitive("jaxpool_select_and_scatter")


def window_extremes(x: Array, kind: Kind, plan: ScatterPlan) -> Array:
    """Maximum or minimum of each window, by passes that XLA can share with `select_and_scatter`."""
    groups = _turned(plan)
    y = group_extremes(_in_order(x, plan.order), kind, groups)[-1]
    return _as_given(y, plan.order)


def select_and_scatter(x: Array, dy: Array, kind: Kind, ties: Order, plan: ScatterPlan) -> Array:
    """Scatter each element of dy to the element of x that its window selects, and add where windows overlap.

    Windows have no dilation, and leave out less than a stride at the end of x. Cotangents are added in the order of
    the windows, one group of axes after another, and in float32 if the plan compares "in order".
    """
    groups = _turned(plan)
    reduced = group_extremes(_in_order(x, plan.order), kind, groups[1:])
    added = jnp.float32 if plan.compared == "in order" else x.dtype
    sent = cast(_in_order(dy, plan.order), added)

    def scattered(prepare: Callable[[Array], Array]) -> Array:
        dx = sent
        for group, best in zip(groups, reversed(reduced), strict=False):  # without groups, only x
            dx = _sent(prepare(best), dx, group, kind, ties, plan.compared)
        return dx

    if plan.compared == "branch":
        nan_first = functools.partial(_nan_first, kind=kind)
        y = group_extremes(reduced[-1], kind, groups[:1])[-1]
        no_nan = all_of(lax.eq(y, y))
        dx = lax.cond(no_nan, lambda: scattered(lambda x: x), lambda: scattered(nan_first))
    elif plan.compared == "in order":
        dx = scattered(lambda best: _ordered(cast(best, added), kind))
    else:
        dx = scattered(lambda x: x)
    return _as_given(cast(dx, x.dtype), plan.order)


def _turned(plan: ScatterPlan) -> Groups:
    """Groups of a plan with axes renumbered for arrays permuted by `plan.order`."""
    if not plan.order:
        return plan.groups
    axis = {old: new for new, old in enumerate(plan.order)}
    permuted = [
        [dataclasses.replace(dim, axis=axis[dim.axis]) for dim in group] for group in plan.groups
    ]
    return tuple(map(tuple, permuted))


def _in_order(x: Array, order: Sequence[int]) -> Array:
    """Permute the axes of x to `order`, also in memory."""
    return _rows(lax.transpose(x, order)) if order else x


def _as_given(x: Array, order: Sequence[int]) -> Array:
    """Undo `_in_order`."""
    return lax.transpose(_rows(x), np.argsort(order)) if order else x


def _rows(x: Array) -> Array:
    """x with row-major layout in memory.

    XLA may implement a transpose by a change of layout alone. A matrix behind a barrier gets row-major layout.
    """
    return lax.reshape(lax.optimization_barrier(lax.collapse(x, 0, x.ndim - 1)), x.shape)


def _ordered(x: Array, kind: Kind) -> Array:
    """Map NaN to infinity, so that it wins; for float32 elements that come from a narrower dtype.

    Infinity becomes the largest number of float32, which no narrower dtype represents.
    """
    most = lax.full_like(x, np.finfo(np.float32).max)
    held = lax.min(x, most) if kind == "max" else lax.max(x, lax.neg(most))
    return lax.select(lax.ne(x, x), lax.full_like(x, np.inf if kind == "max" else -np.inf), held)


def _nan_first(x: Array, kind: Kind) -> Array:
    """Map NaN to infinity in float32 elements. Every number on that side of 0 moves one step towards 0 to make room.

    The order of numbers is preserved, except that 2**-149, the smallest number, ties with 0.
    """
    ahead, infinity = (lax.gt, np.inf) if kind == "max" else (lax.lt, -np.inf)
    nearer = lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) - 1, jnp.float32)
    numbers = lax.select(ahead(x, lax.full_like(x, 0)), nearer, x)
    return lax.select(lax.ne(x, x), lax.full_like(x, infinity), numbers)


def _sent(
    x: Array, dy: Array, dims: Sequence[Axis], kind: Kind, ties: Order, compared: Compared
) -> Array:
    """Cotangent of x for windows along `dims`."""
    sizes, strides = ([1] * x.ndim for _ in range(2))
    padding = [(0, 0)] * x.ndim
    for dim in dims:
        axis, padding[dim.axis] = dim.axis, (dim.low, max(dim.tail, 0))
        sizes[axis], strides[axis] = dim.window, dim.stride
    sent: Array = _scatter_p.bind(
        x,
        dy,
        sizes=tuple(sizes),
        strides=tuple(strides),
        padding=tuple(padding),
        kind=kind,
        ties=ties,
        compared=compared,
    )
    return sent


def _lower(
    context: Any,
    x: Any,
    dy: Any,
    *,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    kind: Kind,
    ties: Order,
    compared: Compared,
) -> Any:
    element = ir.RankedTensorType.get([], mlir.dtype_to_ir_type(context.avals_in[0].dtype))
    zero = stablehlo.constant(
        ir.DenseElementsAttr.get_splat(element, ir.FloatAttr.get(element.element_type, 0.0))
    )
    sides: Any = np.asarray(padding, np.int64)
    op = stablehlo.SelectAndScatterOp(
        x.type,
        x,
        dy,
        zero,
        window_dimensions=ir.DenseI64ArrayAttr.get(list(sizes)),
        window_strides=ir.DenseI64ArrayAttr.get(list(strides)),
        padding=ir.DenseElementsAttr.get(sides),
    )

    def holds(left: Any, direction: str, right: Any) -> Any:
        return stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get(direction))

    def join(is_nan: Any, stays: Any) -> Any:
        if compared == "joined":
            return stablehlo.or_(stays, is_nan)
        bit = ir.IntegerType.get_signless(1)
        true = ir.DenseElementsAttr.get_splat(
            ir.RankedTensorType.get([], bit), ir.BoolAttr.get(True)
        )
        return stablehlo.select(is_nan, stablehlo.constant(true), stays)

    block = op.select.blocks.append(element, element)
    with ir.InsertionPoint(block):
        best, challenger = block.arguments  # True: `best`, which comes first, stays
        if compared in ("in order", "branch"):
            ahead = {"max": "GT", "min": "LT"} if ties == "last" else {"max": "GE", "min": "LE"}
            stays = holds(best, ahead[kind], challenger)
        else:
            first, second = (challenger, best) if ties == "last" else (best, challenger)
            stays = holds(first, "GE" if kind == "max" else "LE", second)
            stays = join(holds(first, "NE", first), stays)
            stays = stablehlo.not_(stays) if ties == "last" else stays
        stablehlo.return_([stays])
    block = op.scatter.blocks.append(element, element)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(*block.arguments)])
    return op.results


def _batch(args: Any, dims: Any, **params: Any) -> Any:
    size = next(x.shape[dim] for x, dim in zip(args, dims, strict=True) if dim is not None)
    x, dy = [batching.bdim_at_front(x, dim, size) for x, dim in zip(args, dims, strict=True)]
    sizes, strides, padding = (params[name] for name in ("sizes", "strides", "padding"))
    wider = {"sizes": (1, *sizes), "strides": (1, *strides), "padding": ((0, 0), *padding)}
    return _scatter_p.bind(x, dy, **params | wider), 0


_scatter_p.def_abstract_eval(lambda x, dy, **params: x)
mlir.register_lowering(_scatter_p, _lower)
batching.primitive_batchers[_scatter_p] = _batch
