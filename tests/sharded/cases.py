"""Calls of public functions, meshes, and the comparison of sharded arrays with one device."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
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


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a function with the array argument `first` and further arrays with the same sharding.

    `exact` if value and gradient equal those of one device bit by bit.
    """

    function: Callable[..., Any]
    given: dict[Any, Any]  # by position or by name
    exact: bool
    first: Any = "x"
    other_arrays: tuple[Any, ...] = ()

    @property
    def x(self):
        return self.given[self.first]

    def with_x(self, x):
        return dataclasses.replace(self, given=self.given | {self.first: x})

    def of(self, function):
        """Return the call of `function`, as a function of its sharded arrays. Only the first array is required."""

        def call(*xs):
            filled = self.given | dict(zip((self.first, *self.other_arrays), xs, strict=False))
            args = [value for key, value in filled.items() if isinstance(key, int)]
            named = {key: value for key, value in filled.items() if isinstance(key, str)}
            several = "features" in inspect.signature(self.function).parameters
            return function(args, **named) if several else function(*args, **named)

        return call

    @property
    def plain(self):
        return self.of(self.function)

    def on_mesh(self, mesh, spec, kind):
        """Return the call with arrays sharded by `spec`, as a function of its first array."""
        if kind not in ("auto", "manual"):
            return self.plain
        run = self.of(jaxpool.sharded(self.function, spec=spec))
        if kind == "auto":
            return run
        # shard_map needs the specs of the results: read them from the types of the call under explicit sharding.
        names = mesh.axis_names
        explicit = mesh.abstract_mesh.update(axis_types=axis_types(len(names), "explicit"))
        others = [self.given[key] for key in self.other_arrays]
        where = NamedSharding(explicit, spec)
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for x in (self.x, *others)]
        with jax.sharding.use_abstract_mesh(explicit):
            typed = jax.eval_shape(self.plain, *types)
        outs = jax.tree.map(lambda y: y.sharding.spec, typed)
        mapped = jax.shard_map(run, mesh=mesh, in_specs=(spec,) * len(types), out_specs=outs)
        return lambda x: mapped(x, *map(jnp.asarray, others))

    def __str__(self):
        options = [f"{key}={value}" for key, value in self.given.items() if key != self.first]
        return f"{self.function.__name__}({', '.join(options)})"


def unpooled(x, spatial_shape, window_shape, strides, padding="VALID", axes=None):
    """Max pool, followed by the max unpool of its result."""
    geometry = {"strides": strides, "padding": padding, "axes": axes}
    y, indices = jaxpool.max_pool_with_argmax(x, window_shape, **geometry)
    return jaxpool.max_unpool(y, indices, spatial_shape, axes=axes)


def call(function, *args, **options):
    """Return the call of a public function, given by name, or of `unpooled`. Its array is added by `with_x`."""
    function = getattr(jaxpool, function) if isinstance(function, str) else function
    given = inspect.signature(function).bind(None, *args, **options).arguments
    del given["x"]
    rounds = function is not unpooled and POOLS[function.__name__].rounds(given)
    return Call(function, given, not rounds and options.get("ties") != "split")


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
        return y, rest, pull(weights(y))[0]

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
    xs = [jax.device_put(each.x, NamedSharding(mesh, spec)) for each in calls]
    program = jax.jit(lambda xs: [run(x) for run, x in zip(runs, xs, strict=True)])
    return program.lower(xs).compile(), xs


def assert_equal_to_one_device(calls, mesh, spec, kind, tolerance=2e-5):
    """Compare values and gradients with those of one device. Return the names of the collectives."""
    program, xs = compiled_on_mesh(calls, mesh, spec, kind)

    @jax.jit
    def on_one_device(xs):
        return [with_gradient(each.plain)(x) for each, x in zip(calls, xs, strict=True)]

    wanted = on_one_device([jnp.asarray(each.x) for each in calls])
    for each, x, got, want in zip(calls, xs, program(xs), wanted, strict=True):
        assert_close(got, want, 0.0 if each.exact else tolerance, str(each))
        # Without jaxpool.sharded, XLA chooses the sharding.
        assert kind == "plain" or got[2].sharding.is_equivalent_to(x.sharding, x.ndim), str(each)
    return {name for name, _ in collectives(program)}


def assert_same_on_mesh(f, xs, specs, shape=(8,), tolerance=0.0):
    """Assert that `f` of arrays whose types have a sharding returns what it returns on one device."""
    mesh = mesh_of(shape, "explicit")
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
