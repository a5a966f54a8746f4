"""Calls of public functions, meshes, and the comparison of sharded arrays with one device."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding

import jaxpool
from bench import batch
from jaxpool.testing import pools

POOLS = pools()
NUM_DEVICES = 8  # test_eight_devices.py runs the tests that need them
requires_eight_devices = pytest.mark.skipif(
    len(jax.devices()) < NUM_DEVICES, reason="needs eight devices"
)

# Auto: by jaxpool.sharded. Explicit: the type of an array carries its sharding, and unsharded functions read it.
# Manual: by jaxpool.sharded inside a shard_map.
KINDS = ["auto", "explicit", "manual"]
# Mixed: only the first mesh axis is explicit. Plain: automatic axes without jaxpool.sharded.
NUM_EXPLICIT = {"explicit": 3, "mixed": 1}


def axis_types(count, kind):
    explicit = NUM_EXPLICIT.get(kind, 0)
    return tuple(AxisType.Explicit if n < explicit else AxisType.Auto for n in range(count))


def mesh_of(shape, kind):
    return jax.make_mesh(shape, tuple("abc"[: len(shape)]), axis_types(len(shape), kind))


def shard_counts(mesh, spec):
    """Return the number of shards along each array axis that the spec shards."""
    names = {axis: entry for axis, entry in enumerate(spec) if entry is not None}
    return {axis: math.prod(mesh.shape[name] for name in entry) for axis, entry in names.items()}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a public function whose `arrays` have the same sharding, in addition to other arguments.

    `exact` if value and gradient equal those of one device bit by bit.
    """

    name: str
    given: dict[str, Any]
    arrays: dict[str, Any]
    exact: bool

    def run(self, arrays, function=None):
        return POOLS[self.name].run(self.given | arrays, function)

    @property
    def x(self):
        return first_array(self.arrays)

    def on_mesh(self, mesh, spec, kind):
        """Return the call under a sharding, as a function of its arrays."""
        if kind not in ("auto", "manual"):
            return self.run
        sharded = jaxpool.sharded(POOLS[self.name].function, spec=spec)

        def run(arrays):
            return self.run(arrays, sharded)

        if kind == "auto":
            return run
        # shard_map needs the specs of the results: read them from the types of the call under explicit sharding.
        types = axis_types(len(mesh.axis_names), "explicit")
        explicit = mesh.abstract_mesh.update(axis_types=types)
        with jax.sharding.use_abstract_mesh(explicit):
            typed = jax.eval_shape(self.run, types_of(self.arrays, NamedSharding(explicit, spec)))
        out_specs = jax.tree.map(lambda y: y.sharding.spec, typed)
        return jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=out_specs)

    def __str__(self):
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.given.items())})"


def types_of(arrays, sharding=None):
    def type_of(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    return jax.tree.map(type_of, arrays)


def call_of(name, x, **settings):
    """Return a `Call` of the function `name` with images x and those of the settings that are its parameters."""
    pool = POOLS[name]
    given = pool.given(x, **settings)
    given |= {key: value[:2] for key, value in given.items() if key in ("xs", "features")}
    arrays = {key: value for key, value in given.items() if is_array(value)}
    shape = first_array(arrays).shape
    arrays = {k: v for k, v in arrays.items() if isinstance(v, tuple) or v.shape == shape}
    others = {key: value for key, value in given.items() if key not in arrays}
    adds = pool.rounds(given) or pool.topic == "reduce" or "levels" in given
    return Call(name, others, arrays, not adds and given.get("ties") != "split")


def first_array(arrays):
    return jax.tree.leaves(next(iter(arrays.values())))[0]


def is_array(value):
    values = value if isinstance(value, tuple) else [value]
    return all(isinstance(each, np.ndarray) for each in values)


def numbers(shape=(2, 16, 16, 2), seed=0):
    """Random integers from -2 to 2, with many ties."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def special_numbers(shape=(2, 16, 16, 2), seed=0):
    """The array `numbers` with NaNs and -inf, and with -inf alone in its first six rows."""
    x, rng = numbers(shape, seed), np.random.default_rng(seed + 1)
    x[rng.random(shape) < 0.4] = -np.inf
    x[:, :6] = -np.inf
    x[rng.random(shape) < 0.02] = np.nan
    return x


def with_gradient(f):
    """Return `f` with its vector-Jacobian product. Integer cotangents make sums exact in any order of addition."""

    def both(x):
        y, pull, rest = jax.vjp(lambda x: first_and_rest(f(x)), x, has_aux=True)
        dxs = jax.tree.leaves(pull(weights(y)))
        return y, rest, [dx for dx in dxs if dx.dtype != jax.dtypes.float0]

    return both


def weights(y):
    """Cotangents from -3 to 3 that differ from element to element, sharded as y."""
    total = jnp.zeros_like(y, np.int32)
    for axis, step in enumerate((5, 3, 2, 1)[: y.ndim]):
        total = total + step * jax.lax.broadcasted_iota(np.int32, y.shape, axis)
    return (total % 7 - 3).astype(y.dtype)


def first_and_rest(found):
    return (found[0], found[1:]) if isinstance(found, tuple) else (found, ())


def compiled_on_mesh(calls, mesh, spec, kind):
    """Return the compiled values and gradients of calls whose arrays are sharded by `spec`, and the arrays."""
    runs = [with_gradient(each.on_mesh(mesh, spec, kind)) for each in calls]
    xs = jax.device_put([each.arrays for each in calls], NamedSharding(mesh, spec))
    program = jax.jit(lambda xs: [run(x) for run, x in zip(runs, xs, strict=True)])
    return program.lower(xs).compile(), xs


def assert_same_on_mesh(f, xs, specs, shape=(8,), tolerance=0.0, kind="explicit"):
    """Assert that `f` of sharded arrays returns what it returns on one device."""
    mesh = mesh_of(shape, kind)
    want = jax.jit(f)(*xs)
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    with jax.set_mesh(mesh):
        given = [jax.device_put(x, where) for x, where in zip(xs, shardings, strict=True)]
        got = jax.jit(f)(*given)
    assert_close(got, want, tolerance)
    return got


def assert_close(got, want, tolerance=0.0, what=""):
    """Assert that two trees have the same shapes and dtypes, and equal numbers up to the tolerance."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        a, b = (np.asarray(each).astype(np.float64) for each in (a, b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def collectives(f, *xs):
    """List the collectives of a compiled program or a function, with the bytes that one device sends."""
    program = f if isinstance(f, jax.stages.Compiled) else jax.jit(f).lower(*xs).compile()
    return batch.sent_bytes(program.as_text())
