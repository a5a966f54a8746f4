"""Cotangents of a maximum or minimum by XLA's select-and-scatter, which selects an element of each window again.

TPUs have hardware for select-and-scatter. jax selects with `>=`, which loses NaN. In this module NaN wins over every
number, by one of the methods in `Comparison`: a second comparison, NaN replaced by infinity, or `>=` alone if there is
no NaN. The primitive has a batching rule but no derivative rule, because the primitive is part of a linear map. Only
plans for TPUs use select-and-scatter, because XLA for CPU treats padding as zeros in this instruction.
"""

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
from jaxpool._kernels.dtypes import Kind, TieOrder, all_true_across_vmap, cast, full_like, where
from jaxpool._kernels.reduce_window import Pairs, extrema_per_axis_group, window_parameters
from jaxpool._kernels.slices import Ints
from jaxpool._plan.max_pool import AxisGroups, Comparison, ScatterPlan

_scatter_p = core.Primitive("jaxpool_select_and_scatter")
_Order = tuple[Kind, TieOrder, Comparison]  # which element of a window the instruction selects


def shared_window_extrema(x: Array, kind: Kind, plan: ScatterPlan) -> Array:
    """Maximum or minimum of each window, by passes over x that XLA can share with `select_and_scatter`."""
    groups = _permuted_axis_groups(plan)
    y = extrema_per_axis_group(_permute_axes_in_memory(x, plan.permutation), kind, groups)[-1]
    return _undo_axis_permutation(y, plan.permutation)


def select_and_scatter(x: Array, dy: Array, kind: Kind, ties: TieOrder, plan: ScatterPlan) -> Array:
    """Add each element of dy to the element of x that its window selects; other elements get 0.

    Cotangents are added one group of axes after another, and in float32 if the plan's comparison is "in order".
    """
    groups = _permuted_axis_groups(plan)
    extrema = extrema_per_axis_group(_permute_axes_in_memory(x, plan.permutation), kind, groups[1:])
    sum_dtype = jnp.float32 if plan.comparison == "in order" else x.dtype
    permuted_dy = cast(_permute_axes_in_memory(dy, plan.permutation), sum_dtype)

    def scatter_through_groups(map_nan: Callable[[Array, Kind], Array] | None = None) -> Array:
        dx = permuted_dy
        for group, y in zip(groups, reversed(extrema), strict=False):  # without groups, only x
            y = cast(y, sum_dtype)
            sizes, strides, padding, _ = window_parameters(group, y.ndim)
            dx = _scatter_p.bind(
                map_nan(y, kind) if map_nan else y,
                dx,
                sizes=sizes,
                strides=strides,
                padding=padding,
                order=(kind, ties, plan.comparison),
            )
        return dx

    if plan.comparison == "branch":
        y = extrema_per_axis_group(extrema[-1], kind, groups[:1])[-1]
        has_no_nan = all_true_across_vmap(lax.eq(y, y))
        map_nan = functools.partial(scatter_through_groups, _map_float32_nan_to_infinity)
        dx = lax.cond(has_no_nan, scatter_through_groups, map_nan)
    elif plan.comparison == "in order":
        dx = scatter_through_groups(_map_narrow_nan_to_infinity)
    else:
        dx = scatter_through_groups()
    return _undo_axis_permutation(cast(dx, x.dtype), plan.permutation)


def _permuted_axis_groups(plan: ScatterPlan) -> AxisGroups:
    """Axis groups of a plan, with the axes renumbered for arrays whose axes are permuted by `plan.permutation`."""
    if not plan.permutation:
        return plan.groups

    def permuted(dim: Axis) -> Axis:
        return dataclasses.replace(dim, axis=plan.permutation.index(dim.axis))

    return tuple(tuple(map(permuted, group)) for group in plan.groups)


def _permute_axes_in_memory(x: Array, axis_order: Sequence[int]) -> Array:
    """Permute the axes of x to `axis_order`, also in memory."""
    return _with_row_major_layout(lax.transpose(x, axis_order)) if axis_order else x


def _undo_axis_permutation(x: Array, axis_order: Sequence[int]) -> Array:
    return lax.transpose(_with_row_major_layout(x), np.argsort(axis_order)) if axis_order else x


def _with_row_major_layout(x: Array) -> Array:
    # XLA may implement a transpose as a change of layout only, but gives a matrix behind a barrier row-major layout.
    return lax.reshape(lax.optimization_barrier(lax.collapse(x, 0, x.ndim - 1)), x.shape)


def _map_narrow_nan_to_infinity(x: Array, kind: Kind) -> Array:
    """Map NaN to infinity, so that NaN wins every comparison; for float32 elements cast from a narrower dtype.

    Infinity becomes the largest float32 number, which no narrower dtype represents.
    """
    max_value = full_like(x, np.finfo(np.float32).max)
    clipped = lax.min(x, max_value) if kind == "max" else lax.max(x, lax.neg(max_value))
    return where(lax.ne(x, x), np.inf if kind == "max" else -np.inf, clipped)


def _map_float32_nan_to_infinity(x: Array, kind: Kind) -> Array:
    """Map NaN to infinity, and move numbers of the sign of that infinity to the adjacent float32 towards 0.

    The order of numbers is preserved, except that the number next to 0 (2**-149 or -2**-149) ties with 0.
    """
    compare, infinity = (lax.gt, np.inf) if kind == "max" else (lax.lt, -np.inf)
    toward_zero = lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) - 1, jnp.float32)
    numbers = lax.select(compare(x, full_like(x, 0)), toward_zero, x)
    return where(lax.ne(x, x), infinity, numbers)


def _lower_to_stablehlo(
    ctx: Any, x: Any, dy: Any, *, sizes: Ints, strides: Ints, padding: Pairs, order: _Order
) -> Sequence[ir.Value]:
    kind, ties, comparison = order
    scalar_type = ir.RankedTensorType.get([], mlir.dtype_to_ir_type(ctx.avals_in[0].dtype))
    zero = ir.FloatAttr.get(scalar_type.element_type, 0.0)
    padding_array: Any = np.asarray(padding, np.int64)
    op = stablehlo.SelectAndScatterOp(
        x.type,
        x,
        dy,
        stablehlo.constant(ir.DenseElementsAttr.get_splat(scalar_type, zero)),
        window_dimensions=ir.DenseI64ArrayAttr.get(list(sizes)),
        window_strides=ir.DenseI64ArrayAttr.get(list(strides)),
        padding=ir.DenseElementsAttr.get(padding_array),
    )

    def compare_scalars(left: ir.Value, direction: str, right: ir.Value) -> ir.Value:
        return stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get(direction))

    block = op.select.blocks.append(scalar_type, scalar_type)
    with ir.InsertionPoint(block):
        best, challenger = block.arguments  # the block returns True if `best` stays selected
        if comparison in ("in order", "branch"):
            ops = {"max": "GT", "min": "LT"} if ties == "last" else {"max": "GE", "min": "LE"}
            stays = compare_scalars(best, ops[kind], challenger)
        else:
            first, second = (challenger, best) if ties == "last" else (best, challenger)
            stays = compare_scalars(first, "GE" if kind == "max" else "LE", second)
            stays = stablehlo.or_(stays, compare_scalars(first, "NE", first))  # or `first` is NaN
            stays = stablehlo.not_(stays) if ties == "last" else stays
        stablehlo.return_([stays])
    block = op.scatter.blocks.append(scalar_type, scalar_type)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(*block.arguments)])
    return op.results


def _batching_rule(
    args: Any, batch_dims: Any, *, sizes: Ints, strides: Ints, padding: Pairs, order: _Order
) -> tuple[Array, int]:
    pairs = [*zip(args, batch_dims, strict=True)]
    size = next(x.shape[dim] for x, dim in pairs if dim is not None)
    x, dy = [batching.bdim_at_front(x, dim, size) for x, dim in pairs]
    sizes, strides, padding = (1, *sizes), (1, *strides), ((0, 0), *padding)
    dx = _scatter_p.bind(x, dy, sizes=sizes, strides=strides, padding=padding, order=order)
    return dx, 0


_scatter_p.def_abstract_eval(lambda x, dy, **params: x)
mlir.register_lowering(_scatter_p, _lower_to_stablehlo)
batching.primitive_batchers[_scatter_p] = _batching_rule
