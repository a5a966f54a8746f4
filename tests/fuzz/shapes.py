"""Expected shapes and dtypes of calls: from the twins of `jaxpool.testing`, which are traced but not run."""

import enum
import operator

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import pools
from jaxpool.testing._record import TUPLE_PARAMETERS

# Limit of sizes and other numbers. Beyond it, a twin lists its windows for minutes.
MAX_NUMBER = 2**10
VALUES_READ_BY_TWINS = (
    "segment_ids",
    "boxes",
    "batch_indices",
)  # twins read the values of these while traced
# PyTorch's names of arguments, and those of jaxpool.
TORCH_ARGUMENT_NAMES = {
    "kernel_size": "window_shape",
    "stride": "strides",
    "padding": "padding",
    "dilation": "window_dilation",
    "ceil_mode": "ceil_mode",
    "output_size": "output_shape",
}


def sizes(value, rank):
    """Return a tuple with an int or None per axis."""
    flat = np.asarray(value, object).ravel().tolist()
    every = flat * rank if len(flat) == 1 else flat
    return tuple(None if each is None else operator.index(each) for each in every)


def expected(name, x, given):
    """Return shapes and dtypes of the results of the function `name` for a main array x, or None if unknown."""
    room, _, short = name.rpartition(".")
    if room == "compat.scipy":
        # SciPy's gradient and Laplacian accept only an array as `output`, and ignore a dtype.
        output = None if short.startswith("morphological_") else given.get("output")
        return [(x.shape, x.dtype if output is None else jax.dtypes.canonicalize_dtype(output))]
    if room == "compat.torch":
        return torch_structs(short, x, given)
    if room == "compat.torchvision":
        cells = sizes(given["output_size"], 2)
        boxes = given["boxes"]
        number = sum(map(len, boxes)) if isinstance(boxes, (list, tuple)) else len(boxes)
        own = cells[0] * cells[1] if short.startswith("ps_") else 1
        return [((number, x.shape[1] // own, *cells), x.dtype)]
    return public_function_structs(pools()[short], x.dtype, given)


def public_function_structs(pool, dtype, given):
    """Return shapes by the twin and dtypes by the record of a public function."""
    if pool.operands in (("xs",), ("x", "y")):
        types = given.get("xs") or (given["x"], given["y"])
        dtype = jnp.result_type(*[int(y) if isinstance(y, enum.IntEnum) else y for y in types])
    if pool.marks:
        dtype = np.bool_
    elif pool.averages(given) and not jnp.issubdtype(dtype, jnp.inexact):  # includes complex
        dtype = np.float32
    found = twin_structs(pool, given)
    return found and [(found[0].shape, dtype), *((y.shape, y.dtype) for y in found[1:])]


def twin_structs(pool, given):
    """Return the results of the twin for arrays of float32, or None if a number exceeds MAX_NUMBER."""
    named = {
        name: twin_argument(pool, name, given)
        for name, parameter in pool.parameters.items()
        if name in given and given[name] is not parameter.default and name != "autodiff"
    }
    leaves = jax.tree.leaves(named)
    numbers = [each for each in leaves if isinstance(each, int)]
    numbers += [size for each in leaves for size in np.shape(each) if isinstance(size, int)]
    if max(numbers, default=0) > MAX_NUMBER:
        return None
    structs = {
        name: named.pop(name)
        for name, value in list(named.items())
        if any(isinstance(each, jax.ShapeDtypeStruct) for each in jax.tree.leaves(value))
    }
    y = jax.eval_shape(lambda arrays: pool.run(named | arrays, pool.twin), structs)
    return jax.tree.leaves(y)


def twin_argument(pool, name, given):
    """Convert an argument for a twin: sizes to a tuple, arrays to shapes."""
    value = given[name]
    if name in TUPLE_PARAMETERS:
        return tuple(map(float32_struct, value))
    if name in pool.operands:
        return float32_struct(value)
    if name in VALUES_READ_BY_TWINS:
        return value if isinstance(value, np.ndarray) else np.zeros(np.shape(value), int)
    if name in ("axes", "levels"):
        return sizes(value, 1)
    if name == "axis":
        return sizes(value, 1) if np.ndim(value) else operator.index(value)
    if name in ("output_shape", "spatial_shape", "window_shape"):
        axes = given.get("axes")
        count = 2 if pool.takes("boxes") else 1 if axes is None else len(sizes(axes, 1))
        return sizes(value, count)
    return value


def float32_struct(x):
    """Return the shape of an array as a float32 struct."""
    x = x.__jax_array__() if hasattr(x, "__jax_array__") else x
    return jax.ShapeDtypeStruct(np.shape(x), np.float32)


def torch_structs(short, x, given):
    """Return shapes and dtypes of a drop-in for PyTorch: pooled axes last, strides default to the window."""
    if not short.endswith("d") or "unpool" in short or given.get("output_size", 1) is None:
        return None
    rank, pool = int(short[-2]), pools()[short[:-2]]
    named = {
        TORCH_ARGUMENT_NAMES[name]: value
        for name, value in given.items()
        if name in TORCH_ARGUMENT_NAMES
    }
    named |= {"x": x, "axes": tuple(range(len(x.shape) - rank, len(x.shape)))}
    stride = named.get("strides")
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        named["strides"] = named.get("window_shape")
    for name in ("window_shape", "strides", "window_dilation", "output_shape"):
        if name in named:
            named[name] = sizes(named[name], rank)
    if "padding" in named:
        named["padding"] = tuple((n, n) for n in sizes(named["padding"], rank))
    named |= {"p": 2.0, "key": jax.random.key(0)}  # without effect on shapes
    found = twin_structs(pool, {name: value for name, value in named.items() if pool.takes(name)})
    adds = pool.takes("p") and not is_infinite(given["norm_type"])
    dtype = np.float32 if adds and not jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    return (
        found
        and [(found[0].shape, dtype), (found[0].shape, np.int32)][
            : 1 + bool(given.get("return_indices"))
        ]
    )


def is_infinite(norm):
    """Return True if a norm is the maximum. A traced norm is not."""
    return not isinstance(norm, jax.ShapeDtypeStruct) and abs(float(norm)) == np.inf
