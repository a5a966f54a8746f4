"""`jaxpool.plan_of` lists the pools of a program, their residuals, and their passes on each platform."""

import functools
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool._ops.op import platform_override
from jaxpool._plan.problem import PLATFORMS
from jaxpool.testing import pools
from tests.support.junk import VALID_ARGUMENTS

SAME = {"window_shape": (3, 3), "padding": "SAME"}
X, BIG = (2, 8, 8, 3), (4, 64, 64, 32)
POOLS = pools()
RESIDUAL_CASES = {  # calls whose residual is compared with the arrays that a pullback holds
    "max_pool": (functools.partial(jaxpool.max_pool, window_shape=(2, 2)), X),
    "max_pool, split": (functools.partial(jaxpool.max_pool, **SAME, ties="split"), BIG),
    "max over an axis": (lambda x: jaxpool.max(x, 1, ties="first"), X),
    "cummax": (lambda x: jaxpool.cummax(x, axis=1), X),
    **{name: (pool.of(), X) for name, pool in POOLS.items() if pool.takes("k")},
    **{
        name: (pool.of(**SAME), BIG)
        for name, pool in POOLS.items()
        if pool.topic == "rank" and pool.ties and not pool.takes("rank")
    },
}

# Passes of a call for x of shape `BIG`: platform, direction, and axes, terms and primitive of each pass.
PASSES = [
    (jaxpool.max_pool, SAME, "cpu", "forward", [((1, 2), 9, "slice")]),
    (jaxpool.avg_pool, SAME, "cpu", "forward", [((1, 2), 9, "gather")]),
    (jaxpool.max_pool, SAME, "gpu", "backward", [((1, 2), 9, "slice")]),
    (
        jaxpool.max_pool,
        {"window_shape": (2, 2), "strides": (2, 2)},
        "tpu",
        "backward",
        [((1, 2), 4, "select_and_scatter")],
    ),
    (
        jaxpool.max_pool,
        {"window_shape": (13, 13), "padding": "SAME"},
        "cpu",
        "forward",
        [((2,), 4, "slice")] * 2 + [((1,), 4, "slice")] * 2,
    ),
    (
        jaxpool.avg_pool,
        {"window_shape": (3, 3), "strides": (2, 2)},
        "gpu",
        "backward",
        [((1, 2), 4, "slice")],
    ),
    (jaxpool.avg_pool, SAME, "tpu", "forward", [((1, 2), 9, "reduce_window_sum")]),
    (jaxpool.global_avg_pool, {}, "cpu", "forward", [((1, 2), 4096, "reduce_sum")]),
    (jaxpool.global_avg_pool, {}, "cpu", "backward", [((), 1, "elementwise")]),
]


@pytest.mark.parametrize(("pool", "arguments", "platform", "way", "expected"), PASSES)
def test_axes_terms_and_primitives_of_passes(pool, arguments, platform, way, expected):
    (row,) = rows_of(functools.partial(pool, **arguments), BIG)
    passes = getattr(row.passes[platform], way)
    assert [(each.axes, each.terms, each.how) for each in passes] == expected


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


def test_passes_over_index_tables_are_omitted():
    boxes, images = jnp.ones((4, 4)), jnp.zeros(4, jnp.int32)
    (row,) = rows_of(lambda x: jaxpool.roi_max_pool(x, boxes, 2, batch_indices=images), BIG)
    for plan in row.passes.values():
        assert all(BIG[-1] in each.writes[0].shape for each in plan.value if each.writes)


def test_residual_bytes_match_the_pullback():
    for name, (call, shape) in RESIDUAL_CASES.items():
        (row,) = rows_of(call, shape)
        pullback = jax.vjp(call, jnp.ones(shape))[1]
        assert row.kept_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(pullback)), name


def rows_of(function, *shapes):
    return jaxpool.plan_of(function)(*[jax.ShapeDtypeStruct(each, jnp.float32) for each in shapes])


def pooled(x):
    return jaxpool.max_pool(x, (2, 2), (2, 2))


def softened(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def softened_elsewhere(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def test_train_step_rows_and_source_lines():
    def loss(x):
        x = pooled(x)
        x = jax.checkpoint(lambda x: jnp.sin(jaxpool.avg_pool(x, (2, 2))))(x)
        x, _ = lax.scan(
            lambda x, _: (jaxpool.max_pool(x, (3, 3), padding="SAME"), None), x, length=4
        )
        x = jax.vmap(lambda x: jaxpool.min_pool(x, (3, 3), padding="SAME"))(x)
        return (softened(x) ** 2).sum()

    rows = rows_of(jax.jit(jax.value_and_grad(loss)), (8, 64, 64, 16))
    assert [row.function for row in rows] == [
        "max_pool", "avg_pool", "max_pool", "min_pool", "softmax_pool",
    ]  # fmt: skip
    source, first = inspect.getsourcelines(sys.modules[__name__])[0], 1
    texts = [
        "jaxpool.max_pool(x, (2, 2)",
        "jaxpool.avg_pool(x, (2, 2)",
        "jaxpool.max_pool(x, (3, 3)",
    ]
    texts += ["jaxpool.min_pool(x, (3, 3)", "jaxpool.softmax_pool(x, (2, 2)"]
    lines = [
        next(n for n, line in enumerate(source, first) if text in line and '"' + text not in line)
        for text in texts
    ]
    assert [row.where.split(" ")[0] for row in rows] == [f"test_plan_of.py:{n}" for n in lines]
    assert [row.runs for row in rows] == [
        ("forward", "backward"),
        ("value", "backward"),
        ("forward", "backward"),
        ("forward", "backward"),
        ("forward", "backward"),
    ]
    assert [row.examples for row in rows] == [1, 1, 1, 8, 1]
    assert rows.kept_bytes == sum(row.kept_bytes for row in rows)


def test_source_lines_of_cached_traces():
    """`softmax_pool` is traced once per type, but each call reports its own line."""

    def both(x):
        return softened(x), softened_elsewhere(x)

    rows = rows_of(both, (1, 8, 8, 2))
    assert [row.where.split("(")[1] for row in rows] == ["softened)", "softened_elsewhere)"]


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


def test_integers_have_no_residual():
    (row,) = jaxpool.plan_of(pooled)(jnp.ones((1, 8, 8, 2), jnp.int32))
    assert (row.kept, row.kept_bytes, row.runs) == ((), 0, ("value",))


def test_passes_of_soft_pools():
    """p = inf gives one maximum of 9 taps; a temperature per output row makes the pool go tap by tap."""
    x = jnp.ones((2, 12, 12, 4))
    (row,) = jaxpool.plan_of(softened)(x)
    assert [each.terms for each in row.passes["gpu"].forward if each.how == "slice"][:2] == [4, 4]
    (row,) = jaxpool.plan_of(jaxpool.lp_pool)(x, float("inf"), (3, 3))
    assert [each.terms for each in row.passes["gpu"].forward] == [9]
    temperature = jnp.arange(1.0, 11).reshape(10, 1, 1)
    (row,) = jaxpool.plan_of(jaxpool.softmax_pool)(x, (3, 3), temperature=temperature)
    assert any("in each of 8 loop steps" in each.where for each in row.passes["gpu"].forward)


@pytest.mark.parametrize(
    "name",
    [n for n in VALID_ARGUMENTS if n not in ("accelerate", "accelerated", "plan_of", "sharded")],
)
def test_every_function_has_a_plan(name):
    function, arguments = getattr(jaxpool, name), VALID_ARGUMENTS[name]
    args, rest = (arguments, {}) if isinstance(arguments, tuple) else ((), arguments)
    rows = jaxpool.plan_of(lambda: function(*args, **rest))()
    assert rows
    for row in rows:
        assert row.function == name or name.startswith("spatial_pyramid")
        floats = jnp.issubdtype(row.inputs[0].dtype, jnp.floating)
        for plan in row.passes.values():
            assert plan.forward
            assert bool(plan.backward) == floats
        assert "\n    forward   " in str(row)


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
    assert str(jaxpool.plan_of(jaxpool.avg_pool)(x, (3, 3), padding="SAME")) == EXPECTED_TEXT
    assert repr(jaxpool.plan_of(jnp.sin)(x)) == "no pool of jaxpool"


EXPECTED_TEXT = """\
avg_pool of float32[8,64,64,8] to float32[8,64,64,8]
  window      (3, 3), padding ((1, 1), (1, 1)), axes (1, 2)
  keeps       nothing from forward to backward
  cpu and gpu
    forward   9 slices along axes 1, 2 to float32[8,64,64,8]
    backward  9 slices along axes 1, 2 to float32[8,64,64,8]
  tpu
    forward   reduce_window_sum of 9 elements along axes 1, 2 to float32[8,64,64,8]
    backward  reduce_window_sum of 9 elements along axes 1, 2 to float32[8,64,64,8]"""


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
