"""A hypothesis strategy for calls of any public function, which draws an argument for each name in the signature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from jaxpool.testing import _sample_calls
from jaxpool.testing._answer import is_floating
from jaxpool.testing._case import Call
from jaxpool.testing._record import Pool
from jaxpool.testing._strategies import geometries
from jaxpool.testing._values import ValueKind, draw_values
from jaxpool.testing._windows import sliding_windows

# Arguments drawn by `geometries`.
GEOMETRY_ARGUMENTS = ("window_shape", "strides", "padding", "window_dilation", "ceil_mode")
MAX_AXIS_SIZE = 6  # elements of a pooled axis


@st.composite
def calls(
    draw: st.DrawFn,
    pool: Pool,
    *,
    dtypes: Sequence[Any] = (np.float32,),
    values: Sequence[ValueKind] | None = None,
) -> Call:
    """Valid calls of a public function with a cotangent, for some dtypes and kinds of values.

    Args:
        draw: Passed by hypothesis.
        pool: The record of the function, from `pools()`.
        dtypes: Dtypes of the arrays.
        values: Kinds of values (see `pool_cases`); None is every kind in `pool.covers`.

    Example:
        >>> from hypothesis import given
        >>> from jaxpool.testing import assert_pool_matches, calls, pools
        >>> @given(calls(pools()["cummax"]))
        ... def test_cummax(call):
        ...     assert_pool_matches(call.pool.function, call)
    """
    kinds = [kind for kind in (values or pool.covers) if kind in pool.covers]
    kind: Any = draw(st.sampled_from(kinds))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape, settings = draw(_image_shape_and_geometry(pool))
    images = draw_values(rng, shape, dtype, kind)
    for name in pool.parameters:
        if name not in settings and (strategy := _argument_strategy(pool, name, shape)) is not None:
            settings[name] = draw(strategy)
    if "kernel" in settings:
        settings["kernel"] = settings["kernel"].astype(dtype)
    call = Call(pool, pool.given(images, **settings))
    if pool.marks or not all(is_floating(np.asarray(x).dtype) for x in call.operands()):
        return call
    y = call.answer().y
    dy = draw_values(rng, y.shape, y.dtype, "ties" if kind == "ties" else "normal")
    return Call(pool, call.given, dy)


@st.composite
def _image_shape_and_geometry(
    draw: st.DrawFn, pool: Pool
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of the images, and the arguments that define the windows."""
    batch, height, width = [
        draw(st.integers(1, limit)) for limit in (2, MAX_AXIS_SIZE, MAX_AXIS_SIZE)
    ]
    shape: tuple[int, ...] = (batch, height, width, 2 * draw(st.integers(1, 2)))
    if pool.takes("window_shape", "output_shape"):  # windows at random positions
        window = draw(st.integers(1, height)), draw(st.integers(1, width))
        limit = height - window[0] + 1, width - window[1] + 1
        return shape, {
            "window_shape": window,
            "output_shape": tuple(draw(st.integers(1, n)) for n in limit),
        }
    if not (pool.takes("window_shape", "padding") or pool.takes("kernel", "padding")):
        return shape, {}
    flags = {"dilation": pool.takes("window_dilation"), "ceil_mode": pool.takes("ceil_mode")}
    geometry = draw(
        geometries(ranks=(2,), layouts=("channels_last",), max_size=MAX_AXIS_SIZE, **flags)
    )
    fields = {name: getattr(geometry, name) for name in GEOMETRY_ARGUMENTS if pool.takes(name)}
    if pool.takes("blur_shape"):  # other paddings may leave no window for the blur
        fields["padding"] = "SAME"
    if pool.takes("kernel"):
        channels = geometry.shape[-1:] if draw(st.booleans()) else ()
        kernel_shape = (*geometry.window_shape, *channels)
        num_entries = math.prod(kernel_shape)
        entries = draw(st.lists(st.integers(-2, 2), min_size=num_entries, max_size=num_entries))
        fields["kernel"] = np.reshape(entries, kernel_shape)
    shape = (*[1] * (4 - len(geometry.shape)), *geometry.shape)
    if pool.takes("rank"):  # a rank that exists in every window
        arguments = {name: getattr(geometry, name) for name in GEOMETRY_ARGUMENTS}
        min_elements = sliding_windows(geometry.shape, **arguments).min_elements_per_window
        fields["rank"] = draw(st.integers(-min_elements, min_elements - 1))
    return shape[-4:], {name: value for name, value in fields.items() if value is not None}


def _argument_strategy(
    pool: Pool, arg_name: str, image_shape: Sequence[int]
) -> st.SearchStrategy[Any] | None:
    """A strategy for argument `arg_name` with images of `image_shape`; None leaves the argument at its usual value."""
    height, width, channels = image_shape[-3:]
    size_pair, size = st.tuples(st.integers(1, height), st.integers(1, width)), st.integers(1, 3)
    coordinate = st.integers(-4, 4 * MAX_AXIS_SIZE).map(lambda quarters: quarters / 4)
    rows = math.prod(image_shape[:-2])
    strategy_by_name: dict[str, st.SearchStrategy[Any]] = {
        "key": st.integers(0, 99).map(jax.random.key),
        "output_shape": size_pair,
        "levels": st.lists(size, min_size=1, max_size=2, unique=True).map(tuple),
        "groups": st.sampled_from([n for n in (1, 2, 4) if channels % n == 0]),
        "k": st.integers(1, height),
        "blur_shape": st.tuples(size, size),
        "boxes": st.lists(st.tuples(*[coordinate] * 4), min_size=3, max_size=3).map(
            lambda rows: np.array(rows, np.float32)
        ),
        "where": st.lists(st.booleans(), min_size=width, max_size=width).map(
            lambda columns: np.array(columns)[:, None]
        ),
        "reset": st.lists(st.booleans(), min_size=height, max_size=height).map(
            lambda starts: np.array(starts).reshape(-1, 1, 1)
        ),
        "segment_ids": st.lists(st.integers(-1, 4), min_size=rows, max_size=rows).map(np.array),
    }
    choices = {"ties": pool.ties, **_sample_calls.SAMPLE_VALUES, **pool.choices}.get(arg_name, ())
    if arg_name == "where" and (not choices or pool.takes("initial")):  # the mask may be all False
        return None
    # These are drawn by `_image_shape_and_geometry`, or stay at their usual value.
    if arg_name in ("rank", "axis", *GEOMETRY_ARGUMENTS):
        return None
    if (arg_name == "key" and None in choices) or arg_name in ("where", "reset"):
        return st.none() | strategy_by_name[arg_name]
    if arg_name in strategy_by_name:
        return strategy_by_name[arg_name]
    return st.sampled_from(choices) if choices else None
