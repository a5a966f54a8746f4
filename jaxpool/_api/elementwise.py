"""Elementwise maximum and minimum of several arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._arguments.arrays import check_real, is_array
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.select import Kind, Order, Ties, decode, encode, wins
from jaxpool._kernels.ties import WORD, Words, level, share, tied, word_dtype
from jaxpool._ops.op import Autodiff, Op, apply, choice

Shape = tuple[Any, ...]
NaN = Literal["wins", "loses"]  # against a number; NaNs tie with each other


def _takes(challenger: Array, best: Array, kind: Kind, ties: Order, nan: NaN) -> Array:
    """Where `challenger` takes the place of `best`, which comes before it."""
    if nan == "wins" or not kernels.is_float(best.dtype):
        return wins(challenger, best, kind, ties)
    ahead, level_or_ahead = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    absent = lax.ne(best, best)
    if ties == "first":
        found = lax.bitwise_and(absent, lax.eq(challenger, challenger))
        return lax.bitwise_or(ahead(challenger, best), found)
    return lax.bitwise_or(level_or_ahead(challenger, best), absent)


def _tie_mask(xs: list[Array], best: Array) -> Array:
    """A bit for each of xs, set where it ties with `best`."""
    mask = lax.full_like(best, 0, word_dtype(len(xs)))
    for i, x in enumerate(xs):
        bit = lax.shift_left(level(x, best).astype(mask.dtype), lax.full_like(mask, i))
        mask = lax.bitwise_or(mask, bit)
    return mask


@dataclasses.dataclass(frozen=True)
class Extreme(Op):
    """The elementwise extreme of arrays of `shapes`; keeps which array won, or with "split" a bit for each that did."""

    kind: Kind
    ties: Ties
    shapes: tuple[Shape, ...]
    dtypes: tuple[Any, ...]
    nan: NaN = "wins"

    keeps = False

    @property
    def shape(self) -> Shape:
        return jnp.broadcast_shapes(*self.shapes)

    @property
    def dtype(self) -> Any:
        return jnp.result_type(*self.dtypes)

    def _wide(self, x: Array, dtype: Any) -> Array:
        """x in `dtype`, broadcast to the shape of the result."""
        x, shape = kernels.cast(x, dtype), self.shape
        axes = range(len(shape) - x.ndim, len(shape))
        return lax.broadcast_in_dim(x, shape, axes) if x.shape != shape else x

    def _narrow(self, dx: Array, which: int) -> Array:
        """The transpose of `_wide`: summed over the axes along which x was repeated."""
        shape, dtype = self.shapes[which], self.dtypes[which]
        lead = dx.ndim - len(shape)
        stretched = [
            lead + axis for axis, size in enumerate(shape) if size != dx.shape[lead + axis]
        ]
        axes = (*range(lead), *stretched)
        if axes:
            dx = lax.reshape(jnp.sum(dx, axis=axes, keepdims=True, dtype=dx.dtype), shape)
        return dx.astype(dtype)

    def value(self, *xs: Array) -> Array:
        order = "first" if self.ties == "split" else self.ties
        wide = [decode(self._wide(x, self.dtype)) for x in xs]
        best = wide[0]
        for x in wide[1:]:
            best = lax.select(_takes(x, best, self.kind, order, self.nan), x, best)
        return encode(best, self.dtype)

    def primal(self, *xs: Array) -> tuple[Array, Words]:
        wide = [decode(self._wide(x, self.dtype)) for x in xs]
        if self.ties == "split":
            y = self.value(*xs)
            best = decode(y)
            return y, tuple(_tie_mask(wide[i : i + WORD], best) for i in range(0, len(wide), WORD))
        best, index = wide[0], lax.full_like(wide[0], 0, kernels.index_dtype(len(xs)))
        for i, x in enumerate(wide[1:], 1):
            take = _takes(x, best, self.kind, self.ties, self.nan)
            best, index = (
                lax.select(take, x, best),
                lax.select(take, lax.full_like(index, i), index),
            )
        return encode(best, self.dtype), (index,)

    def _won(self, winners: Words, which: int) -> Array:
        if self.ties != "split":
            return lax.eq(winners[0], lax.full_like(winners[0], which))
        return tied(winners, which)

    def _share(self, total: Array, winners: Words) -> Array:
        """total, divided by how many won."""
        if self.ties != "split":
            return total
        if len(self.shapes) == 2:
            both = lax.eq(winners[0], lax.full_like(winners[0], 3))
            return lax.select(both, total * np.asarray(0.5, total.dtype), total)
        return share(total, winners)

    def linear(self, winners: Words, *tangents: Array | None) -> Array:
        dtype = kernels.accumulator(self.dtype)
        terms = []
        for i, tangent in enumerate(tangents):
            if tangent is None:
                continue
            wide = self._wide(tangent, dtype)
            terms.append(lax.select(self._won(winners, i), wide, lax.full_like(wide, 0)))
        return self._share(functools.reduce(lax.add, terms), winners).astype(self.dtype)

    def transpose(self, winners: Words, dy: Array) -> tuple[Array, ...]:
        part = self._share(dy.astype(kernels.accumulator(dy.dtype)), winners)
        zeros = lax.full_like(part, 0)
        return tuple(
            self._narrow(lax.select(self._won(winners, i), part, zeros), i)
            for i in range(len(self.shapes))
        )


def _operands(kind: Kind, xs: tuple[Any, ...], names: tuple[str, ...] = ()) -> list[Array]:
    """xs as arrays: each keeps a floating dtype of its own, all else is converted to the dtype of the result."""
    together = " and ".join(names) or "xs"
    names = names or tuple(f"xs[{i}]" for i in range(len(xs)))
    if len(xs) < 2:
        raise ArgumentError(
            "xs",
            "at least two arrays",
            len(xs),
            f"For the {kind}imum along an axis use jaxpool.{kind}.",
            TypeError,
        )
    for name, x in zip(names, xs, strict=True):
        if not is_array(x) and not isinstance(x, (bool, int, float)):
            hint = f"Pass jnp.asarray({name})."
            raise ArgumentError(name, "an array or a number", x, hint, TypeError)
        if isinstance(x, np.ndarray | np.generic) and x.dtype.kind not in "biufV":
            rule = "an array of floats, integers or bools"
            raise ArgumentError(name, rule, x.dtype, "Convert it first.", TypeError)
    arrays = [jnp.asarray(x) for x in xs]
    for name, x in zip(names, arrays, strict=True):
        check_real(name, x)
    dtype = jnp.result_type(*xs)
    try:
        jnp.broadcast_shapes(*[x.shape for x in arrays])
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in arrays)
        rule = "of shapes that broadcast together"
        raise ArgumentError(together, rule, shapes, "Reshape them first.") from None
    if all(jax.typeof(x).weak_type for x in arrays):
        return arrays if len({x.dtype for x in arrays}) == 1 else [x * 1.0 for x in arrays]
    own = [kernels.is_float(x.dtype) and not jax.typeof(x).weak_type for x in arrays]
    return [x if keep else x.astype(dtype) for x, keep in zip(arrays, own, strict=True)]


def sharded_alike(xs: Sequence[Array]) -> list[Array]:
    """xs of one shape and sharding, where the type of any of them says how it is sharded; else as they are.

    What jax does for its own elementwise functions; where two are sharded differently along one axis, as the first.
    Cotangents of what is repeated are added up in float32.
    """
    specs = [(jax.typeof(x).sharding.spec, x) for x in xs]
    meshes = [jax.typeof(x).sharding.mesh for spec, x in specs if any(spec)]
    if not meshes:
        return list(xs)
    shape = jnp.broadcast_shapes(*[x.shape for x in xs])
    merged: list[Any] = [None] * len(shape)
    for spec, x in specs:
        for axis, part in enumerate(spec, len(shape) - x.ndim):
            merged[axis] = merged[axis] or (None if part in merged else part)
    sharding = NamedSharding(meshes[0], PartitionSpec(*merged))

    def alike(x: Array) -> Array:
        if x.shape != shape:
            wide = kernels.cast(x, kernels.accumulator(x.dtype))
            x = kernels.cast(jnp.broadcast_to(wide, shape), x.dtype)
        return reshard(x, sharding)

    return [alike(x) for x in xs]


def _extreme(
    name: str,
    kind: Kind,
    xs: tuple[Any, ...],
    ties: Any,
    autodiff: Any,
    nan: NaN = "wins",
    names: tuple[str, ...] = (),
) -> Array:
    with calling(name):
        choice("ties", ties, ("split", "first", "last"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
        arrays = sharded_alike(_operands(kind, xs, names))
    shapes, dtypes = tuple(x.shape for x in arrays), tuple(x.dtype for x in arrays)
    return apply(Extreme(kind, ties, shapes, dtypes, nan), autodiff, *arrays)


def maximum(*xs: Any, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise maximum of two or more arrays.

    `y[i] = max(x1[i], x2[i], ...)`, the arrays broadcast together.

    Gradient: the cotangent goes to the array that won, the others get arrays of zeros; each keeps
      its own shape and dtype.
    What is repeated by broadcasting gets the sum, in float32 for 8- and 16-bit floats. The residual
    is one byte an output element for up to eight arrays. A NaN wins over every number.

    Args:
      *xs: two or more arrays of jax or NumPy, or Python numbers; floats, integers or bool.
      ties: who of equal elements gets the cotangent: "split" among all, the "first" or the "last"
        in the order given.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(*xs)`; weak types stay weak.

    Raises:
      TypeError: fewer than two arrays, or one that is none: a list, a string, None.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` is none of their values.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x, y = jnp.array([1.0, 5.0, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.maximum(x, y)
      Array([3., 5., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.maximum(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 1. , 0.5], dtype=float32), Array([1. , 0. , 0.5], dtype=float32))

    References:
      `jax.numpy.maximum`, whose ties split too; it drops the cotangent of a NaN.
    """
    return _extreme("maximum", "max", xs, ties, autodiff)


def minimum(*xs: Any, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise minimum of two or more arrays.

    `y[i] = min(x1[i], x2[i], ...)`, the arrays broadcast together.

    Gradient: as of `maximum`: to the array that won, zeros to the others. A NaN wins over every
      number.

    Args:
      *xs: two or more arrays of jax or NumPy, or Python numbers; floats, integers or bool.
      ties: who of equal elements gets the cotangent: "split" among all, the "first" or the "last"
        in the order given.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(*xs)`; weak types stay weak.

    Raises:
      TypeError: fewer than two arrays, or one that is none: a list, a string, None.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` is none of their values.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.minimum(jnp.array([1, 5]), 3)
      Array([1, 3], dtype=int32)

    References:
      `jax.numpy.minimum`.
    """
    return _extreme("minimum", "min", xs, ties, autodiff)


def fmax(x: Any, y: Any, *, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise maximum of two arrays, a NaN losing to every number.

    `z[i] = max(x[i], y[i])`, the arrays broadcast together; NaN only where both are NaN.

    Gradient: as of `maximum`: to the array that won, zeros to the other. The cotangent goes to the
    number where the other is NaN; two NaNs tie.

    Args:
      x: array of jax or NumPy, or a Python number; floats, integers or bool.
      y: likewise.
      ties: which of two equal elements gets the cotangent: "split" both, half each, the "first", x,
        or the "last", y.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(x, y)`; weak types stay weak.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` is none of their values.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x, y = jnp.array([1.0, jnp.nan, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.fmax(x, y)
      Array([3., 4., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.fmax(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 0. , 0.5], dtype=float32), Array([1. , 1. , 0.5], dtype=float32))

    References:
      `torch.fmax`, which gives all of a tie to x, and `jax.numpy.fmax`, which gives all to y.
    """
    return _extreme("fmax", "max", (x, y), ties, autodiff, "loses", ("x", "y"))


def fmin(x: Any, y: Any, *, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise minimum of two arrays, a NaN losing to every number.

    `z[i] = min(x[i], y[i])`, the arrays broadcast together; NaN only where both are NaN.

    Gradient: as of `fmax`, to the array that won.

    Args:
      x: array of jax or NumPy, or a Python number; floats, integers or bool.
      y: likewise.
      ties: which of two equal elements gets the cotangent: "split", "first" or "last".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(x, y)`; weak types stay weak.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` is none of their values.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.fmin(jnp.array([1.0, jnp.nan]), 3.0)
      Array([1., 3.], dtype=float32)

    References:
      `torch.fmin`, `jax.numpy.fmin`.
    """
    return _extreme("fmin", "min", (x, y), ties, autodiff, "loses", ("x", "y"))
