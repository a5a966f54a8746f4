"""Meshes, pools with arguments, and comparison with the unsharded function."""

from __future__ import annotations

import contextlib
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

NUM_DEVICES = 8  # test_eight_devices.py runs the tests that need them
requires_eight_devices = pytest.mark.skipif(
    len(jax.devices()) < NUM_DEVICES, reason="needs eight devices"
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
    options: dict[str, Any]
    exact: bool

    @property
    def whole(self):
        """Whether the pool reduces whole pooled axes."""
        adaptive = self.op.startswith("adaptive") and set(self.args[0]) == {1}
        return adaptive or self.op.startswith("global")

    def run(self, platform, x):
        """Call the pool, which `platform` maps to another function with the same arguments."""
        return platform(getattr(jaxpool, self.op))(x, *self.args, **self.options)

    def plain(self, x):
        return self.run(lambda pool: pool, x)

    def sharded(self, x, spec):
        return self.run(functools.partial(jaxpool.sharded, spec=spec), x)

    def __str__(self):
        options = [f"{name}={value}" for name, value in self.options.items()]
        return f"{self.op}({', '.join([*map(str, self.args), *options])})"


class Unpooled(Pool):
    """A max pool of an array with pooled axes of sizes `args[0]`, followed by the max unpool of its result."""

    def run(self, platform, x):
        sizes, *args = self.args
        y, indices = platform(jaxpool.max_pool_with_argmax)(x, *args, **self.options)
        return platform(jaxpool.max_unpool)(y, indices, sizes)


def pool(op, *args, exact=None, **options):
    selects = "max" in op or "min" in op if exact is None else exact
    kind = Unpooled if op == "max_unpool" else Pool
    return kind(op, args, options, selects and options.get("ties") != "split")


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
    """Assert that value and gradient of sharded pools equal those of the unsharded pools, and that halos are sent.

    Global pools add up over devices, and an unpool does so to know whether an index is too far away.
    """
    xs = [jnp.asarray(x) for x in xs]
    wanted = jax.jit(
        lambda xs: [with_gradient(case.plain)(x) for case, x in zip(cases, xs, strict=True)]
    )(xs)
    run, put = on_mesh(cases, layout, kind)
    given = [put(x) for x in xs]
    program = run.lower(given).compile()
    for case, x, got, want in zip(cases, given, program(given), wanted, strict=True):
        compare(case, got, want)
        assert got[2].sharding.is_equivalent_to(x.sharding, x.ndim), str(case)
    sent = {name for name, _ in collectives(program)}
    sums = {"all-reduce"} if any(case.whole or case.op == "max_unpool" for case in cases) else set()
    assert sent - sums == {"collective-permute"}


def assert_same_on_mesh(f, x, mesh, spec, tolerance=0.0, in_context=False):
    """Assert that the jitted `f` returns the same for x on one device and for x sharded over a mesh.

    With `in_context`, a context says the mesh of the second call.
    """
    want = jax.jit(f)(x)
    given = jax.device_put(x, NamedSharding(mesh, spec))
    with jax.set_mesh(mesh) if in_context else contextlib.nullcontext():
        got = jax.jit(f)(given)
    assert_close(got, want, tolerance)


def assert_close(got, want, tolerance=0.0, what=""):
    """Assert that two trees have the same shapes and dtypes, and equal numbers up to the tolerance."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        a, b = (np.asarray(each).astype(np.float64) for each in (a, b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def compare(case, got, want):
    assert_close(got, want, 0.0 if case.exact else 2e-5, str(case))


def collectives(f, *xs):
    """List the collectives of a compiled program or a function, with the bytes that one device sends."""
    program = f if isinstance(f, jax.stages.Compiled) else jax.jit(f).lower(*xs).compile()
    return batch.sent_bytes(program.as_text())
