"""Shared by the tests of sharded pools: meshes, pools with arguments, and comparison with the unsharded function."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from bench import batch

NUM_DEVICES = 8
requires_eight_devices = pytest.mark.skipif(
    len(jax.devices()) < NUM_DEVICES, reason="test_eight_devices.py runs it, on eight devices"
)

# Explicit: the type of an array carries its sharding, and unsharded functions read it. Manual: inside a shard_map.
KINDS = ["auto", "explicit", "manual"]
LAYOUTS = {  # mesh shape, and spec of an array of four axes
    "rows over 8": ((8,), P(None, "a")),
    "rows over 4 x 2": ((4, 2), P(None, ("a", "b"))),
    "rows over 4, columns over 2": ((4, 2), P(None, "a", "b")),
    "batch, rows and columns over 2 each": ((2, 2, 2), P("a", "b", "c")),
}


def mesh_of(shape, kind):
    axis = AxisType.Explicit if kind == "explicit" else AxisType.Auto
    return jax.make_mesh(shape, tuple("abc"[: len(shape)]), (axis,) * len(shape))


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool and its arguments; `exact` if value and gradient equal those of the unsharded pool bit by bit."""

    op: str
    args: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()
    exact: bool = True
    whole: bool = False

    def plain(self, x):
        return getattr(jaxpool, self.op)(x, *self.args, **dict(self.options))

    def sharded(self, x, spec):
        pool = jaxpool.sharded(getattr(jaxpool, self.op), spec=spec)
        return pool(x, *self.args, **dict(self.options))

    def __str__(self):
        options = [f"{name}={value}" for name, value in self.options]
        return f"{self.op}({', '.join([*map(str, self.args), *options])})"


@dataclasses.dataclass(frozen=True)
class Unpooled(Pool):
    """A max pool of an array with pooled axes of sizes `args[0]`, followed by the max unpool of its result."""

    def plain(self, x):
        return self._both(lambda pool: pool, x)

    def sharded(self, x, spec):
        return self._both(functools.partial(jaxpool.sharded, spec=spec), x)

    def _both(self, platform, x):
        sizes, *args = self.args
        y, indices = platform(jaxpool.max_pool_with_argmax)(x, *args, **dict(self.options))
        return platform(jaxpool.max_unpool)(y, indices, sizes)


def pool(op, *args, exact=None, **options):
    whole = op.startswith("global") or (op.startswith("adaptive") and set(args[0]) == {1})
    exact = "max" in op or "min" in op if exact is None else exact
    exact = exact and options.get("ties") != "split"
    kind = Unpooled if op == "max_unpool" else Pool
    return kind(op, args, tuple(options.items()), exact, whole)


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


def on_mesh(cases, layout, kind):
    """Return a jitted function with value and gradient of each case, and a function that shards x by `layout`."""
    shape, spec = LAYOUTS[layout]
    mesh = mesh_of(shape, kind)
    put = functools.partial(jax.device_put, device=NamedSharding(mesh, spec))

    def run(case, x):
        if kind == "explicit":
            return case.plain(x)
        if kind == "auto":
            return case.sharded(x, spec)
        out = P(spec[0] if spec else None) if case.whole else spec
        local = functools.partial(case.sharded, spec=spec)
        outs = (out, out) if case.op.endswith("with_argmax") else out
        return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=outs)(x)

    @jax.jit
    def all_cases(xs):
        return [
            with_gradient(functools.partial(run, case))(x)
            for case, x in zip(cases, xs, strict=True)
        ]

    return all_cases, put


def assert_same(cases, layout, kind, xs):
    """Assert that value and gradient of the sharded pools equal those of the unsharded pools."""
    xs = [jnp.asarray(x) for x in xs]
    wanted = jax.jit(
        lambda xs: [with_gradient(case.plain)(x) for case, x in zip(cases, xs, strict=True)]
    )(xs)
    run, put = on_mesh(cases, layout, kind)
    given = [put(x) for x in xs]
    for case, x, got, want in zip(cases, given, run(given), wanted, strict=True):
        compare(case, got, want)
        assert got[2].sharding.is_equivalent_to(x.sharding, x.ndim), str(case)


def collectives(f, *xs):
    """List the collectives of a compiled program or a function, with the bytes that one device sends."""
    program = f if isinstance(f, jax.stages.Compiled) else jax.jit(f).lower(*xs).compile()
    return batch.sent_bytes(program.as_text())


def compare(case, got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), str(case)
        a, b = (np.asarray(each).astype(np.float64) for each in (a, b))
        if case.exact:
            np.testing.assert_array_equal(a, b, err_msg=str(case))
        else:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=str(case))
