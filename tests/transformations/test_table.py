"""Every op under every transformation in both derivative modes, in float64.

Each result is compared with that of a twin, which jax differentiates. The twins are compared with the oracle and with
finite differences. `transform_rows` has the ops and `transform_table` the transformations. One test covers one op and
one group of transformations, and reports the combinations that differ.
"""

import functools
import inspect
import os
import re
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
from tests.support.later import LATER, every_nth
from tests.support.transform_rows import MODES, ROWS, SHAPE, SIMILAR_OPS, VARIANTS, numbers
from tests.support.transform_table import DIFFERENCES, FORWARD, POLICIES, REVERSE, weights

pytestmark = pytest.mark.usefixtures("x64")

TABLE = ROWS | VARIANTS
# CI runs the first group for each op not in ALIKE, and `shard_map` for one op per implementation of a derivative. A
# third of these tests is quick.
QUICK = [(name, "first") for name in ROWS if name not in SIMILAR_OPS] + [
    (name, "shard_map") for name in ("max_pool", "avg_pool", "adaptive_max_pool", "max", "lp_pool")
]


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
            column: DIFFERENCES.get(column, cell)(TABLE[name].twin, x)
            for column, cell in columns("both", group).items()
        }
        return got, twin

    if group == "outside":
        return program(numbers())
    return jax.jit(program, compiler_options=FAST_COMPILE)(numbers())


def differs_from_twin(got, want, column):
    """Return True if a result differs from that of the twin."""
    rtol, atol = (1e-5, 1e-6) if column in DIFFERENCES else (1e-9, 1e-11)
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))
    return not pairs or not all(
        a.shape == b.shape and np.allclose(a, b, rtol=rtol, atol=atol) for a, b in pairs
    )


def rows_by_groups():
    for name in TABLE:
        for group in REVERSE:
            turn = QUICK.index((name, group)) if (name, group) in QUICK else None
            marks = pytest.mark.slow if turn is None else LATER if turn % 3 else ()
            yield pytest.param(name, group, id=f"{name}-{group}", marks=marks)


@pytest.mark.parametrize(("name", "group"), list(rows_by_groups()))
def test_op_under_transformations(name, group):
    got, twin = cells(name, group)
    assert set(got) == set(MODES if TABLE[name].has_modes else ("both",))
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


# The table is complete


def test_every_op_is_in_the_table():
    assert sorted(row.op for row in ROWS.values()) == sorted(
        {*jaxpool.__all__} - {"accelerated", "keep_memory", "plan_of", "sharded"}
    )


@pytest.mark.parametrize("name", TABLE)
def test_modes_match_autodiff_argument(name):
    row = TABLE[name]
    arguments = inspect.signature(getattr(jaxpool, row.op)).parameters
    assert row.has_modes == ("autodiff" in arguments)


def test_every_checkpoint_policy_is_in_the_table():
    assert set(POLICIES) == {name for name in dir(jax.checkpoint_policies) if name[0] != "_"}
    assert all(f"checkpoint, {name}" in REVERSE["checkpoint"] for name in POLICIES)


def test_every_transformation_is_in_the_table():
    names = [name for groups in (REVERSE, FORWARD) for group in groups.values() for name in group]
    orders = ("vjp of vjp", "jvp of vjp", "vjp of jvp", "vjp of vjp of vjp", "jvp of jvp of jvp")
    words = (
        *("jit", "vmap", "scan", "cond", "while", "checkpoint", "eval_shape", "export", "donated"),
        *("shard_map", "hessian", "jacfwd", "jacrev", "linearize"),
    )
    assert set(orders) <= set(names)
    assert [word for word in words if not any(re.search(rf"\b{word}\b", n) for n in names)] == []
    for group in REVERSE:
        assert len(columns("both", group)) == len(REVERSE[group]) + len(FORWARD[group])


# The twins are correct


@pytest.mark.parametrize(
    "name",
    [
        *every_nth([name for name, row in ROWS.items() if row.answer]),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name, row in VARIANTS.items()
            if row.answer
        ),
    ],
)
def test_twin_matches_oracle(name):
    row, x = TABLE[name], numbers()
    answer = row.answer(x)
    with_indices = row.op.endswith("argmax")

    def twin(x):
        return row.twin(x)[..., 0] if with_indices else row.twin(x)

    dy = np.asarray(weights(jax.eval_shape(twin, x).shape))

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def program(x, dy, cotangents):
        y, back = jax.vjp(twin, x)
        parts, back_to_x = jax.vjp(row.operands, x)
        (want,) = back_to_x(tuple(part for part, _ in zip(cotangents, parts, strict=False)))
        return row.twin(x), y, back(dy)[0], want

    whole, y, dx, want = program(x, dy, answer.cotangents(dy.reshape(answer.y.shape)))
    if with_indices and answer.indices is not None:
        np.testing.assert_array_equal(whole[..., 1], answer.indices)
    # reshaped because the oracle keeps reduced axes
    np.testing.assert_allclose(y, answer.y.reshape(y.shape), rtol=1e-12)
    np.testing.assert_allclose(dx, want, rtol=1e-12, atol=1e-14)


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
