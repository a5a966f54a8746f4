"""Every op under every transformation in both derivative modes, in float64.

Each result is compared with that of a twin, which jax differentiates. `transform_rows` has the ops and their twins, and
`transform_table` the transformations. One test covers one op and one group of transformations, and reports the
combinations that differ.
"""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.support.compilation import FAST_COMPILE
from tests.support.transform_rows import MODES, ROWS, SHAPE, SIMILAR_OPS, VARIANTS, numbers
from tests.support.transform_table import FOR_TWINS, FORWARD, NOT_JITTED, REVERSE

pytestmark = pytest.mark.usefixtures("x64")

TABLE = ROWS | VARIANTS
# CI runs every group for one op, two groups for each op that shares no kernel with another, and `shard_map` for one op
# per implementation of a derivative. The other combinations are slow.
CI = {
    *(("max_pool", group) for group in REVERSE),
    *(
        (name, group)
        for group in ("first", "explicit mesh")
        for name in ROWS
        if name not in SIMILAR_OPS
    ),
    *((name, "shard_map") for name in ("avg_pool", "adaptive_max_pool", "max", "lp_pool")),
}


def columns(mode, group):
    """Return the transformations of a group that a mode supports."""
    return REVERSE[group] | ({} if mode == "vjp" else FORWARD[group])


def cells(name, group):
    """Return the results of an op in each mode, and of its twin, by transformation."""

    def program(x):
        modes = TABLE[name].modes()
        got = {
            mode: {column: cell(f, x) for column, cell in columns(mode, group).items()}
            for mode, f in modes.items()
        }
        twin = {
            column: FOR_TWINS.get(column, cell)(TABLE[name].twin, x)
            for column, cell in columns("both", group).items()
        }
        return got, twin

    if group in NOT_JITTED:
        return program(numbers())
    return jax.jit(program, compiler_options=FAST_COMPILE)(numbers())


def differs_from_twin(got, want, column):
    """Return True if a result differs from that of the twin."""
    rtol, atol = (1e-5, 1e-6) if "by differences" in column else (1e-9, 1e-11)
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))
    return not pairs or not all(
        a.shape == b.shape and np.allclose(a, b, rtol=rtol, atol=atol) for a, b in pairs
    )


@pytest.mark.parametrize(
    ("name", "group"),
    [
        pytest.param(name, group, marks=() if (name, group) in CI else pytest.mark.slow)
        for name in TABLE
        for group in REVERSE
    ],
)
def test_op_under_transformations(name, group):
    got, twin = cells(name, group)
    wrong = [
        f"{column} ({mode})"
        for mode, results in got.items()
        for column, result in results.items()
        if differs_from_twin(result, twin[column], column)
    ]
    assert wrong == []


@pytest.mark.parametrize("autodiff", MODES)
def test_replicated_operand_in_shard_map(autodiff):
    """Cotangents of a replicated operand are summed over the devices, as for `jnp.maximum`."""
    mesh = jax.make_mesh((len(jax.devices()),), ("i",), (AxisType.Auto,))

    def loss(maximum, x, level):
        def local(x, level):
            return jax.lax.psum((maximum(x, level) ** 2).sum(), "i")

        return jax.shard_map(local, mesh=mesh, in_specs=(P("i"), P()), out_specs=P())(x, level)

    ours = functools.partial(loss, functools.partial(jaxpool.maximum, autodiff=autodiff))
    arguments = numbers(), jnp.asarray(0.5)
    got = jax.jit(jax.grad(ours, (0, 1)))(*arguments)
    want = jax.jit(jax.grad(functools.partial(loss, jnp.maximum), (0, 1)))(*arguments)
    for dx, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(dx, expected, rtol=1e-12)


# More than one device


@pytest.mark.slow
def test_shard_map_over_two_devices():
    """Repeat the tests of `shard_map` with the batch sharded over two devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={SHAPE[0]}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    select = ["-k", "shard_map and not two_devices", "-m", "slow or not slow"]
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*command, *select], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(TABLE) + len(MODES)} passed" in done.stdout
