"""Odd calls: valid calls of public functions with up to two changed arguments, and a way of calling."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jaxpool.testing import Pool, pools
from jaxpool.testing._array_arguments import with_array_arguments
from jaxpool.testing._strategies import arguments_by_name, draw_outline
from tests.support.junk import JUNK

DTYPES = ["float32", "int32", "bool", "bfloat16", "float16", "uint8", "float8_e4m3fn"]
DTYPES += ["float8_e5m2", "int8", "uint32", "complex64"]
LENGTHS = [0, 1, 2, 7, 33, 64, 2**20]
SIZES = [1, 2, 3, 4, 5, 8, 16, 0, -1]
SCALARS = [*SIZES, 2**31, 2**63, np.int32(2), 2.0, None, True, False, "last", "SAME_LOWER"]
WAYS = ["value", "grad", "vmap", "symbolic", "real"]


@dataclasses.dataclass
class OddCall:
    """A call of `pool` with `arguments` by name. `how` is one of `WAYS`, such as under `jax.grad` or `jax.vmap`."""

    pool: Pool
    arguments: dict[str, Any]
    how: str
    symbolic_axis: int = 0


@st.composite
def odd_calls(draw):
    pool = draw(st.sampled_from(list(pools().values())))
    shapes, outline, _ = draw_outline(draw, pool, lambda most: st.integers(1, min(most, 9)))
    dtype = draw(st.sampled_from(DTYPES))
    arrays = [draw_array(draw, shape, dtype) for shape in shapes]
    others = with_array_arguments(pool, shapes[0], outline)
    for name, value in others.items():
        if isinstance(value, np.ndarray) and draw(st.booleans()):
            others[name] = jax.ShapeDtypeStruct(value.shape, value.dtype)
    arguments, rank = arguments_by_name(pool, arrays) | others, len(others.get("axes", (0, 1)))
    names = [name for name in pool.parameters if name != "xs"]
    for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        arguments[name] = draw(changed(arguments.get(name), rank))
    return OddCall(pool, arguments, draw(st.sampled_from(WAYS)), draw(st.integers(0, 3)))


def draw_array(draw, shape, dtype):
    """Draw a traced array, or a small array of numbers, sometimes with an unusual size."""
    if shape and draw(st.integers(0, 11)) == 11:
        axis = draw(st.integers(0, len(shape) - 1))
        shape = (*shape[:axis], draw(st.sampled_from(LENGTHS)), *shape[axis + 1 :])
    if math.prod(shape) > 2**12 or draw(st.integers(0, 11)) < 11:
        return jax.ShapeDtypeStruct(shape, dtype)
    return (np.arange(math.prod(shape)).reshape(shape) % 7).astype(jnp.dtype(dtype))


@st.composite
def changed(draw, value, rank):
    """A similar value (another shape or dtype, another number in a tuple), a number per axis, or junk."""
    kind = draw(st.sampled_from(["similar", "per axis", "scalar", "junk"]))
    if kind == "similar" and isinstance(value, (jax.ShapeDtypeStruct, np.ndarray)):
        first_axis = draw(st.integers(0, 1))
        return draw_array(draw, value.shape[first_axis:], draw(st.sampled_from(DTYPES)))
    if kind == "similar" and isinstance(value, tuple) and value:
        at = draw(st.integers(0, len(value) - 1))
        number = draw(st.sampled_from(SCALARS))
        return (*value[:at], number, *value[at + 1 :])
    if kind in ("similar", "per axis"):
        numbers = draw(st.lists(st.sampled_from(SIZES), min_size=rank - 1, max_size=rank + 1))
        form = draw(st.sampled_from([tuple, list, functools.partial(np.array, dtype=object)]))
        return form(numbers)
    return draw(st.sampled_from(SCALARS if kind == "scalar" else JUNK))
