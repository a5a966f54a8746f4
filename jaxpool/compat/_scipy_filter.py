"""Argument handling, borders and computation of the `scipy.ndimage` filters.

The functions in `scipy.py` create a `Filter` from their arguments and return its result.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.rank import check_rank_in_range
from jaxpool._api.windowed import PoolInput
from jaxpool._arguments.arrays import (
    as_array,
    checked_float,
    is_number,
    replicated,
    wrong_dtype_error,
)
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._arguments.sizes import (
    array_to_list,
    ints_per_axis,
    is_int,
    is_tuple_or_list,
    normalise_axes,
    normalise_axis,
)
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels.dtypes import Kind, float_constant, is_float
from jaxpool._ops.apply import apply
from jaxpool._ops.blur import unpad_window
from jaxpool._ops.morphology import Morphology
from jaxpool._ops.rank_pool import RankPool, apply_rank_pool
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.rank_pool import Rank
from jaxpool._shards.split import sharded_windows
from jaxpool.compat._scipy_args import (
    JNP_PAD_MODES,
    MAX_BORDER_REPEATS,
    MAX_WINDOW_ELEMENTS,
    add_axis_of_size_1,
    as_footprint,
    as_numeric_array,
    cast_preserves_order,
    cast_with_wraparound,
    check_cval_fits_dtype,
    check_static_sizes,
    output_dtype,
)
from jaxpool.compat._scipy_integers import (
    IntegerMorphology,
    addends_of_structure,
    apply_integer_morphology,
    check_window_size,
    integer_mean,
)

_REDUCTIONS_OF_GREY_FILTER: dict[str, tuple[Kind, ...]] = {
    **{"grey_dilation": ("max",), "grey_erosion": ("min",)},
    **{"grey_opening": ("min", "max"), "grey_closing": ("max", "min")},
}
# Filters that are separable without footprint zeros or a structure.
_SEPARABLE_FILTERS = ("maximum_filter", "minimum_filter", *_REDUCTIONS_OF_GREY_FILTER)


@dataclasses.dataclass(frozen=True)
class ExtendedBorderPool:
    """`pool` with `op` over an array whose border is extended by the padding of `window`, with modes of `jnp.pad`."""

    window: Window
    modes: tuple[str, ...]
    cval: Any  # a number
    pool: Callable[..., Array]
    op: Any

    @property
    def saves_x(self) -> Any:
        """True if the residual contains the extended array."""
        return self.op.saves_x


def pool_with_extended_border(op: ExtendedBorderPool, x: Array, *arguments: Array) -> Array:
    """Extend the border of x, and pool the extended array."""
    to_dtype = float_constant if is_float(x.dtype) else np.asarray
    # An argument of the compiled function, so that another value needs no new compilation.
    fill_value = jax.device_put(to_dtype(op.cval, x.dtype))
    return _pool_with_fill_value(dataclasses.replace(op, cval=0), fill_value, x, *arguments)


# Eagerly, jax would transfer numbers, which jax.transfer_guard("disallow") forbids.
@functools.partial(jax.jit, static_argnums=0)
def _pool_with_fill_value(
    op: ExtendedBorderPool, fill_value: Array, x: Array, *arguments: Array
) -> Array:
    for dim, mode in zip(op.window.dims, op.modes, strict=True):
        pad_widths = [
            (dim.low, dim.used_high) if axis == dim.axis else (0, 0) for axis in range(x.ndim)
        ]
        if mode == "constant":
            x = lax.pad(x, fill_value, [(low, high, 0) for low, high in pad_widths])
        else:
            x = jnp.pad(x, pad_widths, mode)
    return op.pool(dataclasses.replace(op.op, window=unpad_window(op.window)), x, *arguments)


def _apply_select_or_rank(op: SelectPool | RankPool, x: Array) -> Array:
    return apply_rank_pool(op, x) if isinstance(op, RankPool) else apply(op, x)


class Filter:
    """One call of the filter `name` with its arguments. Error messages name the function `function_name`."""

    def __init__(self, name: str, input: Any, *, function_name: str, **arguments: Any) -> None:
        self.name, self.function_name, self.arguments = name, function_name, arguments
        with name_function_in_errors(f"compat.scipy.{function_name}"):
            array = as_numeric_array("input", input) if is_tuple_or_list(input) else input
            self.x = as_array(array, "input")
            if self.x.dtype == jnp.float8_e8m0fnu:  # differences have no value in it
                hint = "Pass input.astype(numpy.float32)."
                raise wrong_dtype_error("input", "of a dtype with a zero and a sign", self.x, hint)

    def compute(self) -> Array:
        """The result of the filter."""
        args = self.arguments
        with name_function_in_errors(
            f"compat.scipy.{self.function_name}", **{"input.shape": self.x.shape}
        ):
            ndim, axes = self.x.ndim, args.get("axes")
            if "axis" in args:
                axes = normalise_axis(args["axis"], ndim, "input")
            axes = tuple(range(ndim)) if axes is None else (axes,) if is_int(axes) else axes
            axes_list, shape = array_to_list(axes), self.x.shape
            if is_tuple_or_list(axes_list) and not axes_list:
                self.arguments = args = add_axis_of_size_1(args, ndim)
                axes, self.x = args["axes"], self.x[..., None]
            self.axes = normalise_axes(axes, self.x.ndim, None, "input")
            check_static_sizes(self.x, self.axes)
            num_axes, mode = len(self.axes), array_to_list(args["mode"])
            self.modes = tuple(mode) if is_tuple_or_list(mode) else (mode,) * num_axes
            are_valid = all(isinstance(name, str) and name in JNP_PAD_MODES for name in self.modes)
            if len(self.modes) != num_axes or not are_valid:
                rule = f"one of {', '.join(JNP_PAD_MODES)}, or one per axis"
                raise ArgumentError("mode", rule, args["mode"], "Use 'nearest', say.")
            if not is_number(args["cval"]):
                raise ArgumentError("cval", "a number", args["cval"], "Pass 0.0, say.", TypeError)
            check_cval_fits_dtype(args["cval"], self.x.dtype)
            self.dtype = output_dtype(args["output"], self.x)
            self.origins = ints_per_axis("origin", args["origin"], num_axes, min_value=-(2**31))
            return cast_with_wraparound(
                lax.reshape(self._compute_without_cast(), shape), self.dtype
            )

    def _compute_without_cast(self) -> Array:
        if self.name.startswith("uniform"):
            return self._uniform_filter()
        structure = self.arguments.get("structure")
        kernel = None if structure is None else as_numeric_array("structure", structure)
        if kernel is not None and any(jax.typeof(kernel).sharding.spec):
            self.arguments["structure"] = kernel = replicated(kernel)
        shape, taps = self._window_shape_and_taps(kernel)
        x = self.x
        if self.separable:  # SciPy skips axes of window size 1, so their origin has no effect
            pairs = zip(self.origins, shape, strict=True)
            self.origins = tuple(0 if size == 1 else origin for origin, size in pairs)
        self.casts_per_axis = self.separable and not cast_preserves_order(x.dtype, self.dtype)
        if self.name not in _REDUCTIONS_OF_GREY_FILTER:
            return self._filter_by_rank(x, self._rank_of_filter(len(taps)), shape, taps)
        dtype = x.dtype if kernel is None or x.dtype != np.bool_ else np.dtype(np.uint8)
        *first_kinds, last_kind = _REDUCTIONS_OF_GREY_FILTER[self.name]
        casts_per_axis, self.casts_per_axis = self.casts_per_axis, False
        for kind in first_kinds:
            x = cast_with_wraparound(
                self._dilate_or_erode(x.astype(dtype), kind, shape, taps, kernel), dtype
            )
        self.casts_per_axis = casts_per_axis
        return self._dilate_or_erode(x.astype(dtype), last_kind, shape, taps, kernel)

    def _window_shape_and_taps(self, kernel: Array | None) -> tuple[tuple[int, ...], np.ndarray]:
        """The shape of the window, and the flat indices of its elements that take part."""
        mask, size = self.arguments.get("footprint"), self.arguments["size"]
        if mask is None and kernel is None:
            if size is None:
                rule = "given, or `footprint` in its place"
                raise ArgumentError("size", rule, None, "Pass 3, say.", TypeError)
            shape = ints_per_axis("size", size, len(self.axes))
            self._check_window_sizes("size", shape)
            self.separable = self.name in _SEPARABLE_FILTERS
            return shape, np.arange(math.prod(shape))
        part = as_footprint(
            np.ones(kernel.shape, bool) if mask is None and kernel is not None else mask
        )
        matches = kernel is None or kernel.shape == part.shape
        name = "structure" if mask is None else "footprint"
        if part.ndim != len(self.axes) or not matches:
            also = "" if matches else " and the shape of `structure`"
            rule = f"of {len(self.axes)} axes{also}"
            raise ArgumentError(name, rule, part.shape, "Name as many axes.", attribute="shape")
        if not part.any():
            rule = "of at least one element that takes part"
            hint = f"Pass np.ones({part.shape}), say." if part.size else "Pass no size of 0."
            raise ArgumentError(name, rule, part.shape, hint, attribute="shape")
        self._check_window_sizes(name, part.shape)
        self.separable = kernel is None and bool(part.all()) and self.name in _SEPARABLE_FILTERS
        return part.shape, np.flatnonzero(part)

    def _axes_and_origins(self, origins: Sequence[int]) -> list[tuple[int, int]]:
        """The axes of the window, each with its origin.

        SciPy filters separable windows axis by axis. Other windows follow the axes in ascending order. If such a window
        covers all axes, its origins follow the ascending order too.
        """
        if not self.separable and len(self.axes) == self.x.ndim:
            return [*enumerate(origins)]
        axes_and_origins = [*zip(self.axes, origins, strict=True)]
        return axes_and_origins if self.separable else sorted(axes_and_origins)

    def _check_window_sizes(self, arg_name: str, sizes: Sequence[int]) -> None:
        """Raise for windows of over `MAX_WINDOW_ELEMENTS` elements, or longer than `MAX_BORDER_REPEATS` inputs."""
        spans = [self.x.shape[axis] or width for axis, width in zip(self.axes, sizes, strict=True)]
        too_long = max(sizes) > MAX_BORDER_REPEATS * min(spans) and any(
            width > MAX_BORDER_REPEATS * size
            for lengths in (spans, [size for _, size in sorted(zip(self.axes, spans, strict=True))])
            for width, size in zip(sizes, lengths, strict=True)
        )
        if too_long or math.prod(sizes) > MAX_WINDOW_ELEMENTS:
            rule = f"of at most 2**20 elements, and {MAX_BORDER_REPEATS} times as long as input"
            raise ArgumentError(arg_name, rule, tuple(sizes), "Use a smaller window.")

    def _rank_of_filter(self, num_taps: int) -> Rank:
        if "rank" in self.arguments:
            return check_rank_in_range(self.arguments["rank"], num_taps) % num_taps
        if "percentile" in self.arguments:
            rule, hint = "a number from -100 to 100", "50 is the median, -10 is 90."
            percentile = self.arguments["percentile"]
            percent = checked_float(
                "percentile", percentile, rule, hint, lambda value: abs(value) <= 100
            )
            percent = percent + 100.0 if percent < 0 else percent
            return min(num_taps - 1, int(float(num_taps) * percent / 100.0))
        ranks: dict[str, Rank] = {"max": num_taps - 1, "min": 0, "med": "higher"}
        return ranks[self.name[:3]]

    def _pool_over_window(
        self,
        pool: Callable[..., Array],
        make_op: Callable[[Window], Any],
        window_shape: Sequence[int],
        axes_and_origins: Sequence[tuple[int, int]],
        *xs: Array,
    ) -> Array:
        """Run `pool` with the op `make_op(window)`, for a window of `window_shape` along `axes_and_origins`."""
        padding = []
        for size, (_, origin) in zip(window_shape, axes_and_origins, strict=True):
            low = size // 2 + origin
            if not 0 <= low < size:
                rule = f"from {-(size // 2)} to {(size - 1) // 2}, as the window holds its centre"
                origins, hint = self.arguments["origin"], "Move the window less."
                raise ArgumentError("origin", rule, origins, hint)
            padding.append((low, size - 1 - low))
        axes = tuple(axis for axis, _ in axes_and_origins)
        if any(xs[0].shape[axis] == 0 for axis in axes):
            return xs[0]
        modes = tuple(JNP_PAD_MODES[self.modes[self.axes.index(axis)]] for axis in axes)
        window = make_window(xs[0].shape, window_shape, padding=padding, axes=axes)
        op = ExtendedBorderPool(window, modes, self.arguments["cval"], pool, make_op(window))
        shards = sharded_windows(xs[0], window)
        for halo in () if shards is None else shards.halos:
            if modes[axes.index(halo.dim.axis)] == "wrap":
                rule = f"another where axis {halo.dim.axis} of input lies on several devices"
                raise ArgumentError("mode", rule, self.arguments["mode"], "Use 'nearest', say.")
        if shards is not None and {"symmetric", "reflect"}.intersection(modes):
            shards.check_reflection("input")
        return PoolInput(xs[0], window, shards).apply(pool_with_extended_border, op, *xs)

    def _filter_by_rank(
        self, x: Array, rank: Rank, window_shape: tuple[int, ...], taps: np.ndarray
    ) -> Array:
        if self.casts_per_axis:
            return self._filter_axis_by_axis(x, "max" if rank else "min", window_shape)

        def make_op(window: Window) -> Any:
            if len(taps) == window.size and rank in (0, len(taps) - 1):
                return SelectPool(window, "max" if rank else "min", "first")
            return RankPool(window, "first", tuple(taps.tolist()), rank)

        return self._pool_over_window(
            _apply_select_or_rank, make_op, window_shape, self._axes_and_origins(self.origins), x
        )

    def _filter_axis_by_axis(self, x: Array, kind: Kind, window_shape: tuple[int, ...]) -> Array:
        """The maximum or minimum of each window, axis by axis: SciPy casts to the output dtype after each axis."""
        if "constant" in (JNP_PAD_MODES[mode] for mode in self.modes):
            check_cval_fits_dtype(self.arguments["cval"], self.dtype)
        make_op = functools.partial(SelectPool, kind=kind, ties="first")
        for size, pair in zip(window_shape, self._axes_and_origins(self.origins), strict=True):
            if size > 1:
                x = cast_with_wraparound(
                    self._pool_over_window(_apply_select_or_rank, make_op, (size,), [pair], x),
                    self.dtype,
                )
        return x

    def _dilate_or_erode(
        self,
        x: Array,
        kind: Kind,
        window_shape: tuple[int, ...],
        taps: np.ndarray,
        kernel: Array | None,
    ) -> Array:
        """The dilation (`kind` is "max"), which reflects the window, or the erosion ("min")."""
        origins = self.origins
        if kind == "max":
            self.origins = tuple(
                -o - (n % 2 == 0) for o, n in zip(origins, window_shape, strict=True)
            )
            taps = math.prod(window_shape) - 1 - taps[::-1]
        if kernel is None:
            y = self._filter_by_rank(x, len(taps) - 1 if kind == "max" else 0, window_shape, taps)
        elif is_float(x.dtype):
            weights = lax.reshape(kernel, (kernel.size,) + (1,) * x.ndim).astype(x.dtype)
            weights = weights[::-1] if kind == "max" else weights

            def make_op(window: Window) -> Any:
                return Morphology(window, "first", tuple(taps.tolist()), kind)

            y = self._pool_over_window(
                apply, make_op, window_shape, self._axes_and_origins(self.origins), x, weights
            )
        else:
            if is_float(self.dtype) and is_float(kernel.dtype):
                rule = "of integers, or None, where input is of those and the structure of floats"
                raise ArgumentError("output", rule, self.dtype, "Convert input to floats.")
            addends = addends_of_structure(self.arguments["structure"], int(taps[0]), kind, x)
            make_op = functools.partial(IntegerMorphology, taps=tuple(taps.tolist()), kind=kind)
            y = self._pool_over_window(
                apply_integer_morphology,
                make_op,
                window_shape,
                self._axes_and_origins(self.origins),
                x,
                addends,
            )
        self.origins = origins
        return y

    def _uniform_filter(self) -> Array:
        """The mean of each window, axis by axis, cast to the output dtype after each axis."""
        x, sizes = self.x, ints_per_axis("size", self.arguments["size"], len(self.axes))
        self._check_window_sizes("size", sizes)
        for axis, width, origin in zip(self.axes, sizes, self.origins, strict=True):
            if width == 1 and "axes" in self.arguments:
                continue  # SciPy ignores the origin of an axis of width 1
            is_integer = not is_float(x.dtype) and not is_float(self.dtype)
            if is_integer:
                check_window_size(width, x.dtype)
            elif not is_float(x.dtype):
                x = x.astype(jnp.promote_types(self.dtype, jnp.float32))

            def make_op(window: Window, adds_integers: bool = is_integer) -> Any:
                return SumPool(window, "not" if adds_integers else "counted")

            pool = integer_mean if is_integer else apply
            x = cast_with_wraparound(
                self._pool_over_window(pool, make_op, (width,), [(axis, origin)], x), self.dtype
            )
        return x
