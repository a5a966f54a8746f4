"""What an argument is in a right call, by its name: the calls of a record follow from the signature of its function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing._values import draw_values

LEFT_OUT = object()  # of an argument that stays at its default
# Arguments that have a default, and are given all the same where the signature has the other.
WITH = {"num_segments": "segment_ids", "batch_indices": "boxes"}
BOXES = np.array([[0.1, 0.05, 0.8, 0.9], [0.3, -0.2, 1.1, 0.6], [0.25, 0.3, 0.5, 0.7]], np.float32)
ROWS = 4  # segments


def value(pool: Any, name: str, x: Any, given: Mapping[str, Any]) -> Any:
    """Argument `name` of a call that pools the images x; `given` holds the arguments before it."""
    if name not in _BY_NAME:
        hint = (
            f"give it to `@record(usual={{{name!r}: lambda x: ...}})` in `jaxpool/testing/oracle`"
        )
        raise LookupError(
            f"jaxpool.{pool.name} has no usual value for its argument `{name}`: {hint}, or a "
            "value for every function to `jaxpool/testing/_usual.py`."
        )
    return _BY_NAME[name](pool, x, given)


def _array(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    """The images; of functions of rows those of all images."""
    return x.reshape(-1, *x.shape[-2:]) if pool.takes("segment_ids") else x


def _second(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    return x[..., ::-1, :] if "x" in given else x


def _kernel(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    return np.array([[0, 1], [2, 1]]).astype(x.dtype)


def _indices(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    """A position of its own for each element, anywhere in its 2x2 patch of an array of twice the size."""
    height, width = x.shape[-3:-1]
    rows, columns = np.indices((height, width))
    tap = (3 * rows + columns) % 4
    flat = (2 * rows + tap // 2) * 2 * width + 2 * columns + tap % 2
    flat = flat[..., None].astype(np.int32)
    known = all(isinstance(size, int) for size in x.shape)
    return np.broadcast_to(flat, x.shape) if known else jnp.broadcast_to(flat, x.shape)


def _boxes(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    """In quarters of a pixel, so that no coordinate is rounded."""
    size = np.array([*x.shape[-3:-1]] * 2, np.float32)
    return np.round(BOXES * size * 4) / 4


def _images(pool: Any, x: Any, given: Mapping[str, Any]) -> Any:
    if x.ndim == 3 or np.ndim(given["boxes"]) == 3:  # the boxes of each image
        return LEFT_OUT
    count = x.shape[0] if isinstance(x.shape[0], int) else 1  # of a symbol nothing more is known
    return np.arange(len(BOXES), dtype=np.int32) % min(count, len(BOXES))


_BY_NAME = {
    "x": _array,
    "y": _second,
    "xs": lambda pool, x, given: (x, x[..., ::-1, :], x[..., :1]),
    "features": lambda pool, x, given: (x, x[..., ::2, ::2, :]),  # a pyramid of two levels
    "key": lambda pool, x, given: jax.random.key(0),
    "window_shape": lambda pool, x, given: (2, 2),
    "output_shape": lambda pool, x, given: (2, 2),
    "strides": lambda pool, x, given: (2, 2),
    "blur_shape": lambda pool, x, given: (3, 3),
    "kernel": _kernel,
    "p": lambda pool, x, given: 3.0,
    "rank": lambda pool, x, given: 0,
    "k": lambda pool, x, given: 2,
    "groups": lambda pool, x, given: 2,
    "levels": lambda pool, x, given: (1, 2),
    "indices": _indices,
    "spatial_shape": lambda pool, x, given: tuple(2 * size for size in x.shape[-3:-1]),
    "boxes": _boxes,
    "batch_indices": _images,
    "segment_ids": lambda pool, x, given: np.arange(math.prod(x.shape[:-2])) * 7 % ROWS,
    "num_segments": lambda pool, x, given: ROWS,
}
# Which columns count, of images and of rows alike. Windows of two may hold none.
COLUMNS = np.array([[True], [False], [False], [False], [True], [True]])
# Values of arguments worth a call of their own, by name, where the function takes them.
CHOICES: dict[str, tuple[Any, ...]] = {
    "strides": ((1, 2),),
    "padding": ("SAME", "SAME_LOWER"),
    "window_dilation": ((1, 2),),
    "ceil_mode": (True,),
    "keepdims": (True,),
    "reverse": (True,),
    "kind": ("max", "avg"),
    "aligned": (False,),
    "indices_are_sorted": (False,),
    "where": (COLUMNS,),
}
SMALL, LONG = (2, 4, 6, 4), (1, 4, 70, 2)


def samples(pool: Any) -> dict[str, dict[str, Any]]:
    """The calls of a record by name."""
    rng = np.random.default_rng(0)

    def images(shape: tuple[int, ...], values: str, dtype: Any = np.float32) -> np.ndarray:
        kind: Any = values if values in pool.covers else pool.covers[0]
        return draw_values(rng, shape, dtype, kind)

    small = images(SMALL, "normal")
    found = {"small": pool.given(small), "integers": pool.given(images(SMALL, "ties", np.int32))}
    long = {"window_shape": (2, 35)} if not pool.takes("output_shape", "window_shape") else {}
    found["long"] = pool.given(images(LONG, "normal"), **long)
    if "special" in pool.covers:
        found["special values"] = pool.given(images(SMALL, "special"))
    every = {"ties": pool.ties, **CHOICES, **pool.choices}
    for name, values in every.items():
        for each in values if pool.takes(name) else ():
            words = f"with {name}" if isinstance(each, np.ndarray) else f"{name}={each}"
            # Where a mask may leave nothing over whole axes, the value of that must be told.
            more = {"initial": 0.5} if name == "where" and pool.takes("initial") else {}
            found[words] = pool.given(small, **{name: each}, **more)
    return found
