"""Find the windowed reduction that a pool of another library binds, by tracing the pool.

The pool runs under `jax.eval_shape`, so that it checks its arguments and raises its own messages, and nothing is
computed. A `Handover` records the reductions that are bound. The result is the kind and window of the first, and the
type of the pool's result. It is cached for each pool, type of array and set of arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from jaxpool._accelerate.bind import Handover, handing_over, install, read
from jaxpool._accelerate.windows import LeftError
from jaxpool._geometry.window import Window


@dataclasses.dataclass(frozen=True)
class TracedReduction:
    """The windowed reduction that a function binds, and the type of the function's result."""

    kind: str  # "max", "min" or "sum"; its initial value is the identity: -inf, inf or 0
    window: Window
    ndim: int  # rank of the reduced array, which may have more axes than the function's argument
    # The type of the function's result.
    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool


class _Recorder(Handover):
    """Record the reductions that are bound, and leave all of them to lax.

    The record is None for a reduction that our windows do not cover, or that has an explicit initial value.
    """

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        _traced.reductions.append(None)
        window = read(kind, aval, params)
        if len(args) == 1:  # `lax.reduce_window_p` has the initial value as a second argument
            _traced.reductions[-1] = (kind, window, aval.ndim)
        raise LeftError("it is recorded only")


_recorder = _Recorder()
_traced: Any = threading.local()


def traced_reduction(function: Callable[..., Any], x: Array, *args: Any) -> TracedReduction | None:
    """The first windowed reduction that `function(x, *args)` binds; None if our pools cannot compute the first.

    A function is traced once for the same type of x and the same arguments, so its warnings appear once too.
    """
    # 2 and 2.0 are equal keys, but may give different dtypes.
    types = tuple(map(type, jax.tree.leaves(args)))
    if any(issubclass(each, jax.Array) for each in types):
        return None
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion  # type: ignore[attr-defined]
    about = (function, x.shape, x.dtype, x.weak_type, args, types, settings)
    try:
        hash(about)
    except TypeError:
        return _trace.__wrapped__(*about)
    return _trace(*about)


@functools.lru_cache(maxsize=4096)
def _trace(
    function: Callable[..., Any],
    shape: tuple[Any, ...],
    dtype: Any,
    weak_type: bool,
    args: tuple[Any, ...],
    *_: Any,
) -> TracedReduction | None:
    install()
    _traced.reductions = []
    x = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak_type)
    with handing_over(_recorder):
        y = jax.eval_shape(lambda x: function(x, *args), x)
    if not _traced.reductions or _traced.reductions[0] is None:
        return None
    kind, window, ndim = _traced.reductions[0]
    return TracedReduction(kind, window, ndim, y.shape, y.dtype, y.weak_type)
