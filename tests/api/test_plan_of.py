"""`jaxpool.plan_of`: rows of a program, residuals and text. `tests/plan/golden.txt` has the passes of many calls."""

import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool._ops.primitives import platform_override
from jaxpool._plan.problem import PLATFORMS
from jaxpool.testing import pools

SAME = {"window_shape": (3, 3), "padding": "SAME"}
X, BIG = (2, 8, 8, 3), (4, 64, 64, 32)
POOLS = pools()


def rows_of(function, *shapes):
    return jaxpool.plan_of(function)(*[jax.ShapeDtypeStruct(each, jnp.float32) for each in shapes])


def test_arrays_written_by_a_pass():
    (row,) = rows_of(lambda x: jaxpool.max_pool(x, (13, 13), padding="SAME"), (8, 40, 40, 128))
    first, *_, last = row.passes["cpu"].forward
    shape = (8, 40, 49, 128)  # pieces of 4 elements, of which the next pass joins 4
    assert [(each.shape, each.dtype) for each in first.writes] == [
        (shape, jnp.float32),
        (shape, jnp.uint8),
    ]
    assert [each.shape for each in last.writes] == [(8, 40, 40, 128)] * 2


def test_passes_in_loops_and_branches():
    (row,) = rows_of(lambda x: jaxpool.median_pool(x, (15, 15)), (1, 20, 20, 3))
    assert "in each of 32 loop steps" in row.passes["gpu"].forward[0].where
    (row,) = rows_of(jaxpool.global_max_pool, X)
    *_, reduced = row.passes["cpu"].value
    assert (reduced.axes, reduced.terms, reduced.how) == ((1, 2), 64, "reduce_max")
    assert reduced.where == "in a branch, or 2 passes in another branch"


@pytest.mark.parametrize("name", POOLS)
def test_sample_calls(name):
    """Every sample call has rows. The output of a mask has no derivative, so it keeps nothing."""
    pool = POOLS[name]
    for given in pool.samples().values():
        operands = {argument: given[argument] for argument in pool.operands}
        rows = jaxpool.plan_of(lambda operands: pool.run(given | operands))(operands)  # noqa: B023
        assert rows
        for row in rows:
            if row.output.dtype == np.bool_:
                assert not row.kept
                assert set(row.runs) == {"value"}


def pooled(x):
    return jaxpool.max_pool(x, (2, 2), (2, 2))


def softened(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def softened_elsewhere(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def test_train_step_rows_and_source_lines():
    def loss(x):
        def repeated(x, _):
            return jaxpool.max_pool(x, (3, 3), padding="SAME"), None

        x = pooled(x)
        x = jax.checkpoint(lambda x: jnp.sin(jaxpool.avg_pool(x, (2, 2))))(x)
        x, _ = lax.scan(repeated, x, length=4)
        x = jax.vmap(lambda x: jaxpool.min_pool(x, (3, 3), padding="SAME"))(x)
        return (softened(x) ** 2).sum()

    rows = rows_of(jax.jit(jax.value_and_grad(loss)), (8, 64, 64, 16))
    names = ["max_pool", "avg_pool", "max_pool", "min_pool", "softmax_pool"]
    assert [row.function for row in rows] == names
    source = inspect.getsource(sys.modules[__name__]).splitlines()
    lines = [int(row.where.split(" ")[0].removeprefix("test_plan_of.py:")) for row in rows]
    for name, line in zip(names, lines, strict=True):
        assert f"jaxpool.{name}(x, (" in source[line - 1]
    assert lines[0] != lines[2]
    assert [row.runs[0] for row in rows] == ["forward", "value", *["forward"] * 3]
    assert {row.runs[1] for row in rows} == {"backward"}
    assert [row.examples for row in rows] == [1, 1, 1, 8, 1]
    assert rows.kept_bytes == sum(row.kept_bytes for row in rows)


def test_source_lines_of_cached_traces():
    """`softmax_pool` is traced once per type, but each call reports its own line."""

    def both(x):
        return softened(x), softened_elsewhere(x)

    rows = rows_of(both, (1, 8, 8, 2))
    assert [row.where.split("(")[1] for row in rows] == ["softened)", "softened_elsewhere)"]


def test_array_that_is_no_argument():
    x = jnp.ones((1, 8, 8, 2))

    def model():
        return jaxpool.max_pool(x, (2, 2))

    (row,) = rows_of(model)
    assert row.function == "max_pool"
    assert row.where.endswith(" (model)")


def test_one_row_per_input_shape():
    rows = rows_of(lambda x, y: (pooled(x), pooled(x), pooled(y)), (1, 8, 8, 2), (3, 8, 8, 2))
    assert [row.inputs[0].shape for row in rows] == [(1, 8, 8, 2), (3, 8, 8, 2)]


def test_accelerated_lax_reductions_have_rows():
    def loss(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    assert rows_of(jax.grad(loss), (1, 8, 8, 2)) == ()
    (row,) = rows_of(jax.grad(jaxpool.accelerate(loss)), (1, 8, 8, 2))
    assert (row.function, row.runs) == ("a reduction of lax", ("forward", "backward"))
    assert row.where.endswith(" (loss)")


def test_plan_of_a_pullback():
    x = jnp.ones((9, 4))
    y, pullback = jax.vjp(lambda x: jaxpool.segment_max(x, jnp.zeros(9, int), 3, ties="first"), x)
    (row,) = jaxpool.plan_of(pullback)(y)
    assert (row.runs, row.kept_bytes) == (("backward",), 4 * (9 + 12))
    assert row.passes["cpu"].forward == ()
    assert "gather" in [each.how for each in row.passes["cpu"].backward]


def test_non_array_arguments_pass_through():
    (row,) = jaxpool.plan_of(jaxpool.max_pool)(jnp.ones(X), (np.int64(2), 2), padding="SAME")
    assert row.window.window_shape == (2, 2)
    assert jaxpool.plan_of(lambda x, *, name: {name: x})(3.0, name="y") == ()


@pytest.mark.parametrize(
    ("name", "options"),
    [*[(name, {}) for name in POOLS], ("max_pool", {"ties": "split"}), ("max", {"ties": "first"})],
)
def test_every_function_has_a_plan(name, options):
    """The residuals of the plan, whose types are in the golden files, are those of the pullback."""
    pool = POOLS[name]
    arguments = pool.given(np.ones((1, 4, 6, 2), np.float32), **options)
    operands = {each: jax.tree.map(jnp.asarray, arguments[each]) for each in pool.operands}

    def first_result(operands):
        return jax.tree.leaves(pool.run(arguments | operands))[0]

    rows = jaxpool.plan_of(first_result)(operands)
    assert rows
    for row in rows:
        assert row.function == name or name.startswith("spatial_pyramid")
        for plan in row.passes.values():
            assert plan.forward
            assert bool(plan.backward) != pool.marks
        assert "\n    forward   " in str(row)
    kept = sorted((str(each.dtype), each.shape) for row in rows for each in row.kept)
    pullback = jax.eval_shape(lambda xs: jax.vjp(first_result, xs)[1], operands)
    leaves = jax.tree.leaves(pullback)
    assert kept == sorted((str(leaf.dtype), leaf.shape) for leaf in leaves)


@pytest.mark.parametrize("kept_here", PLATFORMS)
def test_text_of_residuals_on_other_platforms(kept_here):
    """A maximum saves x if it is traced for a TPU, otherwise an index."""
    x = jax.ShapeDtypeStruct((8, 64, 64, 8), jnp.float32)
    index, whole = "uint8[8,32,32,8]", "float32[8,64,64,8]"
    with platform_override(kept_here):
        text = str(jaxpool.plan_of(jaxpool.max_pool)(x, (2, 2), (2, 2)))
    on_tpu = kept_here == "tpu"
    assert f"keeps       {whole if on_tpu else index} where" in text
    assert (f"where it is traced for tpu: {whole}: 1.0 MB" in text) == (not on_tpu)
    assert (f"where it is traced for gpu: {index}: 65.5 kB" in text) == on_tpu


def test_text():
    x = jax.ShapeDtypeStruct((8, 64, 64, 8), jnp.float32)
    assert str(jaxpool.plan_of(jaxpool.avg_pool)(x, (2, 2), padding="SAME")) == EXPECTED_TEXT
    assert repr(jaxpool.plan_of(jnp.sin)(x)) == "no pool of jaxpool"


EXPECTED_TEXT = """\
avg_pool of float32[8,64,64,8] to float32[8,64,64,8]
  window      (2, 2), padding ((0, 1), (0, 1)), axes (1, 2)
  keeps       nothing from forward to backward
  cpu
    forward   4 slices along axes 1, 2 to float32[8,64,64,8]
    backward  4 slices along axes 1, 2 to float32[8,64,64,8]
  gpu
    forward   4 gathers along axes 1, 2 to float32[8,64,64,8]
    backward  4 gathers along axes 1, 2 to float32[8,64,64,8]
  tpu
    forward   reduce_window_sum of 4 elements along axes 1, 2 to float32[8,64,64,8]
    backward  reduce_window_sum of 4 elements along axes 1, 2 to float32[8,64,64,8]"""


def test_text_merges_equal_and_looped_passes():
    """Equal passes share a line, and so do many passes in a loop."""
    text = str(rows_of(softened, BIG))
    assert " passes in a loop" in text
    assert ", 2 times" in text


def test_examples_of_nested_vmaps_are_multiplied():
    def twice(pool):
        return jax.vmap(jax.vmap(lambda x: pool(x, (2,), axes=(0,))))

    for pool in (jaxpool.avg_pool, jaxpool.max_pool):
        (row,) = rows_of(jax.grad(lambda x, pool=pool: twice(pool)(x).sum()), (3, 5, 8, 2))
        assert row.examples == 15
        assert row.inputs[0].shape == (8, 2)
