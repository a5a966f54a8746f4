"""A call of every public function of an array, and the ways in which such an array may lie on a mesh.

The calls are those of `tests.support.junk`, of larger arrays: a function without one there fails here.
"""

import inspect

import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import numbers, with_gradient
from tests.support import junk

NOT_OF_ARRAYS = {"accelerate", "keep_memory"}
FUNCTIONS = sorted(set(jaxpool.__all__) - NOT_OF_ARRAYS)
SHAPE = (4, 8, 8, 4)
WINDOWS = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
LAYOUTS = {  # which axis of the array lies on which axis of the mesh, and how the second axis of the mesh is
    "first": ({0: "a"}, AxisType.Explicit),
    "pooled": ({1: "a"}, AxisType.Explicit),
    "channels": ({-1: "a"}, AxisType.Explicit),
    "two": ({0: "a", 1: "b"}, AxisType.Explicit),
    "first, beside automatic": ({0: "a"}, AxisType.Auto),
    "pooled, beside automatic": ({1: "a"}, AxisType.Auto),
}


def enlarged(value):
    """An argument of `junk.RIGHT` for arrays of SHAPE."""
    shapes = {junk.X.shape: SHAPE, junk.X.shape[1:]: SHAPE[1:]}
    if not isinstance(value, np.ndarray):
        return value
    if value.shape in shapes and value.dtype == np.int32:  # positions to unpool to
        return np.broadcast_to(np.arange(64, dtype=np.int32).reshape(1, 8, 8, 1), SHAPE)
    if value.shape in shapes:
        return numbers(shapes[value.shape])
    if value.shape == (4,):  # segments
        return np.arange(SHAPE[1]) % 4
    if value.shape == (3, 4):  # boxes
        return np.array([[0, 0, 3, 3], [1, 2, 6.5, 7], [2, 2, 4, 4]], np.float32)
    return value


def of_array(name):
    """A function of its array alone, with its gradient, and the array."""
    given = junk.RIGHT[name]
    given = dict(enumerate(given)) if isinstance(given, tuple) else given
    given = {key: enlarged(value) for key, value in given.items()}
    known = inspect.signature(getattr(jaxpool, name)).parameters
    given |= {key: value for key, value in WINDOWS.items() if key in known}
    if "output_shape" in given and "window_shape" in given:  # windows that chance places
        given["window_shape"] = (2, 2)
    first = next(key for key, value in given.items() if isinstance(value, np.ndarray))

    def call(x):
        filled = given | {first: x}
        args = [value for key, value in filled.items() if isinstance(key, int)]
        named = {key: value for key, value in filled.items() if isinstance(key, str)}
        return getattr(jaxpool, name)(*args, **named)

    return with_gradient(call), given[first]


def spec_of(layout, ndim):
    axes, second = LAYOUTS[layout]
    parts = [None] * ndim
    for axis, of_mesh in axes.items():
        parts[axis] = of_mesh
    return P(*parts), (AxisType.Explicit, second)


def refused(run):
    """What `run` gives, or None if it is refused in words of our own."""
    try:
        return run()
    except (TypeError, ValueError) as error:
        if not str(error).startswith("jaxpool."):
            raise
        return None
