"""Usual values of arguments by name. A record builds valid calls of its function from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing._values import draw_values

OMIT_ARGUMENT = object()  # marks an argument that stays at its default
# Optional arguments that are passed if the signature also has the argument on the right.
PARTNER_ARGUMENTS = {"num_segments": "segment_ids", "batch_indices": "boxes"}
RELATIVE_BOXES = np.array(
    [[0.1, 0.05, 0.8, 0.9], [0.3, -0.2, 1.1, 0.6], [0.25, 0.3, 0.5, 0.7]], np.float32
)
NUM_SEGMENTS = 4


def usual_value(pool: Any, arg_name: str, images: Any, earlier_arguments: Mapping[str, Any]) -> Any:
    """Value of argument `arg_name` in a call that pools `images`; `earlier_arguments` holds the preceding arguments."""
    if arg_name in _CONSTANTS:
        return _CONSTANTS[arg_name]
    if arg_name == "x" and pool.takes("segment_ids"):  # all image rows along one axis
        return images.reshape(-1, *images.shape[-2:])
    if arg_name in _VALUES:
        return _VALUES[arg_name](images, earlier_arguments)
    hint = (
        f"give it to `@record(usual={{{arg_name!r}: lambda x: ...}})` in `jaxpool/testing/oracle`"
    )
    raise LookupError(
        f"jaxpool.{pool.name} has no usual value for its argument `{arg_name}`: {hint}, or a "
        "value for every function to `jaxpool/testing/_sample_calls.py`."
    )


def _unpool_indices(images: Any, earlier_arguments: Mapping[str, Any]) -> Any:
    """A distinct index for each element, inside its 2x2 patch of an array of twice the size."""
    height, width = images.shape[-3:-1]
    rows, columns = np.indices((height, width))
    tap = (3 * rows + columns) % 4
    index = (2 * rows + tap // 2) * 2 * width + 2 * columns + tap % 2
    index = index[..., None].astype(np.int32)
    is_int = all(isinstance(size, int) for size in images.shape)
    return np.broadcast_to(index, images.shape) if is_int else jnp.broadcast_to(index, images.shape)


def _boxes(images: Any, earlier_arguments: Mapping[str, Any]) -> Any:
    """Boxes in multiples of a quarter pixel, which floats represent exactly."""
    size = np.array([*images.shape[-3:-1]] * 2, np.float32)
    return np.round(RELATIVE_BOXES * size * 4) / 4


def _batch_indices(images: Any, earlier_arguments: Mapping[str, Any]) -> Any:
    # `batch_indices` is not needed for a single image, or for one list of boxes per image.
    if images.ndim == 3 or np.ndim(earlier_arguments["boxes"]) == 3:
        return OMIT_ARGUMENT
    # A symbolic batch size is at least 1.
    num_images = images.shape[0] if isinstance(images.shape[0], int) else 1
    return np.arange(len(RELATIVE_BOXES), dtype=np.int32) % min(num_images, len(RELATIVE_BOXES))


_CONSTANTS = {
    "window_shape": (2, 2),
    "output_shape": (2, 2),
    "strides": (2, 2),
    "blur_shape": (3, 3),
    "p": 3.0,
    "rank": 0,
    "k": 2,
    "groups": 2,
    "levels": (1, 2),
    "num_segments": NUM_SEGMENTS,
}
_VALUES = {
    "x": lambda x, earlier: x,
    "y": lambda x, earlier: x[..., ::-1, :] if "x" in earlier else x,
    "xs": lambda x, earlier: (x, x[..., ::-1, :], x[..., :1]),
    "features": lambda x, earlier: (x, x[..., ::2, ::2, :]),  # a pyramid of two levels
    "key": lambda x, earlier: jax.random.key(0),
    "kernel": lambda x, earlier: np.array([[0, 1], [2, 1]]).astype(x.dtype),
    "indices": _unpool_indices,
    "spatial_shape": lambda x, earlier: tuple(2 * size for size in x.shape[-3:-1]),
    "boxes": _boxes,
    "batch_indices": _batch_indices,
    "segment_ids": lambda x, earlier: np.arange(math.prod(x.shape[:-2])) * 7 % NUM_SEGMENTS,
}
# `where` mask over columns, for images and for rows. It is all False in some windows of two columns.
WHERE_MASK = np.array([[True], [False], [False], [False], [True], [True]])
# Argument values that each get a sample call, by argument name, for functions with that argument.
SAMPLE_VALUES: dict[str, tuple[Any, ...]] = {
    "strides": ((1, 2),),
    "padding": ("SAME", "SAME_LOWER"),
    "window_dilation": ((1, 2),),
    "ceil_mode": (True,),
    "keepdims": (True,),
    "reverse": (True,),
    "kind": ("max", "avg"),
    "aligned": (False,),
    "indices_are_sorted": (False,),
    "where": (WHERE_MASK,),
}
SMALL_SHAPE, LONG_SHAPE = (2, 4, 6, 4), (1, 4, 70, 2)


def sample_calls(pool: Any) -> dict[str, dict[str, Any]]:
    """The calls of a record by name."""
    rng = np.random.default_rng(0)

    def random_images(shape: tuple[int, ...], values: str, dtype: Any = np.float32) -> np.ndarray:
        kind: Any = values if values in pool.covers else pool.covers[0]
        return draw_values(rng, shape, dtype, kind)

    small_images = random_images(SMALL_SHAPE, "normal")
    calls = {
        "small": pool.given(small_images),
        "integers": pool.given(random_images(SMALL_SHAPE, "ties", np.int32)),
    }
    window = {"window_shape": (2, 35)} if not pool.takes("output_shape", "window_shape") else {}
    calls["long"] = pool.given(random_images(LONG_SHAPE, "normal"), **window)
    if "special" in pool.covers:
        calls["special values"] = pool.given(random_images(SMALL_SHAPE, "special"))
    choices = {"ties": pool.ties, **SAMPLE_VALUES, **pool.choices}
    for name, values in choices.items():
        for choice in values if pool.takes(name) else ():
            label = f"with {name}" if isinstance(choice, np.ndarray) else f"{name}={choice}"
            # Reductions over whole axes need `initial` with a mask that may be all False.
            initial = {"initial": 0.5} if name == "where" and pool.takes("initial") else {}
            calls[label] = pool.given(small_images, **{name: choice}, **initial)
    return calls
