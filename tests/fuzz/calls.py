"""Odd calls: right calls of every function, of which some arguments are changed, and a way of calling."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import jaxpool
from jaxpool.testing import pools
from jaxpool.testing._array_arguments import with_array_arguments
from jaxpool.testing._strategies import arguments_by_name, draw_outline
from tests.support import junk

DTYPES = ["float32", "int32", "bool", "bfloat16", "float16", "uint8", "float8_e4m3fn"]
DTYPES += ["float8_e5m2", "int8", "uint32", "complex64"]
LENGTHS = [0, 1, 2, 7, 33, 64, 2**20]
SMALL = [1, 2, 3, 4, 5, 8, 16, 0, -1, 2**31, 2**63, np.int32(2), 2.0, None]
WORDS = ["last", "SAME_LOWER", "reflect", "nearest", "mirror", "wrap", "constant", "grid-wrap"]
WAYS = ["value", "value", "grad", "vmap", "symbolic", "real"]


def sharded(name):
    """Return a function under `jaxpool.sharded`, with `mesh` and `spec` as additional arguments."""

    def call(*args, mesh, spec, **options):
        return jaxpool.sharded(getattr(jaxpool, name), mesh=mesh, spec=spec)(*args, **options)

    known = inspect.signature(getattr(jaxpool, name))
    named = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in ("mesh", "spec")]
    call.__signature__ = known.replace(parameters=[*known.parameters.values(), *named])
    return call


FUNCTIONS = {name: pool.function for name, pool in pools().items()}
FUNCTIONS |= {f"sharded.{name}": sharded(name) for name in pools()}
FUNCTIONS |= {n: function for n, (function, _) in junk.CALLS.items() if n.startswith("compat.")}


@dataclasses.dataclass
class OddCall:
    """A call of `function` with `arguments` by name, in the way of calling `how`."""

    name: str
    function: Callable = dataclasses.field(repr=False)
    arguments: dict[str, Any]
    how: str
    symbolic_axis: int = 0


def one_in(count, draw):
    return draw(st.integers(1, count)) == count


@st.composite
def odd_calls(draw):
    name = draw(st.sampled_from(list(FUNCTIONS)))
    function, how = FUNCTIONS[name], draw(st.sampled_from(WAYS))
    if name.startswith("compat."):
        arguments, rank = draw_compat_arguments(draw, name)
    else:
        arguments, rank = draw_public_arguments(draw, name.removeprefix("sharded."))
    if name.startswith("sharded."):
        devices = jax.devices()[: draw(st.sampled_from([1, 2, 4]))]
        axes = arguments.get("axes") or (draw(st.integers(0, 2)),)
        spec = PartitionSpec(*[None] * (axes[0] % 4), "rows")
        arguments |= {"mesh": jax.sharding.Mesh(np.array(devices), ("rows",)), "spec": spec}
    for key, parameter in inspect.signature(function).parameters.items():
        if key not in arguments and parameter.default is not parameter.empty and one_in(12, draw):
            arguments[key] = draw(value_like(parameter.default, rank))
        elif key in arguments and one_in(12, draw):
            arguments[key] = draw(changed(arguments[key], rank))
    if one_in(100, draw):
        arguments.pop(draw(st.sampled_from(sorted({*arguments} - {"mesh", "spec"}))), None)
    if one_in(100, draw):
        arguments[draw(st.sampled_from(["stride", "dim", "nothing", "key"]))] = 2
    return OddCall(name, function, arguments, how, draw(st.integers(0, 3)))


def draw_public_arguments(draw, name):
    """Draw the arguments of a right call of a public function, and its number of pooled axes."""
    pool = pools()[name]
    shapes, outline, _ = draw_outline(draw, pool, lambda most: st.integers(1, min(most, 9)))
    dtype = draw(st.sampled_from(DTYPES))
    arrays = [draw_array(draw, shape, dtype) for shape in shapes]
    others = with_array_arguments(pool, shapes[0], outline)
    for key in ("boxes", "batch_indices", "indices", "segment_ids", "where", "reset"):
        if key in others and draw(st.booleans()):
            others[key] = jax.ShapeDtypeStruct(others[key].shape, others[key].dtype)
    if "axes" in others and one_in(12, draw):
        del others["axes"]
    return arguments_by_name(pool, arrays) | others, len(others.get("axes", (0, 1)))


def draw_compat_arguments(draw, name):
    """Draw the arguments of a call of a drop-in, whose array has other sizes than in `junk`."""
    arguments = dict(junk.CALLS[name][1])
    x = arguments["input"]
    rank = draw(st.integers(1, 3)) if "scipy" in name else max(1, x.ndim - 2)
    ndim = rank if "scipy" in name else x.ndim
    dtype = draw(st.sampled_from(DTYPES))
    arguments["input"] = draw_array(draw, draw(st.tuples(*[st.integers(1, 9)] * ndim)), dtype)
    for key in ("indices", "other"):
        if key in arguments:
            arguments[key] = draw_array(draw, arguments["input"].shape, arguments[key].dtype)
    for key in ("kernel_size", "output_size", "size"):
        if key in arguments:
            arguments[key] = draw(per_axis(st.sampled_from(SMALL[:5]), rank))
    return arguments, rank


def draw_array(draw, shape, dtype):
    """Draw a traced array, or a small array of numbers, sometimes with an unusual size."""
    if shape and one_in(12, draw):
        axis = draw(st.integers(0, len(shape) - 1))
        shape = (*shape[:axis], draw(st.sampled_from(LENGTHS)), *shape[axis + 1 :])
    if math.prod(size or 1 for size in shape) > 2**12 or not one_in(12, draw):
        return jax.ShapeDtypeStruct(shape, dtype)
    return (np.arange(math.prod(shape)).reshape(shape) % 7).astype(jnp.dtype(dtype))


def per_axis(values, rank):
    """Strategy of one value, or of one value per axis, sometimes for a wrong number of axes."""
    lists = st.lists(values, min_size=rank, max_size=rank) | st.lists(values, max_size=4)
    return values | lists.map(tuple) | lists | lists.map(functools.partial(np.array, dtype=object))


def value_like(value, rank):
    """Strategy of values of the same kind, or of junk."""
    choices = {bool: [True, False], str: WORDS + junk.WORDS, int: SMALL, float: junk.NUMBERS}
    if type(value) in choices:
        return st.sampled_from(choices[type(value)]) | st.sampled_from(junk.JUNK)
    counts = per_axis(st.sampled_from(SMALL[:9]), rank)
    return counts | st.sampled_from(SMALL) | st.sampled_from(junk.JUNK)


@st.composite
def changed(draw, value, rank):
    """A similar value: an array of another shape or dtype, another number in a tuple."""
    is_array = isinstance(value, (jax.ShapeDtypeStruct, np.ndarray))
    is_tuple_of_arrays = isinstance(value, tuple) and any(hasattr(each, "dtype") for each in value)
    if draw(st.booleans()) or not (is_array or isinstance(value, tuple)):
        return draw(value_like(value, rank))
    if is_array:
        ndim = draw(st.integers(0, value.ndim))
        return draw_array(draw, value.shape[ndim % 2 :], draw(st.sampled_from(DTYPES)))
    if not value or is_tuple_of_arrays:
        return value[:1] + value[:-1]
    at = draw(st.integers(0, len(value) - 1))
    new = draw(st.sampled_from(SMALL))
    return draw(st.sampled_from([tuple, list]))((*value[:at], new, *value[at + 1 :]))
