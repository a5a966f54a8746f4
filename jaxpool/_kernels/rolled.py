"""Loops over the taps of large windows, for ranks, random pools and grey morphology.

The program contains the loop body once. These loops always run, so they rearrange the arrays first; the loops of
`sums.py`, which rarely run, do not. An array is split into planes: with stride s along an axis, plane p holds the
elements p, p + s, p + 2s, ... The elements of all windows at one tap (offset in the window) are then a block of one
plane, which XLA reads without strides:

    stride 2, window 3    elements    0 1 2 3 4 5 6
                          plane 0     0 2 4 6            tap 0 from 0 on, tap 2 from 1 on
                          plane 1     1 3 5 .            tap 1 from 0 on
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._geometry.window import Window, replace_sizes
from jaxpool._kernels import slices, sums
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, full_like, index_dtype
from jaxpool._kernels.rank import key_of_rank
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._plan.problem import new_axes, split_shape

State = tuple[Array, ...]
UpdateState = Callable[[State, Array, Sequence[Array]], State]


@dataclasses.dataclass(frozen=True)
class TapLoop:
    """A loop over all taps of a window, or over `flat_taps` in the given order.

    `collapses_minor_axes`: planes and outputs in the loop have all axes from the minor pooled axis on collapsed into
    one. Short rows then become parts of longer rows, which XLA vectorises.
    """

    window: Window
    taps_per_step: int  # taps per iteration, to write the state rarely
    collapses_minor_axes: bool = False
    flat_taps: Sequence[int] | None = None

    @property
    def ordered_taps(self) -> np.ndarray:
        """Flat (row-major) taps of the window in loop order."""
        return np.arange(self.window.size) if self.flat_taps is None else np.asarray(self.flat_taps)

    @property
    def _strides(self) -> list[int]:
        return [dim.stride for dim in self.window.dims]

    @property
    def _plane_sizes(self) -> list[int]:
        return [-(-dim.covered_size // dim.stride) for dim in self.window.dims]

    def _planes_and_starts_of_taps(self) -> tuple[np.ndarray, np.ndarray]:
        """Plane index of each tap, and the start of the tap's block in the plane along each pooled axis."""
        taps_per_axis = np.unravel_index(self.ordered_taps, self.window.window_shape)
        pairs = zip(taps_per_axis, self.window.dims, strict=True)
        offsets = np.stack([taps * dim.dilation for taps, dim in pairs], 1)
        starts, phases = np.divmod(offsets, self._strides)
        return np.ravel_multi_index(tuple(phases.T), self._strides), starts

    def collapse_output(self, y: Array) -> Array:
        """Collapse the minor axes of an array in the shape of the output if `collapses_minor_axes`, else return y."""
        return lax.collapse(y, max(self.window.axes)) if self.collapses_minor_axes else y

    def _elements_per_position(self, shape: Sequence[int]) -> list[int]:
        """Number of elements of a plane per input position along each pooled axis: 1, or the collapsed row size."""
        minor_axis = max(self.window.axes)
        row_size = math.prod(shape[minor_axis + 1 :]) if self.collapses_minor_axes else 1
        return [row_size if axis == minor_axis else 1 for axis in self.window.axes]

    def _padding_to_planes(self) -> list[slices.PaddingConfig]:
        pairs = zip(self.window.dims, self._plane_sizes, strict=True)
        return [(dim.low, n * dim.stride - dim.low - dim.size, 0) for dim, n in pairs]

    def to_planes(self, x: Array, fill: ArrayLike) -> Array:
        """Planes of x, stacked along a new first axis; the padding has the value `fill`."""
        axes, num_axes = self.window.axes, len(self.window.axes)
        x = slices.pad(x, axes, self._padding_to_planes(), fill)
        sizes = [*zip(self._plane_sizes, self._strides, strict=True)]
        x = lax.reshape(x, split_shape(x.shape, axes, sizes))
        x = lax.collapse(jnp.moveaxis(x, new_axes(axes), range(num_axes)), 0, num_axes)
        return lax.collapse(x, max(axes) + 1) if self.collapses_minor_axes else x

    def from_planes(self, x: Array, shape: Sequence[int]) -> Array:
        """Invert `to_planes`: array of `shape` from its planes x."""
        axes, plane_sizes = self.window.axes, self._plane_sizes
        x = lax.reshape(x, (*self._strides, *replace_sizes(shape, axes, plane_sizes)))
        x = jnp.moveaxis(x, range(len(axes)), new_axes(axes))
        padded_sizes = map(operator.mul, plane_sizes, self._strides)
        x = lax.reshape(x, replace_sizes(shape, axes, padded_sizes))
        padding = [(-low, -high, 0) for low, high, _ in self._padding_to_planes()]
        return slices.pad(x, axes, padding, 0)

    def fold_over_taps(
        self,
        update_state: UpdateState,
        initial_state: Sequence[Array],
        input_planes: Sequence[Array],
        input_shape: Sequence[int],
        *other_arrays: Array,
    ) -> State:
        """Fold `update_state(state, tap, blocks)` over the taps; `blocks` are the elements of all windows at the tap.

        `input_planes` are planes of arrays of `input_shape`. `other_arrays` are all other arrays that `update_state`
        reads, whose varying mesh axes are added to the state.
        """
        widths = self._elements_per_position(input_shape)
        tap_planes, tap_starts = self._planes_and_starts_of_taps()
        sizes = [n * width for n, width in zip(self.window.output_shape, widths, strict=True)]

        def update_from_row(state: State, tap: Array, plane_index: Array, *starts: Array) -> State:
            blocks = [self._slice_block(x, plane_index, starts, sizes) for x in input_planes]
            return update_state(state, tap, blocks)

        table = np.column_stack([self.ordered_taps, tap_planes, tap_starts * widths])
        initial_state = match_varying_mesh_axes(initial_state, *input_planes, *other_arrays)
        return self._loop_over_rows(update_from_row, initial_state, jnp.asarray(table, np.int32))

    def block_at_tap(self, planes: Array, tap: Array) -> Array:
        """Elements of all windows at one tap. `tap` may be traced. Axes must not be collapsed."""
        table = jnp.asarray(np.column_stack(self._planes_and_starts_of_taps()), np.int32)
        plane_index, *starts = lax.dynamic_index_in_dim(table, tap, keepdims=False)
        return self._slice_block(planes, plane_index, starts, self.window.output_shape)

    def sum_over_covering_windows(
        self,
        term_at_tap: Callable[..., Array],
        window_arrays: Sequence[Array],
        *input_planes: Array,
        dtype: DType,
    ) -> Array:
        """Sum `term_at_tap(tap, *blocks, *input_planes)` over the windows that cover each element; return planes.

        Position j of a plane is at `tap` in window `j - start`, where `start` is the position of the tap in window 0.
        `blocks` hold the entries of `window_arrays` for the windows `j - start` of all j, or 0 for windows that do not
        exist. So a block starts `start` entries before the first window. `input_planes` are planes of input-shaped
        arrays. `term_at_tap` must return 0 where the blocks are 0.
        """
        dims, plane_sizes = self.window.dims, self._plane_sizes
        widths = self._elements_per_position(window_arrays[0].shape)
        tap_planes, tap_starts = self._planes_and_starts_of_taps()
        max_start, num_planes = tap_starts.max(0), math.prod(self._strides)
        rows = np.column_stack([self.ordered_taps, (max_start - tap_starts) * widths])
        tables = np.zeros((num_planes, int(np.bincount(tap_planes).max()), 1 + len(dims)), np.int32)
        tables[..., 0] = self.window.size  # a tap out of range marks surplus table rows
        for plane_index in range(num_planes):
            plane_rows = rows[tap_planes == plane_index]
            tables[plane_index, : len(plane_rows)] = plane_rows
        has_surplus_rows = len(rows) < tables[..., 0].size
        triples = zip(dims, plane_sizes, max_start.tolist(), strict=True)
        padding = [(start, n - dim.out, 0) for dim, n, start in triples]
        padded = [slices.pad(y, self.window.axes, padding, 0) for y in window_arrays]
        ys = [lax.expand_dims(self.collapse_output(y), (0,)) for y in padded]
        sizes = [n * width for n, width in zip(plane_sizes, widths, strict=True)]

        def sum_one_plane(table_and_planes: Sequence[Array]) -> Array:
            table, *planes = table_and_planes

            def add_term_of_row(state: State, tap: Array, *starts: Array) -> State:
                blocks = [self._slice_block(y, np.int32(0), starts, sizes) for y in ys]
                t = term_at_tap(tap, *blocks, *planes)
                if has_surplus_rows:
                    t = lax.select(tap < np.int32(self.window.size), t, full_like(t, 0))
                return (state[0] + t,)

            origin = [np.int32(0)] * len(dims)
            zeros = full_like(self._slice_block(ys[0], np.int32(0), origin, sizes), 0, dtype)
            state = match_varying_mesh_axes([zeros], *ys, *planes)
            return self._loop_over_rows(add_term_of_row, state, table)[0]

        if num_planes > 1:
            return lax.map(sum_one_plane, (jnp.asarray(tables), *input_planes))
        one_plane = [lax.squeeze(x, (0,)) for x in (jnp.asarray(tables), *input_planes)]
        return lax.expand_dims(sum_one_plane(one_plane), (0,))

    def _slice_block(
        self, planes: Array, plane_index: ArrayLike, starts: Sequence[ArrayLike], sizes: slices.Ints
    ) -> Array:
        """Slice a block of `sizes` from one plane; `starts` are the first positions along the pooled axes."""
        indices, shape = [plane_index, *[np.int32(0)] * (planes.ndim - 1)], [1, *planes.shape[1:]]
        for axis, start, size in zip(self.window.axes, starts, sizes, strict=True):
            indices[axis + 1], shape[axis + 1] = start, size
        return lax.squeeze(lax.dynamic_slice(planes, indices, shape), (0,))

    def _loop_over_rows(self, update_fn: Callable[..., State], state: State, table: Array) -> State:
        """Fold `update_fn(state, *row)` over the rows of a table, several rows per loop step."""
        num_rows, num_columns = table.shape
        num_steps, rows_left = divmod(num_rows, self.taps_per_step)

        def process_rows(first_row: Array | np.int32, num_rows: int, state: State) -> State:
            for i in range(num_rows):
                row = lax.dynamic_index_in_dim(table, first_row + np.int32(i), keepdims=False)
                state = update_fn(state, *(row[column] for column in range(num_columns)))
            return state

        def loop_step(step_number: Array, state: State) -> State:
            first_row = step_number * np.int32(self.taps_per_step)
            return process_rows(first_row, self.taps_per_step, state)

        if num_steps:
            state = lax.fori_loop(np.int32(0), np.int32(num_steps), loop_step, state)
        return process_rows(np.int32(num_rows - rows_left), rows_left, state)


def key_of_rank_in_windows(
    taps_loop: TapLoop, key: Array, rank: ArrayLike, fill: ArrayLike
) -> Array:
    """Key of `rank`, counted from 0, in each window."""
    window, info, int16 = taps_loop.window, jnp.iinfo(key.dtype), jnp.iinfo(np.int16)
    fits = info.bits <= int16.bits and len(taps_loop.ordered_taps) <= int16.max
    dtype, planes = np.dtype(np.int16 if fits else np.int32), taps_loop.to_planes(key, fill)
    y = slices.elements_at_tap(slices.pad_input(key, window, fill), window, 0)
    rank = taps_loop.collapse_output(slices.broadcast_like(jnp.asarray(rank, dtype), y))

    def count_smaller(candidate: Array) -> Array:
        def add_if_smaller(state: State, _: Array, blocks: Sequence[Array]) -> State:
            return (state[0] + lax.lt(blocks[0], candidate).astype(dtype),)

        zeros = [full_like(candidate, 0, dtype)]
        return taps_loop.fold_over_taps(add_if_smaller, zeros, [planes], key.shape)[0]

    (like,) = match_varying_mesh_axes([taps_loop.collapse_output(y)], planes)
    return lax.reshape(key_of_rank(count_smaller, like, rank), window.pooled_shape(key.shape))


@dataclasses.dataclass(frozen=True)
class Selection:
    """A mask of selected taps per window: True where `is_selected(tap, *window_arrays, *elements)` is True.

    `window_arrays` have the shape of the output, and `elements` are the elements of `input_planes` at the tap. With
    `splits_ties`, a window may select several taps, and its cotangent is divided equally among these taps. With
    `excludes_padding`, taps in the padding are not selected, even where `is_selected` is True.
    """

    taps_loop: TapLoop
    is_selected: Callable[..., Array]
    window_arrays: Sequence[Array]
    input_planes: Sequence[Array] = ()
    splits_ties: bool = False
    excludes_padding: bool = False

    def mask_at_tap(self, tap: Array) -> Array:
        """Mask of the windows that select `tap`, which may be traced. Axes must not be collapsed."""
        elements = [self.taps_loop.block_at_tap(planes, tap) for planes in self.input_planes]
        return self._selection_mask(tap, self.window_arrays, elements)

    def _selection_mask(
        self, tap: Array, window_arrays: Sequence[Array], elements: Sequence[Array]
    ) -> Array:
        mask = self.is_selected(tap, *window_arrays, *elements)
        if not self.excludes_padding:
            return mask
        is_inside = sums.tap_inside_mask(self.taps_loop.window, tap, mask.ndim)
        return lax.bitwise_and(mask, slices.broadcast_like(is_inside, mask))

    def _fold_selected_taps(
        self,
        update_state: Callable[..., Sequence[Array]],
        dtypes: Sequence[DType],
        extra_planes: Sequence[Array] = (),
        *other_arrays: Array,
    ) -> State:
        """Fold `update_state(state, tap, selected, *elements)` over taps, with `elements` read from `extra_planes`."""
        window_arrays = [self.taps_loop.collapse_output(y) for y in self.window_arrays]
        num_planes, shape = len(self.input_planes), self.window_arrays[0].shape

        def update_from_blocks(state: State, tap: Array, blocks: Sequence[Array]) -> State:
            selected = self._selection_mask(tap, window_arrays, blocks[:num_planes])
            return tuple(update_state(state, tap, selected, *blocks[num_planes:]))

        zeros = [full_like(window_arrays[0], 0, dtype) for dtype in dtypes]
        planes = [*self.input_planes, *extra_planes]
        results = self.taps_loop.fold_over_taps(
            update_from_blocks, zeros, planes, shape, *window_arrays, *other_arrays
        )
        return tuple(lax.reshape(y, shape) for y in results)

    def first_or_last_selected_tap(self, *, take_last: bool) -> Array:
        """First or last selected tap of each window, or 0 if the window selects no tap."""

        def replace_tap(state: State, tap: Array, selected: Array) -> State:
            (chosen,) = state
            taps = lax.broadcast(tap.astype(chosen.dtype), chosen.shape)
            return (lax.select(selected, taps, chosen),)

        taps = self.taps_loop.ordered_taps[:: 1 if take_last else -1]
        loop = dataclasses.replace(self.taps_loop, flat_taps=tuple(taps.tolist()))
        selection = dataclasses.replace(self, taps_loop=loop)
        return selection._fold_selected_taps(replace_tap, [index_dtype(loop.window.size)])[0]

    def mean_over_selected_taps(
        self,
        term_at_tap: Callable[..., Array],
        dtype: DType,
        extra_planes: Sequence[Array],
        *other_arrays: Array,
    ) -> Array:
        """Mean with `splits_ties`, else sum, of `term_at_tap(tap, *elements of extra_planes)` over selected taps."""

        def add_terms(state: State, tap: Array, selected: Array, *elements: Array) -> list[Array]:
            terms = [slices.where_or_zero(selected, term_at_tap(tap, *elements))]
            counts = [selected.astype(np.int32)] if self.splits_ties else []
            return [*map(lax.add, state, [*terms, *counts])]

        dtypes = [dtype, np.int32][: 1 + self.splits_ties]
        sums = self._fold_selected_taps(add_terms, dtypes, extra_planes, *other_arrays)
        return divide_by_num_tied(*sums)

    def pick(self, x: Array) -> Array:
        """Selected element of x in each window, or the mean of the selected elements with `splits_ties`."""
        wide = cast(x, accumulator_dtype(x.dtype))
        planes = [self.taps_loop.to_planes(wide, 0)]
        y = self.mean_over_selected_taps(lambda tap, element: element, wide.dtype, planes)
        return cast(y, x.dtype)

    def divide_among_selected_taps(self, dy: Array) -> Array:
        """Divide dy by the number of selected taps of each window with `splits_ties`, else return dy."""
        if not self.splits_ties:
            return dy

        def count_taps(state: State, tap: Array, selected: Array) -> list[Array]:
            return [state[0] + selected.astype(np.int32)]

        return divide_by_num_tied(dy, *self._fold_selected_taps(count_taps, [np.int32]))

    def add_to_selected_elements(self, shares: Array, dtype: DType) -> Array:
        """Input-shaped array in `dtype` that sums the `shares` of all windows that selected each element."""

        def share_if_selected(tap: Array, share_at_tap: Array, *mask_args: Array) -> Array:
            return slices.where_or_zero(self.is_selected(tap, *mask_args), share_at_tap)

        loop, window_arrays = self.taps_loop, [shares, *self.window_arrays]
        dx = loop.sum_over_covering_windows(
            share_if_selected, window_arrays, *self.input_planes, dtype=shares.dtype
        )
        return cast(loop.from_planes(dx, loop.window.unpooled_shape(shares.shape)), dtype)

    def route(self, dy: Array) -> Array:
        """Transpose of `pick`: scatter-add each element of dy to the elements that its window selected."""
        shares = self.divide_among_selected_taps(cast(dy, accumulator_dtype(dy.dtype)))
        return self.add_to_selected_elements(shares, dy.dtype)


def tap_selection(taps_loop: TapLoop, tap: Array) -> Selection:
    """`Selection` of a single flat `tap` per window."""
    return Selection(taps_loop, slices.is_tap_chosen, [tap])


def equal_key_selection(taps_loop: TapLoop, key: Array, y: Array, fill: ArrayLike) -> Selection:
    """`Selection` of all taps whose element of `key` equals the window's key y; the key of the padding is `fill`."""
    planes = [taps_loop.to_planes(key, fill)]
    return Selection(taps_loop, lambda _, y, key: lax.eq(key, y), [y], planes, splits_ties=True)
