"""Ranks, morphology and blur of sharded arrays: the plain functions, told where x lies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from jax import Array

import jaxpool
from jaxpool._api import blur, morphology, rank
from jaxpool._arguments.calls import refused

_WHERE = """  mesh: the mesh over which x is sharded; None reads it.
  spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
    `jaxpool.sharded.max_pool`."""


def _sharded(plain: Callable[..., Array], run: Callable[..., Array], shown: str) -> Any:
    """`plain`, with `mesh` and `spec` beside its arguments, computed by `run`.

    `shown` are the arguments and the numbers of the example in its docstring.
    """
    name, known = plain.__name__, inspect.signature(plain)
    where = [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None)
        for each in ("mesh", "spec")
    ]

    def pooled(*args: Any, mesh: Any = None, spec: Any = None, **options: Any) -> Array:
        try:
            given = known.bind(*args, **options)
        except TypeError:
            raise TypeError(refused(pooled, args, options)) from None
        given.apply_defaults()
        return run(f"sharded.{name}", *given.arguments.values(), where=(mesh, spec))

    arguments, numbers = shown.split(" -> ")
    text, _, end = str(inspect.getdoc(plain)).partition("\n\nReturns:")
    pooled.__name__ = pooled.__qualname__ = name
    pooled.__signature__ = known.replace(  # type: ignore[attr-defined]
        parameters=[*known.parameters.values(), *where]
    )
    pooled.__doc__ = f"""Computes `{name}` of an array that is sharded along pooled axes.

{text}
{_WHERE}

Returns:{end.partition("Example:")[0]}Example:
  >>> import jax, jax.numpy as jnp
  >>> import jaxpool.sharded
  >>> from jax.sharding import PartitionSpec
  >>> where = {{"mesh": jax.make_mesh((1,), ("rows",)), "spec": PartitionSpec("rows")}}
  >>> x = jnp.array([0.0, 4.0, 1.0, 3.0])[:, None]
  >>> jaxpool.sharded.{name}(x, {arguments}, **where).ravel()
  Array({numbers}, dtype=float32)

References:{end.partition("References:")[2]}"""
    return pooled


def _median(name: str, x: Any, *args: Any, where: Any) -> Array:
    return rank.pooled(name, x, rank.MEDIAN, *args, where=where)


def _dilated(name: str, *args: Any, where: Any) -> Array:
    return morphology.morphology(name, "max", *args, where=where)


def _eroded(name: str, *args: Any, where: Any) -> Array:
    return morphology.morphology(name, "min", *args, where=where)


median_pool = _sharded(jaxpool.median_pool, _median, "(3,) -> [1., 3.]")
rank_pool = _sharded(jaxpool.rank_pool, rank.pooled, "0, (3,) -> [0., 1.]")
dilate = _sharded(jaxpool.dilate, _dilated, "jnp.array([0.0, 1.0]), axes=(0,) -> [5., 4., 4.]")
erode = _sharded(jaxpool.erode, _eroded, "jnp.array([0.0, 1.0]), axes=(0,) -> [0., 0., 1.]")
blur_pool = _sharded(jaxpool.blur_pool, blur.blurred, "(3,) -> [2. , 2.25, 2.25, 2. ]")
max_blur_pool = _sharded(
    jaxpool.max_blur_pool, blur.max_blurred, "(2,), (3,), (2,) -> [3.75, 3.  ]"
)
