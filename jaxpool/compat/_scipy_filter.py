"""What the filters of `scipy.ndimage` take, and the ops that compute them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.rank import check_rank
from jaxpool._arguments.arrays import as_array, is_array, real_array
from jaxpool._arguments.coefficients import is_number, number
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import is_int, is_sequence, listed, normalise_axes, per_axis
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels.dtypes import Kind, is_float
from jaxpool._ops.blur_pool import over_border
from jaxpool._ops.op import applied
from jaxpool._ops.rank_pool import Morphology, RankPool, ranked
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.split import by_window
from jaxpool.compat._scipy_mean import check_width, whole_mean

_MODES = {  # SciPy's names of borders, and NumPy's
    **{"reflect": "symmetric", "grid-mirror": "symmetric", "nearest": "edge", "mirror": "reflect"},
    **{"wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant"},
}
_GREY: dict[str, tuple[Kind, ...]] = {
    **{"grey_dilation": ("max",), "grey_erosion": ("min",)},
    **{"grey_opening": ("min", "max"), "grey_closing": ("max", "min")},
}
_LARGEST = 2**20  # elements of a window
_REPEATED = 64  # times that a border may repeat the input: jax writes each of them into the program


def _check_filled(x: Array, axes: Sequence[int]) -> None:
    """Raises unless the sizes of `axes` are known, and not 0."""
    for axis in axes:
        if not is_int(x.shape[axis]) or x.shape[axis] == 0:
            rule, hint = f"of a known size along axis {axis}, and not 0", "Name the others in axes."
            raise ArgumentError("input", rule, x.shape, hint, of="shape")


def _check_held(cval: Any, dtype: Any) -> None:
    """Raises unless integers or bools of `dtype` can hold `cval`: SciPy would compare it in float64."""
    if jnp.issubdtype(dtype, jnp.floating):
        return
    low, high = (0, 1) if dtype == np.bool_ else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    if not low - 1 < float(cval) < high + 1:
        rule = f"a number from {low} to {high}, which {dtype} can hold"
        raise ArgumentError("cval", rule, cval, "Convert input to float32 first.")


def _output(output: Any, x: Array) -> np.dtype:
    """The dtype of the result."""
    rule, hint = "a dtype or None: arrays do not change", "Use the result."
    dtype, known = (
        x.dtype,
        not is_array(output),
    )  # NumPy would take the dtype of an array or a number
    if known and output is not None:
        try:
            dtype = jnp.dtype(output)
            known = bool(jnp.issubdtype(dtype, jnp.number) or dtype == np.bool_)
        except Exception:  # what NumPy says of what is no dtype
            known = False
    if not known:
        got = type(output) if is_array(output) else output
        raise ArgumentError("output", rule, got, hint, TypeError)
    return dtype


def _numbers(argument: str, value: Any) -> Array:
    """An array of numbers, or a list of them."""
    if is_sequence(value):
        with contextlib.suppress(
            Exception
        ):  # of traced numbers, or of what jax tells to be no array
            value = np.asarray(value)
    elif not is_array(value):
        raise ArgumentError(argument, "an array", value, "Pass np.zeros((3, 3)), say.", TypeError)
    return real_array(argument, value)


def _bools(mask: Any) -> np.ndarray:
    """A footprint as an array."""
    try:
        return np.asarray(mask, bool)
    except Exception:  # traced, or nothing that NumPy makes an array of
        hint = "Pass np.ones((3, 3), bool), say."
        raise ArgumentError("footprint", "an array of bools", mask, hint, TypeError) from None


@dataclasses.dataclass(frozen=True)
class Continued:
    """`pool` of `op` over an array that continues beyond its border, where `window` has padding, by NumPy's `modes`."""

    window: Window
    modes: tuple[str, ...]
    cval: Any  # a number
    pool: Callable[..., Array]
    op: Any


def continued(op: Continued, x: Array, *given: Array) -> Array:
    """What the pool computes."""
    fill = np.asarray(op.cval).astype(x.dtype)
    for dim, mode in zip(op.window.dims, op.modes, strict=True):
        sides = [(dim.low, dim.tail) if axis == dim.axis else (0, 0) for axis in range(x.ndim)]
        more: dict[str, Any] = {"constant_values": fill} if mode == "constant" else {}
        x = jnp.pad(x, sides, mode, **more)
    return op.pool(dataclasses.replace(op.op, window=over_border(op.window)), x, *given)


def _chosen(op: SelectPool | RankPool, x: Array) -> Array:
    return ranked(op, x) if isinstance(op, RankPool) else applied(op, x)


class Filter:
    """One call of the filter `name`, by its arguments."""

    def __init__(self, name: str, input: Any, **given: Any) -> None:
        self.name, self.given = name, given
        full = f"compat.scipy.{name}"
        with calling(full):
            array = _numbers("input", input) if is_sequence(input) else input
        self.x = as_array(full, array, "input")

    def result(self) -> Array:
        """What the filter gives."""
        given = self.given
        with calling(f"compat.scipy.{self.name}", **{"input.shape": self.x.shape}):
            axes = given["axis"] if "axis" in given else given["axes"]
            ndim = self.x.ndim
            if "axis" in given and (not is_int(axes) or not -ndim <= operator.index(axes) < ndim):
                rule = f"an int from {-ndim} to {ndim - 1}"
                kind = ValueError if is_int(axes) else TypeError
                raise ArgumentError("axis", rule, axes, "Name an axis of input.", kind)
            axes = tuple(range(ndim)) if axes is None else (axes,) if is_int(axes) else axes
            self.axes = normalise_axes(axes, ndim, None, "input")
            _check_filled(self.x, self.axes)
            count, mode = len(self.axes), given["mode"]
            mode = listed(mode)
            self.modes = tuple(mode) if is_sequence(mode) else (mode,) * count
            known = all(isinstance(each, str) and each in _MODES for each in self.modes)
            if len(self.modes) != count or not known:
                rule = f"one of {', '.join(_MODES)}, or one an axis"
                raise ArgumentError("mode", rule, mode, "Use 'nearest', say.")
            if not is_number(given["cval"]):
                raise ArgumentError("cval", "a number", given["cval"], "Pass 0.0, say.", TypeError)
            _check_held(given["cval"], self.x.dtype)
            self.dtype = _output(given["output"], self.x)
            self.origins = per_axis("origin", given["origin"], count, least=-(2**31))
            return self._computed().astype(self.dtype)

    def _computed(self) -> Array:
        if self.name.startswith("uniform"):
            return self._uniform()
        structure = self.given.get("structure")
        kernel = None if structure is None else _numbers("structure", structure)
        shape, taps = self._window(kernel)
        x = self.x
        for kind in _GREY.get(self.name, ()):
            x = self._grey(x, kind, shape, taps, kernel)
        return x if self.name in _GREY else self._ranked(x, self._rank(len(taps)), shape, taps)

    def _window(self, kernel: Array | None) -> tuple[tuple[int, ...], np.ndarray]:
        """The sizes of the window, and which of its elements take part, flat."""
        mask, size = self.given.get("footprint"), self.given["size"]
        if mask is None and kernel is None:
            if size is None:
                rule = "given, or `footprint` in its place"
                raise ArgumentError("size", rule, None, "Pass 3, say.", TypeError)
            shape = per_axis("size", size, len(self.axes))
            self._check_sizes("size", shape)
            return shape, np.arange(math.prod(shape))
        part = _bools(np.ones(kernel.shape, bool) if mask is None and kernel is not None else mask)
        fits = kernel is None or kernel.shape == part.shape
        named = "structure" if mask is None else "footprint"
        if part.ndim != len(self.axes) or not fits:
            rule = f"of {len(self.axes)} axes" + ("" if fits else " and the shape of `structure`")
            raise ArgumentError(named, rule, part.shape, "Name as many axes.", of="shape")
        if not part.any():
            rule = "of at least one element that takes part"
            raise ArgumentError(named, rule, part.shape, "Pass np.ones((3, 3)).", of="shape")
        self._check_sizes(named, part.shape)
        return part.shape, np.flatnonzero(part)

    def _check_sizes(self, argument: str, sizes: Sequence[int]) -> None:
        """Raises for windows that no program should hold: long ones, and those that repeat the input often."""
        known = [self.x.shape[axis] for axis in self.axes]
        far = any(width > _REPEATED * size for width, size in zip(sizes, known, strict=True))
        if far or math.prod(sizes) > _LARGEST:
            rule = f"of at most 2**20 elements, and {_REPEATED} times as long as input"
            raise ArgumentError(argument, rule, tuple(sizes), "Use a smaller window.")

    def _rank(self, count: int) -> int | None:
        if "rank" in self.given:
            return check_rank(self.given["rank"], count) % count
        if "percentile" in self.given:
            rule, hint = "a number from -100 to 100", "50 is the median, -10 is 90."
            percentile = self.given["percentile"]
            share = number("percentile", percentile, rule, hint, lambda value: abs(value) <= 100)
            share = share + 100.0 if share < 0 else share
            return min(count - 1, int(float(count) * share / 100.0))
        ranks = {"max": count - 1, "min": 0, "med": None}
        return ranks[self.name[:3]]

    def _over(
        self,
        pool: Callable[..., Array],
        make: Callable[[Window], Any],
        shape: Sequence[int],
        where: Sequence[tuple[int, int]],
        *xs: Array,
    ) -> Array:
        """`pool` of the op that `make` makes of a window of `shape`, at the axes and the origins of `where`."""
        sides = []
        for size, (_, origin) in zip(shape, where, strict=True):
            low = size // 2 + origin
            if not 0 <= low < size:
                rule = f"from {-(size // 2)} to {(size - 1) // 2}, as the window holds its centre"
                raise ArgumentError("origin", rule, origin, "Move the window less.")
            sides.append((low, size - 1 - low))
        axes = tuple(axis for axis, _ in where)
        modes = tuple(_MODES[self.modes[self.axes.index(axis)]] for axis in axes)
        window = make_window(xs[0].shape, shape, padding=sides, axes=axes)
        op = Continued(window, modes, self.given["cval"], pool, make(window))
        split = by_window(xs[0], window)
        if not split:
            return continued(op, *xs)
        for halo in split.shards.halos:
            if modes[axes.index(halo.dim.axis)] == "wrap":
                rule = f"another where axis {halo.dim.axis} of input lies on several devices"
                raise ArgumentError("mode", rule, self.given["mode"], "Use 'nearest', say.")
        if {"symmetric", "reflect"}.intersection(modes):
            split.check_reflected("input")
        y: Array = split.apply(continued, op, *xs)
        return y

    def _ranked(
        self, x: Array, rank: int | None, shape: tuple[int, ...], taps: np.ndarray
    ) -> Array:
        def make(window: Window) -> Any:
            if len(taps) == window.size and rank in (0, len(taps) - 1):
                return SelectPool(window, "max" if rank else "min", "first")
            return RankPool(window, "first", tuple(taps.tolist()), rank)

        return self._over(_chosen, make, shape, [*zip(self.axes, self.origins, strict=True)], x)

    def _grey(
        self, x: Array, kind: Kind, shape: tuple[int, ...], taps: np.ndarray, kernel: Array | None
    ) -> Array:
        """The dilation, which turns the window round, or the erosion."""
        origins = self.origins
        if kind == "max":
            self.origins = tuple(-o - (n % 2 == 0) for o, n in zip(origins, shape, strict=True))
            taps = math.prod(shape) - 1 - taps[::-1]
        if kernel is None:
            y = self._ranked(x, len(taps) - 1 if kind == "max" else 0, shape, taps)
        else:
            wide = x.astype(jnp.float32) if is_float(kernel.dtype) > is_float(x.dtype) else x
            flat = lax.reshape(kernel, (kernel.size,) + (1,) * x.ndim).astype(wide.dtype)
            flat = flat[::-1] if kind == "max" else flat
            where = [*zip(self.axes, self.origins, strict=True)]

            def make(window: Window) -> Any:
                return Morphology(window, "first", tuple(taps.tolist()), None, kind, None)

            y = self._over(applied, make, shape, where, wide, flat).astype(x.dtype)
        self.origins = origins
        return y

    def _uniform(self) -> Array:
        """The mean of each window, an axis after another, each in the type of the output."""
        x, sizes = self.x, per_axis("size", self.given["size"], len(self.axes))
        self._check_sizes("size", sizes)
        for axis, width, origin in zip(self.axes, sizes, self.origins, strict=True):
            if width == 1 and "axes" in self.given:
                continue  # SciPy ignores the origin there
            whole = not is_float(x.dtype) and not is_float(self.dtype)
            if whole:
                check_width(width, x.dtype)
            elif not is_float(x.dtype):
                x = x.astype(jnp.promote_types(self.dtype, jnp.float32))

            def make(window: Window, whole: bool = whole) -> Any:
                return SumPool(window, "not" if whole else "counted")

            pool = whole_mean if whole else applied
            x = self._over(pool, make, (width,), [(axis, origin)], x).astype(self.dtype)
        return x
