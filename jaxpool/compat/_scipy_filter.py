"""What the filters of `scipy.ndimage` take, and the ops that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.avg_pool import avg_pool, sum_pool
from jaxpool._api.max_pool import max_pool, min_pool
from jaxpool._arguments.arrays import as_array, is_array
from jaxpool._arguments.coefficients import number
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import is_int, is_sequence, normalise_axes, per_axis
from jaxpool._geometry.window import make_window
from jaxpool._kernels.dtypes import Kind, is_float
from jaxpool._ops.op import apply
from jaxpool._ops.rank_pool import Morphology, rank_pool

_MODES = {  # SciPy's names of borders, and NumPy's
    **{"reflect": "symmetric", "grid-mirror": "symmetric", "nearest": "edge", "mirror": "reflect"},
    **{"wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant"},
}


class Filter:
    """The arguments that all filters share, checked, in the name of one of them."""

    def __init__(self, name: str, input: Any, output: Any, mode: Any, cval: Any, axes: Any) -> None:
        self.name = f"compat.scipy.{name}"
        self.x = as_array(self.name, jnp.asarray(input) if is_sequence(input) else input, "input")
        with self.checking():
            every = range(self.x.ndim) if axes is None else (axes,) if is_int(axes) else axes
            self.axes = normalise_axes(tuple(every), self.x.ndim, None) if every else ()
            self.modes = tuple(mode) if is_sequence(mode) else (mode,) * len(self.axes)
            if len(self.modes) != len(self.axes) or not all(each in _MODES for each in self.modes):
                rule, hint = f"one of {', '.join(_MODES)}, or one an axis", "Use 'nearest', say."
                raise ArgumentError("mode", rule, mode, hint)
            self.one_mode = not is_sequence(mode)
            self.cval = number("cval", cval, "a number", "Pass 0.0, say.", lambda value: True)
            if is_array(output):
                rule, hint = "a dtype or None: arrays do not change", "Use the result."
                raise ArgumentError("output", rule, type(output), hint, TypeError)
            self.dtype = self.x.dtype if output is None else jnp.dtype(output)

    def checking(self) -> Any:
        """What raises an `ArgumentError` in the name of the filter."""
        return calling(self.name, **{"input.shape": self.x.shape})

    def window(self, size: Any, footprint: Any, structure: Any = None) -> tuple[Any, np.ndarray]:
        """The sizes of the window, and which of its elements take part, flat."""
        mask = footprint if structure is None or footprint is not None else np.ones(structure.shape)
        if mask is None:
            if size is None:
                raise ArgumentError("size", "given without `footprint`", None, "Pass 3, say.")
            shape = per_axis("size", size, len(self.axes))
            return shape, np.arange(np.prod(shape, dtype=int))
        part = np.asarray(mask, bool)
        if (
            part.ndim != len(self.axes)
            or not part.any()
            or (structure is not None and structure.shape != part.shape)
        ):
            rule = f"of {len(self.axes)} axes, those of `structure`, and with an element that takes part"
            raise ArgumentError("footprint", rule, part.shape, "Pass axes=(1, 2), say.", of="shape")
        if not self.one_mode and (structure is not None or not part.all()):
            hint = "Pass one mode."
            raise ArgumentError("mode", "one name with a footprint or structure", self.modes, hint)
        return part.shape, np.flatnonzero(part)

    def padded(
        self, x: Array, sizes: Sequence[int], origins: Sequence[int], axes: Sequence[int]
    ) -> Array:
        """x with its border, as far as windows reach."""
        modes = dict(zip(self.axes, self.modes, strict=True))
        for axis, size, origin in zip(axes, sizes, origins, strict=True):
            low = size // 2 + origin
            if not 0 <= low < size:
                rule = f"from {-(size // 2)} to {(size - 1) // 2}"
                raise ArgumentError("origin", rule, origin, "The window holds its centre.")
            sides = [(0, 0)] * x.ndim
            sides[axis] = (low, size - 1 - low)
            how: Any = _MODES[modes[axis]]
            fill = {"constant_values": np.asarray(self.cval).astype(x.dtype)}
            x = jnp.pad(x, sides, how, **(fill if how == "constant" else {}))
        return x

    def origins(self, origin: Any) -> tuple[int, ...]:
        """One origin an axis."""
        return per_axis("origin", origin, len(self.axes), least=-(2**31))

    def ranked(self, rank: int | None, size: Any, footprint: Any, origin: Any) -> Array:
        """The element of a rank of each window."""
        shape, taps = self.window(size, footprint)
        return self.chosen(rank, shape, taps, self.origins(origin))

    def chosen(
        self, rank: int | None, shape: Sequence[int], taps: np.ndarray, origins: Sequence[int]
    ) -> Array:
        """The element of a rank among `taps` of each window."""
        x = self.padded(self.x, shape, origins, self.axes)
        whole = len(taps) == np.prod(shape, dtype=int)
        if not self.axes:
            return x.astype(self.dtype)
        if whole and rank is not None and rank % len(taps) in (0, len(taps) - 1) and len(taps) > 1:
            pool = min_pool if rank == 0 else max_pool
            return pool(x, tuple(shape), axes=self.axes, autodiff="jvp").astype(self.dtype)
        window = make_window(x.shape, tuple(shape), axes=self.axes)
        part = None if whole else tuple(int(tap) for tap in taps)
        return rank_pool(x, window, rank, "first", "jvp", part).astype(self.dtype)

    def grey(self, kind: Kind, size: Any, footprint: Any, structure: Any, origin: Any) -> Array:
        """The dilation, which turns the window round, or the erosion."""
        kernel = None if structure is None else jnp.asarray(structure)
        shape, taps = self.window(size, footprint, kernel)
        origins = self.origins(origin)
        if kind == "max":
            origins = tuple(-o - (n % 2 == 0) for o, n in zip(origins, shape, strict=True))
            taps = np.sort(int(np.prod(shape)) - 1 - taps)
        if kernel is None:
            return self.chosen(-1 if kind == "max" else 0, shape, taps, origins)
        x = self.padded(self.x, shape, origins, self.axes)
        x = x.astype(jnp.float32) if is_float(kernel.dtype) and not is_float(x.dtype) else x
        weights = lax.reshape(kernel, (kernel.size,) + (1,) * x.ndim).astype(x.dtype)
        window = make_window(x.shape, tuple(shape), axes=self.axes)
        op = Morphology(window, "first", tuple(map(int, taps)), None, kind, None)
        return apply(op, "jvp", x, weights[::-1] if kind == "max" else weights).astype(self.dtype)

    def uniform(self, size: Any, origin: Any) -> Array:
        """The mean of each window, an axis after another, each in the type of the output."""
        x, sizes = self.x, per_axis("size", size, len(self.axes))
        for axis, width, shift in zip(self.axes, sizes, self.origins(origin), strict=True):
            line = self.padded(x, [width], [shift], [axis])
            if is_float(x.dtype) or is_float(self.dtype):
                x = avg_pool(line, width, axes=(axis,), autodiff="jvp").astype(self.dtype)
            else:  # cut off towards 0
                wide = line.astype(jnp.int32) if line.dtype.itemsize < 4 else line
                total = sum_pool(wide, width, axes=(axis,))
                x = lax.div(total, lax.full_like(total, width)).astype(self.dtype)
        return x.astype(self.dtype)
