"""A call of every public function of an array, and the shardings that the tests apply to the array."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.testing import pools
from jaxpool.testing._record import TUPLE_PARAMETERS
from tests.sharded.cases import numbers

POOLS = pools()
FUNCTIONS = sorted(POOLS)
SHAPE = (4, 8, 8, 4)
SETTINGS = {
    **{"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"},
    **{"output_shape": (4, 2), "levels": (1, 4), "groups": 4},  # four devices divide these
    "kernel": np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32),
}
ROWS = np.broadcast_to(np.arange(8)[:, None, None], SHAPE)
COLUMNS = np.broadcast_to(np.arange(8)[:, None], SHAPE)
MASKED = {  # `where` masks that are False throughout some windows at the border of shards
    **{
        name: {"where": ROWS % 7 < 2}
        for name, pool in POOLS.items()
        if name in ("logsumexp_pool", "min_pool") or (pool.topic == "rank" and pool.takes("where"))
    },
    "avg_pool": {"where": ROWS % 7 < 2, "count_include_pad": False},
    "softmax_pool": {"where": COLUMNS % 5 > 0},
}
LAYOUTS = {  # mesh axis by array axis, and the type of the second mesh axis
    "channels": ({-1: "a"}, AxisType.Explicit),
    "two": ({0: "a", 1: "b"}, AxisType.Explicit),
    "first, beside automatic": ({0: "a"}, AxisType.Auto),
    "pooled, beside automatic": ({1: "a"}, AxisType.Auto),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a public function with the array argument `first` and further arrays with the same sharding."""

    name: str
    given: dict[Any, Any]
    first: Any
    other_arrays: tuple[Any, ...]

    @property
    def xs(self):
        """The array `first`, then the further arrays."""
        return [self.given[key] for key in (self.first, *self.other_arrays)]

    def of(self, pool):
        """Return the call of `pool`, or of a function derived from it, as a function of the arrays `xs`."""

        def call(*xs):
            filled = self.given | dict(zip((self.first, *self.other_arrays), xs, strict=False))
            args = [value for key, value in filled.items() if isinstance(key, int)]
            named = {key: value for key, value in filled.items() if isinstance(key, str)}
            if "features" in POOLS[self.name].operands:
                return pool(args, **named)
            return pool(*args, **named)

        return call

    @property
    def plain(self):
        """The public function, as a function of its first array alone."""
        return self.of(getattr(jaxpool, self.name))


def call_of(name):
    """Return the call of a function, with windows that cross the border of shards."""
    pool = POOLS[name]
    settings = SETTINGS | MASKED.get(name, {})
    if pool.takes("window_shape", "output_shape"):  # windows at random positions
        settings["window_shape"] = (2, 2)
    given = pool.given(numbers(SHAPE[1:] if pool.takes("boxes") else SHAPE), **settings)
    several = next((name for name in TUPLE_PARAMETERS if name in given), None)
    if several is not None:
        arrays = given.pop(several)[:2]
        given = dict(enumerate(arrays)) | given
    arrays = [key for key, value in given.items() if isinstance(value, np.ndarray)]
    first, *rest = arrays
    alike = given[first].shape
    beside = [key for key in rest if isinstance(key, int) or given[key].shape == alike]
    return Call(name, given, first, tuple(beside))


def layout_spec(layout, ndim):
    axes, second = LAYOUTS[layout]
    parts = [None] * ndim
    for axis, of_mesh in axes.items():
        parts[axis] = of_mesh
    return P(*parts), (AxisType.Explicit, second)


def sharded_call(call, axis, kind, mesh):
    """Return `jaxpool.sharded` of a call whose arrays are sharded along `axis` on mesh axis "a", and their spec."""
    spec = P(*[None] * axis, "a")
    run = call.of(jaxpool.sharded(getattr(jaxpool, call.name), spec=spec))
    if kind != "manual":
        return run, spec
    # shard_map needs the specs of the results: read them from the types of the unsharded call under explicit sharding.
    explicit = mesh.abstract_mesh.update(axis_types=(AxisType.Explicit,))
    where = jax.sharding.NamedSharding(explicit, spec)
    likes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for x in call.xs]
    with jax.sharding.use_abstract_mesh(explicit):
        typed = jax.eval_shape(call.plain, *likes)
    out = jax.tree.map(lambda y: y.sharding.spec, typed)
    every = (spec,) * len(likes)
    mapped = jax.shard_map(run, mesh=mesh, in_specs=every, out_specs=out)
    return lambda x: mapped(x, *map(jax.numpy.asarray, call.xs[1:])), spec


def must_raise(call, axis, kind):
    """Return True if the function must raise for an array sharded along `axis`."""
    takes, given = POOLS[call.name].takes, call.given
    if takes("window_shape", "output_shape"):  # windows at random positions
        return axis in (1, 2)
    if takes("boxes"):
        return kind == "manual" and axis < 2
    if takes("output_shape"):  # four devices do not divide two windows
        return axis in (1, 2) and given["output_shape"][axis - 1] % 4 > 0
    if takes("segment_ids"):
        return kind == "manual" and axis == 0
    along = takes("axis") and axis == given.get("axis", -1) % given[call.first].ndim
    return bool(along) and (takes("k") or (takes("reverse") and kind == "manual"))


def must_raise_for_layout(call, layout):
    """Return True if a function must raise for an array whose type has the sharding of a layout."""
    axes, _ = LAYOUTS[layout]
    return any(must_raise(call, axis % call.xs[0].ndim, "explicit") for axis in axes)


def result_or_none(run):
    """Return the result of `run`, or None if it raises an error of jaxpool."""
    try:
        return run()
    except (TypeError, ValueError) as error:
        if not str(error).startswith("jaxpool."):
            raise
        return None
