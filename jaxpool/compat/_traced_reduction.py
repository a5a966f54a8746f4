"""Find the windowed reduction that a pool of another library binds, by tracing the pool.

The pool runs under `jax.eval_shape`, so that it checks its arguments and raises its own messages, and nothing is
computed. A `ReductionReplacer` records the reductions that are bound. The result is the kind and window of the first
reduction, and the type of the pool's output. Results are cached for each pool, type of array and set of arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from jaxpool._accelerate.bind import ReductionReplacer, install_dispatcher, replacing_reductions
from jaxpool._accelerate.windows import LeftToLaxError, window_of_lax_reduction
from jaxpool._geometry.window import Window


@dataclasses.dataclass(frozen=True)
class TracedReduction:
    """The windowed reduction that a function binds, and the type of the function's result."""

    kind: str  # "max", "min" or "sum"; its initial value is the identity: -inf, inf or 0
    window: Window
    # Rank of the reduced array, which may have more axes than the function's argument.
    operand_ndim: int
    # The type of the function's result.
    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool


class _ReductionRecorder(ReductionReplacer):
    """Records the reductions that a pool binds, and leaves all of them to lax.

    The record is None for a reduction that our windows do not cover, or that has an explicit initial value.
    """

    def replace_reduction(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        _thread_record.reductions.append(None)
        window = window_of_lax_reduction(kind, aval, params)
        if len(args) == 1:  # `lax.reduce_window_p` has the initial value as a second argument
            _thread_record.reductions[-1] = (kind, window, aval.ndim)
        raise LeftToLaxError("it is recorded only")


_reduction_recorder = _ReductionRecorder()
_thread_record: Any = threading.local()


def trace_first_reduction(
    function: Callable[..., Any], x: Array, *args: Any
) -> TracedReduction | None:
    """The first windowed reduction that `function(x, *args)` binds; None if our pools cannot compute this reduction.

    A function is traced once for the same type of x and the same arguments, so its warnings appear once too.
    """
    # 2 and 2.0 are equal keys, but may give different dtypes.
    arg_types = tuple(map(type, jax.tree.leaves(args)))
    if any(issubclass(arg_type, jax.Array) for arg_type in arg_types):
        return None
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion  # type: ignore[attr-defined]
    cache_key = (function, x.shape, x.dtype, x.weak_type, args, arg_types, settings)
    try:
        hash(cache_key)
    except TypeError:
        return _trace_with_cache.__wrapped__(*cache_key)
    return _trace_with_cache(*cache_key)


@functools.lru_cache(maxsize=4096)
def _trace_with_cache(
    function: Callable[..., Any],
    x_shape: tuple[Any, ...],
    x_dtype: Any,
    x_weak_type: bool,
    args: tuple[Any, ...],
    *_: Any,
) -> TracedReduction | None:
    install_dispatcher()
    _thread_record.reductions = []
    x = jax.ShapeDtypeStruct(x_shape, x_dtype, weak_type=x_weak_type)
    with replacing_reductions(_reduction_recorder):
        y = jax.eval_shape(lambda x: function(x, *args), x)
    if not _thread_record.reductions or _thread_record.reductions[0] is None:
        return None
    kind, window, ndim = _thread_record.reductions[0]
    return TracedReduction(kind, window, ndim, y.shape, y.dtype, y.weak_type)
