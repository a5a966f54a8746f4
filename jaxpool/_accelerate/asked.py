"""Finds out which windowed reduction a pool of another library binds, by tracing the pool.

The pool runs under `jax.eval_shape`: its own checks are made and its own messages raised, and nothing is computed.
While it runs, a listener stands in front of lax's reductions and notes the first that is bound: whether it is a
maximum, a minimum or a sum, its window, and what the pool returns. The answer is cached for each pool, type of array
and set of arguments.
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
class Asked:
    """The windowed reduction that a function binds, and the type of what the function returns."""

    kind: str  # "max", "min" or "sum"; its initial value is the identity of that: -inf, inf or 0
    window: Window
    ndim: int  # of the array that is reduced, which may have more axes than what the function was given
    shape: tuple[Any, ...]  # of the result of the function, and so are `dtype` and `weak_type`
    dtype: Any
    weak_type: bool


class _Listener(Handover):
    """Notes which reductions are bound while it stands in front of lax's, and leaves each of them to lax.

    None is noted of one that our windows cannot say, or that has an initial value of its own.
    """

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        _heard.reductions.append(None)
        window = read(kind, aval, params)
        if len(args) == 1:  # `lax.reduce_window_p` has the initial value as a second argument
            _heard.reductions[-1] = (kind, window, aval.ndim)
        raise LeftError("it is only looked at")


_listener = _Listener()
_heard: Any = threading.local()


def asked(function: Callable[..., Any], x: Array, *args: Any) -> Asked | None:
    """The first windowed reduction that `function(x, *args)` binds; None if it binds none that our pools compute.

    A function is traced once for the same type of x and the same arguments, so what it warns of is said once too.
    """
    # 2 and 2.0 are equal to Python, and may give other dtypes.
    types = tuple(map(type, jax.tree.leaves(args)))
    if any(issubclass(each, jax.Array) for each in types):
        return None
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion  # type: ignore[attr-defined]
    about = (function, x.shape, x.dtype, x.weak_type, args, types, settings)
    try:
        hash(about)
    except TypeError:
        return _ask.__wrapped__(*about)
    return _ask(*about)


@functools.lru_cache(maxsize=4096)
def _ask(
    function: Callable[..., Any],
    shape: tuple[Any, ...],
    dtype: Any,
    weak_type: bool,
    args: tuple[Any, ...],
    *_: Any,
) -> Asked | None:
    install()
    _heard.reductions = []
    x = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak_type)
    with handing_over(_listener):
        y = jax.eval_shape(lambda x: function(x, *args), x)
    if not _heard.reductions or _heard.reductions[0] is None:
        return None
    kind, window, ndim = _heard.reductions[0]
    return Asked(kind, window, ndim, y.shape, y.dtype, y.weak_type)
