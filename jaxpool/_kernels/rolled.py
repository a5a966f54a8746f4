"""Loops over the taps of large windows, for ranks, random pools and grey morphology.

The loop body is in the program once, and the loop holds a few arrays. `tap_loop.py` is for loops that rarely run. An
array is split into planes, one per phase of the strides. Each tap of all windows is then a block of one plane, which
XLA reads without strides:

    stride 2, window 3    elements    0 1 2 3 4 5 6
                          plane 0     0 2 4 6            tap 0 from 0 on, tap 2 from 1 on
                          plane 1     1 3 5 .            tap 1 from 0 on
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._geometry.window import Window
from jaxpool._kernels import slices, tap_loop
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, index_dtype
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._plan.program_length import turns

State = tuple[Array, ...]
Join = Callable[[State, Array, Sequence[Array]], State]


@dataclasses.dataclass(frozen=True)
class TapLoop:
    """A loop over all taps of a window, or over `flat_taps` in their order.

    `collapses_minor_axes`: the minor pooled axis and all axes after it are collapsed, in planes and by the method
    `collapse_minor_axes`. Short rows then become parts of longer rows, which vectorise.
    `has_weights`: each tap has a weight that the loop reads with its elements.
    """

    window: Window
    collapses_minor_axes: bool = False
    flat_taps: Sequence[int] | None = None
    has_weights: bool = False

    @property
    def taps_in_loop_order(self) -> np.ndarray:
        """Flat taps in loop order."""
        return np.arange(self.window.size) if self.flat_taps is None else np.asarray(self.flat_taps)

    @property
    def _plane_sizes(self) -> list[int]:
        """Size of a plane along each pooled axis."""
        return [-(-dim.needed // dim.stride) for dim in self.window.dims]

    def _planes_and_starts_of_taps(self) -> tuple[np.ndarray, np.ndarray]:
        """Plane of each tap, and the position of the first window in it along each pooled axis."""
        along = np.unravel_index(self.taps_in_loop_order, self.window.window_shape)
        pairs = [*zip(along, self.window.dims, strict=True)]
        phases = [tap * dim.dilation % dim.stride for tap, dim in pairs]
        starts = [tap * dim.dilation // dim.stride for tap, dim in pairs]
        strides = [dim.stride for dim in self.window.dims]
        return np.ravel_multi_index(phases, strides), np.stack(starts, 1)

    def collapse_minor_axes(self, y: Array) -> Array:
        """Collapse the minor axes of an output-shaped array if `collapses_minor_axes`."""
        return lax.collapse(y, max(self.window.axes)) if self.collapses_minor_axes else y

    def _elements_per_position(self, shape: Sequence[Any]) -> list[int]:
        """Number of plane elements per position along each pooled axis."""
        minor = max(self.window.axes)
        row = math.prod(shape[minor + 1 :]) if self.collapses_minor_axes else 1
        return [row if axis == minor else 1 for axis in self.window.axes]

    def _phase_shape_and_permutation(
        self, shape: Sequence[Any]
    ) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Shape with an axis of phases after each pooled axis, and the permutation that moves phases to the front."""
        sizes: list[Any] = []
        first, rest = {}, []
        strides = {dim.axis: dim.stride for dim in self.window.dims}
        for axis, size in enumerate(shape):
            rest.append(len(sizes))
            sizes.append(size // strides.get(axis, 1))
            if axis in strides:
                first[axis] = len(sizes)
                sizes.append(strides[axis])
        return tuple(sizes), (*(first[axis] for axis in self.window.axes), *rest)

    def split_into_planes(self, x: Array, fill: Any) -> Array:
        """Planes of x, stacked along a new first axis; padding holds `fill`."""
        dims, lengths = self.window.dims, self._plane_sizes
        whole = [n * dim.stride for dim, n in zip(dims, lengths, strict=True)]
        sides = [(d.low, n - d.low - d.size, 0) for d, n in zip(dims, whole, strict=True)]
        x = slices.pad(x, self.window.axes, sides, fill)
        shape, order = self._phase_shape_and_permutation(x.shape)
        x = lax.collapse(lax.transpose(lax.reshape(x, shape), order), 0, len(dims))
        return lax.collapse(x, max(self.window.axes) + 1) if self.collapses_minor_axes else x

    def from_planes(self, x: Array, shape: Sequence[Any]) -> Array:
        """Invert `split_into_planes` for an array of `shape`."""
        dims, padded = self.window.dims, [*shape]
        for dim, n in zip(dims, self._plane_sizes, strict=True):
            padded[dim.axis] = n * dim.stride
        split_shape, order = self._phase_shape_and_permutation(padded)
        x = lax.reshape(x, tuple(split_shape[axis] for axis in order))
        x = lax.transpose(x, [order.index(axis) for axis in range(len(order))])
        sides = [(-dim.low, dim.low + dim.size - padded[dim.axis], 0) for dim in dims]
        return slices.pad(lax.reshape(x, tuple(padded)), self.window.axes, sides, 0)

    def fold_over_taps(
        self,
        update_state: Join,
        initial_state: Sequence[Array],
        planes_of_inputs: Sequence[Array],
        input_shape: Any,
        *other_arrays: Array,
    ) -> State:
        """Fold `update_state(state, tap, blocks)` over the taps; `blocks` are the elements of all windows at the tap.

        There is one flat block for each of `planes_of_inputs`, which are planes of arrays of `input_shape`.
        `other_arrays` are all further arrays that `update_state` reads.
        """
        units = self._elements_per_position(input_shape)
        plane, starts = self._planes_and_starts_of_taps()
        sizes = [n * unit for n, unit in zip(self.window.output_shape, units, strict=True)]

        def update_from_row(
            state: State, tap: Array, plane: Array, *starts_in_plane: Array
        ) -> State:
            return update_state(
                state,
                tap,
                [self._slice_block(x, plane, starts_in_plane, sizes) for x in planes_of_inputs],
            )

        table = np.column_stack([self.taps_in_loop_order, plane, starts * units])
        initial_state = match_varying_mesh_axes(initial_state, *planes_of_inputs, *other_arrays)
        return self._loop_over_rows(update_from_row, initial_state, jnp.asarray(table, np.int32))

    def elements_at_tap(self, planes: Array, tap: Array) -> Array:
        """Elements of all windows at one tap, which may be traced; for loops without collapsed axes."""
        table = jnp.asarray(np.column_stack(self._planes_and_starts_of_taps()), np.int32)
        plane_index, *begin = lax.dynamic_index_in_dim(table, tap, keepdims=False)
        return self._slice_block(planes, plane_index, begin, self.window.output_shape)

    def sum_over_covering_windows(
        self,
        term_at_tap: Callable[..., Array],
        window_arrays: Sequence[Array],
        *element_planes: Array,
        dtype: Any,
    ) -> Array:
        """Sum `term_at_tap(tap, *blocks, *element_planes)` over the windows that cover each element; returns planes.

        The blocks hold the elements of `window_arrays` for the window that has each element at `tap`, or 0 if there is
        no such window. `element_planes` are planes with the data of the elements.
        """
        dims, units, lengths = (
            self.window.dims,
            self._elements_per_position(window_arrays[0].shape),
            self._plane_sizes,
        )
        plane, starts = self._planes_and_starts_of_taps()
        reach, count = starts.max(0), math.prod(dim.stride for dim in dims)
        table = np.zeros((count, int(np.bincount(plane).max()), 1 + len(dims)), np.int32)
        table[..., 0] = self.window.size  # marks surplus rows, which have no tap
        for which in range(count):
            (in_plane,) = np.nonzero(plane == which)
            rows = [self.taps_in_loop_order[in_plane], (reach - starts[in_plane]) * units]
            table[which, : len(in_plane)] = np.column_stack(rows)
        uneven = bool((table[..., 0] == self.window.size).any())
        limits = zip(dims, lengths, reach.tolist(), strict=True)
        sides = [(before, n - dim.out, 0) for dim, n, before in limits]
        flat = [
            self.collapse_minor_axes(slices.pad(y, self.window.axes, sides, 0))
            for y in window_arrays
        ]
        padded = [lax.expand_dims(y, (0,)) for y in flat]
        sizes = [n * unit for n, unit in zip(lengths, units, strict=True)]

        def sum_one_plane(table_and_planes: Any) -> Array:
            table, *element_planes = table_and_planes

            def add_term_of_row(state: State, tap: Array, *starts_in_plane: Array) -> State:
                blocks = [self._slice_block(y, np.int32(0), starts_in_plane, sizes) for y in padded]
                part = term_at_tap(tap, *blocks, *element_planes)
                if uneven:
                    part = lax.select(
                        tap < np.int32(self.window.size), part, lax.full_like(part, 0)
                    )
                return (state[0] + part,)

            origin = [np.int32(0)] * len(dims)
            zeros = lax.full_like(
                self._slice_block(padded[0], np.int32(0), origin, sizes), 0, dtype
            )
            return self._loop_over_rows(
                add_term_of_row, match_varying_mesh_axes([zeros], *padded, *element_planes), table
            )[0]

        if count > 1:
            return lax.map(sum_one_plane, (jnp.asarray(table), *element_planes))
        one_plane = [lax.squeeze(x, (0,)) for x in (jnp.asarray(table), *element_planes)]
        return lax.expand_dims(sum_one_plane(one_plane), (0,))

    def _slice_block(
        self, planes: Array, plane_index: Any, starts_in_plane: Sequence[Any], sizes: Sequence[int]
    ) -> Array:
        """Block of a plane, from `starts_in_plane` on along each pooled axis."""
        at, shape = [plane_index, *[np.int32(0)] * (planes.ndim - 1)], [1, *planes.shape[1:]]
        for axis, first, size in zip(self.window.axes, starts_in_plane, sizes, strict=True):
            at[axis + 1], shape[axis + 1] = first, size
        return lax.squeeze(lax.dynamic_slice(planes, at, shape), (0,))

    def _loop_over_rows(
        self, update_from_row: Callable[..., State], initial_state: State, table: Array
    ) -> State:
        """Fold `update_from_row(state, *row)` over the rows of a table, several rows per loop step."""
        num_steps, per_step, rest = turns(table.shape[0], weighted=self.has_weights)

        def process_rows(first_row: Any, num_rows: int, state: State) -> State:
            for which in range(num_rows):
                row = lax.dynamic_index_in_dim(table, first_row + np.int32(which), keepdims=False)
                state = update_from_row(state, *(row[column] for column in range(table.shape[1])))
            return state

        def loop_step(step_number: Array, state: State) -> State:
            return process_rows(step_number * np.int32(per_step), per_step, state)

        if num_steps:
            initial_state = lax.fori_loop(
                np.int32(0), np.int32(num_steps), loop_step, initial_state
            )
        return process_rows(np.int32(num_steps * per_step), rest, initial_state)


def key_of_rank_in_windows(loop: TapLoop, key: Array, rank: Any, fill: Any) -> Array:
    """Key of `rank`, from 0, in each window: a search bit by bit that counts smaller keys."""
    info, shape = jnp.iinfo(key.dtype), loop.window.pooled(key.shape)
    int16 = jnp.iinfo(np.int16)
    narrow = info.bits <= int16.bits and len(loop.taps_in_loop_order) <= int16.max
    counted, planes = np.dtype(np.int16 if narrow else np.int32), loop.split_into_planes(key, fill)
    like = slices.elements_at_tap(slices.pad_input(key, loop.window, fill), loop.window, 0)
    rank = loop.collapse_minor_axes(slices.broadcast_like(jnp.asarray(rank, counted), like))

    def search_one_bit(num_bits_done: Array, lower_bound: Array) -> Array:
        bit = lax.shift_left(
            jnp.ones((), key.dtype), (info.bits - 1 - num_bits_done).astype(key.dtype)
        )
        candidate = lower_bound + bit

        def count_smaller(state: State, _: Array, blocks: Sequence[Array]) -> State:
            return (state[0] + lax.lt(blocks[0], candidate).astype(counted),)

        (smaller,) = loop.fold_over_taps(
            count_smaller, [lax.full_like(lower_bound, 0, counted)], [planes], key.shape
        )
        return lax.select(lax.le(smaller, rank), candidate, lower_bound)

    least = match_varying_mesh_axes(
        [lax.full_like(loop.collapse_minor_axes(like), info.min)], planes
    )[0]
    lower_bound = lax.fori_loop(np.int32(0), np.int32(info.bits), search_one_bit, least)
    return lax.reshape(lower_bound, shape)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The taps that each window of a loop selects, where `is_selected(tap, *window_arrays, *elements)` is True.

    `window_arrays` are output-shaped. `elements` are the elements of `element_planes` at the tap. With `splits_ties`,
    windows select several taps, which share a cotangent. With `excludes_padding`, taps in the padding, where
    `is_selected` may be True, are not selected.
    """

    loop: TapLoop
    is_selected: Callable[..., Array]
    window_arrays: Sequence[Array]
    element_planes: Sequence[Array] = ()
    splits_ties: bool = False
    excludes_padding: bool = False

    def selected_at_tap(self, tap: Array) -> Array:
        """Mask of the windows that select a tap, which may be traced; for loops without collapsed axes."""
        return self._selected_inside_input(
            tap,
            self.window_arrays,
            [self.loop.elements_at_tap(each, tap) for each in self.element_planes],
        )

    def _selected_inside_input(
        self, tap: Array, window_arrays: Sequence[Array], elements: Sequence[Array]
    ) -> Array:
        is_selected = self.is_selected(tap, *window_arrays, *elements)
        if not self.excludes_padding:
            return is_selected
        is_real = tap_loop.tap_inside_mask(self.loop.window, tap, is_selected.ndim)
        return lax.bitwise_and(is_selected, slices.broadcast_like(is_real, is_selected))

    def _fold_selected_taps(
        self,
        loop: TapLoop,
        update_state: Callable[..., Sequence[Array]],
        dtypes: Sequence[DType],
        extra_planes: Sequence[Array] = (),
        *other_arrays: Array,
    ) -> State:
        """Fold `update_state(state, tap, selected, *elements)`, from zeros of `dtypes`; `extra_planes` are planes."""
        window_arrays, count = (
            [self.loop.collapse_minor_axes(y) for y in self.window_arrays],
            len(self.element_planes),
        )

        def update_from_blocks(state: State, tap: Array, blocks: Sequence[Array]) -> State:
            selected = self._selected_inside_input(tap, window_arrays, blocks[:count])
            return tuple(update_state(state, tap, selected, *blocks[count:]))

        first = [lax.full_like(window_arrays[0], 0, dtype) for dtype in dtypes]
        final = loop.fold_over_taps(
            update_from_blocks,
            first,
            [*self.element_planes, *extra_planes],
            self.window_arrays[0].shape,
            *window_arrays,
            *other_arrays,
        )
        return tuple(lax.reshape(each, self.window_arrays[0].shape) for each in final)

    def first_or_last_selected_tap(self, *, take_last: bool) -> Array:
        """First or last selected tap of each window, or 0 if there is none."""

        def replace_chosen_tap(state: State, tap: Array, selected: Array) -> State:
            (chosen,) = state
            number = lax.broadcast(tap.astype(chosen.dtype), chosen.shape)
            return (lax.select(selected, number, chosen),)

        numbers = self.loop.taps_in_loop_order if take_last else self.loop.taps_in_loop_order[::-1]
        loop = dataclasses.replace(self.loop, flat_taps=tuple(numbers.tolist()))
        return self._fold_selected_taps(
            loop, replace_chosen_tap, [index_dtype(self.loop.window.size)]
        )[0]

    def mean_over_selected_taps(
        self,
        term_at_tap: Callable[..., Array],
        dtype: DType,
        extra_planes: Sequence[Array],
        *other_arrays: Array,
    ) -> Array:
        """Sum or mean of `term_at_tap(tap, *elements)` in `dtype` over the selected taps; a mean with `splits_ties`.

        `extra_planes` are planes. `other_arrays` are all further arrays that `term_at_tap` reads.
        """

        def add_selected_terms(
            state: State, tap: Array, selected: Array, *elements: Array
        ) -> list[Array]:
            terms = [slices.where_or_zero(selected, term_at_tap(tap, *elements))]
            counts = [selected.astype(np.int32)] if self.splits_ties else []
            return [*map(lax.add, state, [*terms, *counts])]

        dtypes = [dtype, np.int32][: 1 + self.splits_ties]
        total, *counts = self._fold_selected_taps(
            self.loop, add_selected_terms, dtypes, extra_planes, *other_arrays
        )
        return divide_by_num_tied(total, *counts)

    def pick(self, x: Array) -> Array:
        """Selected element of x in each window, or with `splits_ties` the mean of the selected elements."""
        wide = cast(x, accumulator_dtype(x.dtype))
        planes = self.loop.split_into_planes(wide, 0)
        return cast(
            self.mean_over_selected_taps(lambda tap, element: element, wide.dtype, [planes]),
            x.dtype,
        )

    def divide_among_selected_taps(self, dy: Array) -> Array:
        """dy, divided by the number of selected taps with `splits_ties`."""
        if not self.splits_ties:
            return dy

        def count_selected(state: State, tap: Array, selected: Array) -> list[Array]:
            return [state[0] + selected.astype(np.int32)]

        return divide_by_num_tied(
            dy, *self._fold_selected_taps(self.loop, count_selected, [np.int32])
        )

    def add_to_selected_elements(self, share_of_window: Array, dtype: DType) -> Array:
        """Add the share of each window to its selected elements, and return the result in `dtype`."""

        def share_if_selected(
            tap: Array, share_at_tap: Array, *window_and_element_values: Array
        ) -> Array:
            return slices.where_or_zero(
                self.is_selected(tap, *window_and_element_values), share_at_tap
            )

        dx = self.loop.sum_over_covering_windows(
            share_if_selected,
            [share_of_window, *self.window_arrays],
            *self.element_planes,
            dtype=share_of_window.dtype,
        )
        return cast(
            self.loop.from_planes(dx, self.loop.window.unpooled(share_of_window.shape)), dtype
        )

    def route(self, dy: Array) -> Array:
        """Transpose of `pick`."""
        return self.add_to_selected_elements(
            self.divide_among_selected_taps(cast(dy, accumulator_dtype(dy.dtype))), dy.dtype
        )


def selection_of_tap(loop: TapLoop, tap: Array) -> Selection:
    """The selection of one flat `tap` in each window."""
    return Selection(loop, slices.is_tap_chosen, [tap])


def selection_of_equal_keys(loop: TapLoop, key: Array, y: Array, fill: Any) -> Selection:
    """The selection of all taps of each window whose key equals y; padding holds `fill`."""
    return Selection(
        loop, lambda _, y, key: lax.eq(key, y), [y], [loop.split_into_planes(key, fill)], True
    )
