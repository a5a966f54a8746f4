"""What a pool of another library reduces, over which window, and what it returns: asked once for each type of array.

The pool runs on abstract values, so its own checks are made and its own messages raised, and nothing is computed.
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
    """A windowed reduction, and what the function that asked for it made of the result."""

    kind: str  # "max", "min" or "sum", each from its identity
    window: Window
    ndim: int  # of the array that was reduced
    shape: tuple[Any, ...]  # of what the function returns, as the next two
    dtype: Any
    weak_type: bool


class _Listener(Handover):
    """Hears which reductions are bound, and leaves them to lax."""

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        _heard.reductions.append(None)
        window = read(kind, aval, params)
        if len(args) == 1:  # a general reduction has an initial value too
            _heard.reductions[-1] = (kind, window, aval.ndim)
        raise LeftError("it is asked for alone")


_listener = _Listener()
_heard: Any = threading.local()


def asked(function: Callable[..., Any], x: Array, *args: Any) -> Asked | None:
    """The first windowed reduction of `function(x, *args)`; None if our pools do not compute it.

    A call of the same arguments, of the same types, is asked once: it also warns once.
    """
    types = tuple(
        map(type, jax.tree.leaves(args))
    )  # 2 and 2.0 are equal to Python, and may give other dtypes
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
