"""Memory passes of a pool, read from the jaxpr of its kernels; for `jaxpool.plan_of`.

A pass is one loop over an array in memory. XLA fuses slices, gathers and elementwise operations into their user. A pass
ends at an output, an operation that is not fused, a stored array, and a slice of a combination of slices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax import numpy as jnp
from jax.extend import core

from jaxpool._arguments.sizes import Size, is_int
from jaxpool._ops.equations import Direction
from jaxpool._ops.op import Op
from jaxpool._ops.primitives import (
    compute_p,
    kernel_of,
    linear_map,
    linear_p,
    value,
    value_and_residual,
)
from jaxpool._plan.problem import Platform

# Prefixes of the names of primitives that XLA does not fuse into the operation that uses their result.
UNFUSED_PREFIXES = ("arg", "conv_", "cum", "dot_", "jaxpool_", "reduce", "scatter", "sort", "top_k")
ArrayTypes = Sequence[jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class Pass:
    """One loop over an array in memory: each element of the result combines up to `terms` elements along `axes`."""

    axes: tuple[int, ...]
    terms: Size
    how: str  # a JAX primitive, such as "slice", "gather", "reduce_max" or "scatter-add", or "elementwise"
    # Types of the results that the pass stores; empty if the next pass uses the result without a store.
    writes: tuple[jax.ShapeDtypeStruct, ...]
    where: str = ""  # the loops and branches that contain the pass


Passes = tuple[Pass, ...]


@dataclasses.dataclass(frozen=True)
class PoolPasses:
    """The memory passes of a pool on a platform; a direction that was not computed is empty."""

    value: Passes = ()  # computes the output if no derivative is taken
    forward: Passes = ()  # computes the output and the residual, the arrays saved for the backward pass
    tangent: Passes = ()  # computes the output tangent
    backward: Passes = ()  # computes the input cotangents


def residual_types(op: Op, argument_types: ArrayTypes) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Types of the arrays that an op saves for its backward pass; () if an input or the output is not a float."""
    if not _is_differentiable(op, argument_types):
        return ()
    _, residual = jax.eval_shape(functools.partial(value_and_residual, op), *argument_types)
    return tuple(jax.tree.leaves(residual))


def _is_differentiable(op: Op, argument_types: ArrayTypes) -> bool:
    """Whether the inputs and the output are floats; a mask has no derivative."""
    y = jax.eval_shape(functools.partial(value, op), *argument_types)
    types = [*argument_types[: op.num_inputs], y]
    return all(jnp.issubdtype(aval.dtype, jnp.floating) for aval in types)


def passes_of_op(
    platform: Platform, op: Op, argument_types: ArrayTypes, directions: Collection[Direction]
) -> PoolPasses:
    """The memory passes of an op in the given `directions`, for arguments of `argument_types`."""
    inputs = argument_types[: op.num_inputs]
    forward: Callable[..., object] = functools.partial(value, op)
    calls: dict[Direction, tuple[Any, ...]] = {"value": (forward, *argument_types)}
    y = jax.eval_shape(forward, *argument_types)
    if _is_differentiable(op, argument_types):
        forward = functools.partial(value_and_residual, op)
        tangent = functools.partial(linear_map, op, nonzero=(True,) * op.num_inputs)
        y, residual = jax.eval_shape(forward, *argument_types)
        calls["tangent"] = (tangent, residual, inputs)
        calls["backward"] = (functools.partial(tangent, transposed=True), residual, [y])
    calls["forward"] = (forward, *argument_types)
    passes = {
        direction: _passes_of_function(platform, [*inputs, y], *call)
        for direction, call in calls.items()
        if direction in directions
    }
    return PoolPasses(**passes)


def passes_of_equation(platform: Platform, equation: core.JaxprEqn) -> Passes:
    """The memory passes of a jaxpr equation of a jaxpool primitive, with all batch axes that vmap added."""
    bind = functools.partial(equation.primitive.bind, **equation.params)
    output_types = [x.aval for x in equation.outvars]
    return _passes_of_function(platform, output_types, bind, *[x.aval for x in equation.invars])


def _passes_of_function(
    platform: Platform, types: Sequence[object], function: Callable[..., Any], *arg_types: object
) -> Passes:
    """The passes of `function` over arrays at least as large as the smallest of `types`, inputs and outputs."""
    jaxpr = jax.make_jaxpr(function)(*arg_types).jaxpr
    collector = _PassCollector(platform, min(map(_num_elements, types)))
    collector.end_passes(collector.read_jaxpr(jaxpr, [NO_READS] * len(jaxpr.invars)), jaxpr.outvars)
    return tuple(collector.passes) or (_make_pass((), 1, "elementwise", jaxpr.outvars),)


class _SourceRead(NamedTuple):
    """A read of an array in memory, through a slice, a gather, or several of them nested."""

    source_array: Any  # the array in memory: number of stores so far, number of its jaxpr, variable
    # The parameters of each slice, or a unique object if the start of the slice is not known.
    parts: tuple[object, ...]
    axes: frozenset[int]
    primitive_name: str


Variables = Sequence[Any]  # of core.Var and core.Literal, whose `aval` jax types without a shape
Reads = frozenset[_SourceRead]
ReadsList = list[Reads | None]  # one entry per variable, None for a constant
NO_READS: Reads = frozenset()


class _PassCollector:
    """Collects the passes over arrays of at least `min_elements` elements, in the order of the equations of a jaxpr."""

    def __init__(self, platform: Platform, min_elements: float) -> None:
        self.platform, self.min_elements = platform, min_elements
        self.passes: list[Pass] = []
        self.listed_reads = NO_READS  # the reads of `passes`
        self.num_jaxprs = self.num_stores = 0  # counters that identify jaxprs and stored results
        # The variables of callers that arguments of calls stand for; variables are pairs with the number of the jaxpr.
        self.callers: dict[tuple[int, Any], tuple[int, Any]] = {}

    def read_jaxpr(self, jaxpr: core.Jaxpr, input_reads: ReadsList) -> ReadsList:
        """Append the passes of a jaxpr to `passes`. Returns the reads behind each output."""
        reads_by_variable = dict(zip(jaxpr.invars, input_reads, strict=True))
        self.num_jaxprs += 1
        jaxpr_number = self.num_jaxprs

        def reads_of(variables: Variables) -> ReadsList:
            return [
                None if isinstance(x, core.Literal) else reads_by_variable.get(x) for x in variables
            ]

        for equation in jaxpr.eqns:
            operand_reads = reads_of(equation.invars)
            if any(reads is not None for reads in operand_reads):
                output_reads = self._reads_of_outputs(equation, operand_reads, jaxpr_number)
                reads_by_variable.update(zip(equation.outvars, output_reads, strict=True))
        return reads_of(jaxpr.outvars)

    def end_passes(self, result_reads: ReadsList, variables: Variables) -> ReadsList:
        """Append the passes that compute `variables` from `result_reads` and store them."""
        self.num_stores += 1
        # One loop computes all results of one shape.
        for shape in dict.fromkeys(x.aval.shape for x in variables):
            pairs = zip(result_reads, variables, strict=True)
            group = [(reads, x) for reads, x in pairs if reads and x.aval.shape == shape]
            self._add_pass(NO_READS.union(*[reads for reads, _ in group]), [x for _, x in group])
        return [None if reads is None else NO_READS for reads in result_reads]

    def _add_pass(self, reads: Reads, written_variables: Variables = ()) -> None:
        """Append a pass over those of `reads` that no earlier pass has; passes over small arrays are skipped."""
        reads -= self.listed_reads
        self.listed_reads |= reads
        if not reads:
            return
        source_sizes = {read: _num_elements(read.source_array[-1].aval) for read in reads}
        size = max(source_sizes.values())
        if max([size, *(_num_elements(x.aval) for x in written_variables)]) < self.min_elements:
            return
        top_reads = [read for read in reads if source_sizes[read] == size]
        how = "gather" if any(read.primitive_name == "gather" for read in top_reads) else "slice"
        axes = sorted(frozenset[int]().union(*[read.axes for read in top_reads]))
        self.passes.append(_make_pass(axes, _max_reads_per_array(reads), how, written_variables))

    def _reads_of_outputs(
        self, equation: Any, operand_reads: ReadsList, jaxpr_number: int
    ) -> ReadsList:
        """The reads that each output of an equation is computed from. Appends the passes that end at the equation."""
        name, outs = equation.primitive.name, equation.outvars
        all_reads = NO_READS.union(*[reads for reads in operand_reads if reads is not None])
        if equation.primitive in (compute_p, linear_p):
            kernel = kernel_of(equation, self.platform)
            jaxpr = jax.make_jaxpr(kernel)(*[x.aval for x in equation.invars]).jaxpr
            return self.read_jaxpr(jaxpr, operand_reads)
        if name in ("scan", "while", "cond"):
            return self._add_control_flow_passes(equation, operand_reads)
        if name.startswith(UNFUSED_PREFIXES) and name != "reduce_precision":
            self._add_pass(all_reads)
            if max(_num_elements(x.aval) for x in (*equation.invars, *outs)) >= self.min_elements:
                how = name.removeprefix("jaxpool_")
                self.passes.append(_make_pass(*_axes_and_num_terms(equation), how, outs))
            return [NO_READS] * len(outs)
        for called_jaxpr in core.jaxprs_in_params(equation.params):
            pairs = zip(called_jaxpr.invars, equation.invars, strict=True)
            for x, caller_x in pairs:
                if not isinstance(caller_x, core.Literal):
                    caller = jaxpr_number, caller_x
                    self.callers[self.num_jaxprs + 1, x] = self.callers.get(caller, caller)
            return self._reads_of_call(equation, called_jaxpr, operand_reads)
        if name == "optimization_barrier":
            return self.end_passes(operand_reads, outs)
        if name in ("concatenate", "stack"):  # each element of the result comes from one operand
            return [max([reads for reads in operand_reads if reads is not None], key=len)]
        if name in ("slice", "dynamic_slice", "gather", "pad"):
            return [self._reads_of_slice(equation, operand_reads[0], jaxpr_number)]
        return [all_reads] * len(outs)

    def _reads_of_slice(
        self, equation: Any, operand_reads: Reads | None, jaxpr_number: int
    ) -> Reads | None:
        """The reads of a slice, gather or pad y of x: each read of x, followed by this slice.

        If x is in memory, y is a new read of x, but for a pad that crops nothing. x is in memory if it has no reads, or
        if a pass has stored it: then all its reads are in `listed_reads`. A slice of x ends the pass that combines
        several reads to x. A pad, which shifts its operand, does not.
        """
        (x, *_), (y, *_), name = equation.invars, equation.outvars, equation.primitive.name
        if operand_reads is None or 0 in y.aval.shape:
            return None
        is_combined = _max_reads_per_array(operand_reads) > 1
        if name == "pad":
            is_cropped = any(
                min(low, high) < 0 for low, high, _ in equation.params["padding_config"]
            )
            if is_combined or not (operand_reads or is_cropped):
                return operand_reads
        if name in ("slice", "dynamic_slice") and is_combined:
            self._add_pass(operand_reads, [x])
        # The start positions of a gather or a dynamic slice are arrays, so every result is another part.
        has_fixed_start = name in ("slice", "pad")
        part = repr(equation.params) if has_fixed_start else object()
        how, axes = "gather" if name == "gather" else "slice", _axes_read_in_part(equation)
        array = self.callers.get((jaxpr_number, x), (jaxpr_number, x))
        read_of_x = _SourceRead((self.num_stores, *array), (), frozenset(), how)
        return frozenset(
            _SourceRead(source, (*parts, part), read_axes | axes, how)
            for source, parts, read_axes, _ in (operand_reads - self.listed_reads) or {read_of_x}
        )

    def _reads_of_call(
        self, equation: Any, jaxpr: core.Jaxpr, operand_reads: ReadsList
    ) -> ReadsList:
        """The reads of the results of a call in a jaxpr. Results of a call that XLA does not inline are stored."""
        num_passes, reads = len(self.passes), self.read_jaxpr(jaxpr, operand_reads)
        if (getattr(equation.ctx, "xla_metadata", None) or {}).get("inlineable") != "false":
            return reads
        reads = self.end_passes(reads, equation.outvars)
        if len(self.passes) == num_passes and jaxpr.eqns:
            self.passes.append(_make_pass((), 1, "elementwise", equation.outvars))
        return reads

    def _add_control_flow_passes(self, equation: Any, operand_reads: ReadsList) -> ReadsList:
        """Append the passes of a loop body, or of the shortest branch of a conditional."""
        params, operand_reads = equation.params, self.end_passes(operand_reads, equation.invars)
        if equation.primitive.name == "scan":
            bodies, where = [params["jaxpr"]], f"in each of {params['length']} loop steps"
        elif equation.primitive.name == "while":
            bodies, where = [params["body_jaxpr"]], "in a loop"
            operand_reads = operand_reads[params["cond_nconsts"] :]
        else:
            bodies, where = params["branches"], "in a branch"
            operand_reads = operand_reads[1:]
        num_passes, branch_passes = len(self.passes), []
        for body in bodies:
            self.end_passes(self.read_jaxpr(body.jaxpr, operand_reads), body.jaxpr.outvars)
            branch_passes.append(self.passes[num_passes:])
            del self.passes[num_passes:]
        # The longest branch is for rare inputs, such as NaN.
        *_, longest_branch = branch_passes = sorted(filter(None, branch_passes), key=len) or [[]]
        if len(branch_passes) > 1:
            where += f", or {len(longest_branch)} pass{'es' * (len(longest_branch) > 1)} in another branch"
        for array_pass in branch_passes[0]:
            inner_where = f", {array_pass.where}" if array_pass.where else ""
            self.passes.append(dataclasses.replace(array_pass, where=where + inner_where))
        return [NO_READS] * len(equation.outvars)


def _axes_read_in_part(equation: Any) -> set[int]:
    """The axes along which a slice, gather or pad selects or shifts elements."""
    (x, *_), (y, *_), params = equation.invars, equation.outvars, equation.params
    if equation.primitive.name == "pad":
        return {axis for axis, (low, high, _) in enumerate(params["padding_config"]) if low or high}
    if equation.primitive.name != "gather":
        return {axis for axis, n in enumerate(x.aval.shape) if n != y.aval.shape[axis]}
    numbers = params["dimension_numbers"]
    # Clamped reads flatten the axes that they gather from, and restore them in the result.
    is_clamped = params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS
    if is_clamped and not numbers.operand_batching_dims:
        return set(range(y.aval.ndim)) - set(numbers.offset_dims)
    return set(numbers.start_index_map)


def _max_reads_per_array(reads: Reads) -> int:
    """The largest number of reads of the same array."""
    return max(Counter(read.source_array for read in reads).values(), default=0)


def _make_pass(axes: Sequence[int], terms: Size, how: str, written_variables: Variables) -> Pass:
    avals = [x.aval for x in written_variables]
    writes = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
    return Pass(tuple(axes), terms, how, writes)


def _num_elements(aval: Any) -> float:
    """Number of elements of an array type; infinity if the shape is symbolic."""
    size = math.prod(aval.shape)
    return size if is_int(size) else math.inf


def _axes_and_num_terms(equation: Any) -> tuple[tuple[int, ...], Size]:
    """The axes that an equation reduces, sorts or scatters along, and the number of elements per result."""
    params, shape = equation.params, equation.invars[0].aval.shape
    sizes = params.get("window_dimensions", params.get("sizes"))
    if sizes is not None:
        return tuple(axis for axis, n in enumerate(sizes) if n != 1), math.prod(sizes)
    if equation.primitive.name.startswith("scatter"):
        return tuple(params["dimension_numbers"].scatter_dims_to_operand_dims), 1
    last_axis = len(shape) - 1
    if equation.primitive.name == "dot_general":
        axes = params["dimension_numbers"][0][0]
    elif (axes := params.get("axes", params.get("dimensions"))) is None:
        axes = (params.get("axis", params.get("dimension", last_axis)),)
    return tuple(axes), math.prod(shape[axis] for axis in axes)
