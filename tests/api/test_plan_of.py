"""`jaxpool.plan_of` describes the passes that the compiled programs contain, for each pool and platform."""

import functools
import inspect
import re
import sys
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool._api import plan_text
from jaxpool._kernels import passes
from jaxpool._kernels.cpu import tables
from jaxpool._ops.linear_map import tracing_for
from jaxpool._plan.problem import PLATFORMS
from jaxpool._plan.stages import How
from jaxpool.testing import pools
from tests.support.junk import RIGHT
from tests.support.later import by_turns

LOWERED = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
SIDE = {"window_shape": (2, 2), "strides": (2, 2)}
SAME = {"window_shape": (3, 3), "padding": "SAME"}
LONG = {"window_shape": (15, 9), "strides": (2, 2)}
X, BIG = (2, 8, 8, 3), (2, 64, 64, 16)
INDICES, KEY = jnp.zeros(X, jnp.int32), jax.random.key(0)
POOLS = pools()
PLACED = [name for name, pool in POOLS.items() if pool.takes("window_shape", "output_shape")]
RANKED = [n for n, p in POOLS.items() if p.topic == "rank" and p.ties and not p.takes("rank")]
BLURS = [n for n, p in POOLS.items() if p.topic == "blur" and not p.takes("blur_shape")]
CALLS = {  # a call, and the shape of x
    "max": (functools.partial(jaxpool.max_pool, **SIDE), X),
    "max, windows that meet": (functools.partial(jaxpool.max_pool, **SAME), BIG),
    "max, split": (functools.partial(jaxpool.max_pool, **SAME, ties="split"), BIG),
    "min, long": (functools.partial(jaxpool.min_pool, **LONG), BIG),
    "max, long, split": (functools.partial(jaxpool.max_pool, **LONG, ties="split"), BIG),
    "max, whole": (functools.partial(jaxpool.max_pool, window_shape=(8, 8)), X),
    "avg": (functools.partial(jaxpool.avg_pool, **SIDE), X),
    "avg, windows that meet": (functools.partial(jaxpool.avg_pool, **SAME), BIG),
    "avg, long": (functools.partial(jaxpool.avg_pool, **LONG), BIG),
    "sum, whole": (functools.partial(jaxpool.sum_pool, window_shape=(8, 8)), X),
    "adaptive max": (lambda x: jaxpool.adaptive_max_pool(x, (4, 4)), X),
    "adaptive max, a grid": (lambda x: jaxpool.adaptive_max_pool(x, (5, 5)), X),
    "adaptive avg, a grid": (lambda x: jaxpool.adaptive_avg_pool(x, (5, 5)), X),
    "global max": (jaxpool.global_max_pool, X),
    "global avg": (jaxpool.global_avg_pool, X),
    "max over an axis": (lambda x: jaxpool.max(x, 1, ties="first"), X),
    "max over axes, split": (lambda x: jaxpool.max(x, (1, 2)), BIG),
    "cummax": (lambda x: jaxpool.cummax(x, axis=1), X),
    "maximum": (lambda x: jaxpool.maximum(x, 2 * x), X),
    "unpool": (lambda x: jaxpool.max_unpool(x, INDICES, (16, 16)), X),
    "unpool, far": (lambda x: jaxpool.max_unpool(x, INDICES, (64, 64)), X),
    "fractional max": (lambda x: jaxpool.fractional_max_pool(KEY, x, (2, 2), (3, 3)), X),
    "rank, whole, split": (lambda x: jaxpool.rank_pool(x, 3, (8, 8), ties="split"), X),
    "erode": (lambda x: jaxpool.erode(x, jnp.zeros((3, 3)), padding="SAME"), X),
    **{name: (POOLS[name].of(output_shape=(3, 3)), X) for name in PLACED},
    **{name: (POOLS[name].of(**SAME), BIG) for name in RANKED},
    **{name: (POOLS[name].of(window_shape=(3, 3), padding="VALID"), X) for name in BLURS},
    **{name: (pool.of(), X) for name, pool in POOLS.items() if pool.takes("k")},
    **{
        name: (pool.of(**SIDE, key=KEY), X)
        for name, pool in POOLS.items()
        if pool.takes("key", "padding")
    },
}
PASSES = ("max", "max, windows that meet", "max, split", "min, long", "max, long, split")
PASSES += ("avg, windows that meet", "avg, long", *BLURS, *RANKED)
MARKS = {  # operations of a lowered program, and the passes that explain them
    "gather": {"gathered", "tables"},
    "scatter": {"scattered"},
    "reduce": {"reduced", "blocks"},
    "concatenate": {"regions"},
}
# Operations that are no pass over x: index checks, random window starts, packed bits, a search for NaN in sums.
BESIDE = {
    "unpool": {"reduce", "scatter", "gather"},
    "unpool, far": {"reduce"},
    "adaptive avg, a grid": {"reduce"},
    "fractional max": {"concatenate"},
    **{name: {"concatenate"} for name in PLACED},
    "rank, whole, split": {"concatenate"},
    "max, whole": {"concatenate"},  # coordinates of the selected element
    "global max": {"concatenate"},
    "erode": {"concatenate", "reduce"},
}


def lowered(program, platform, *shapes):
    xs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    with tracing_for(platform):
        return jax.jit(program).trace(*xs).lower(lowering_platforms=(LOWERED[platform],)).as_text()


def marks(program, platform, *shapes):
    """Operations in `MARKS` that the lowered program has."""
    text = lowered(program, platform, *shapes)
    return {name for name in MARKS if re.search(rf"stablehlo\.{name}\b", text)}


def expected(*stages):
    hows = {stage.how for stage in stages}
    several = [stage for stage in stages if max(stage.regions, stage.phases) > 1]
    hows |= {"regions" for stage in several if stage.how != "tables"}
    return {name for name, forms in MARKS.items() if hows & forms}


def plan_and_pull(call, shape):
    """The only row of the plan, a function of x and dy that pulls back, and its argument shapes."""
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    (row,) = jaxpool.plan_of(call)(x)
    return row, lambda x, dy: jax.vjp(call, x)[1](dy), (shape, jax.eval_shape(call, x).shape)


@pytest.mark.parametrize(("name", "platform"), by_turns(CALLS, PLATFORMS))
def test_programs_do_what_is_told(name, platform):
    call, shape = CALLS[name]
    row, pulled, shapes = plan_and_pull(call, shape)
    plan, extra = row.passes[platform], BESIDE.get(name, set())
    value = plan.forward if plan.value is None else plan.value
    assert marks(call, platform, shape) - extra == expected(*value) - extra
    forward = plan.forward if row.kept else ()
    both = expected(*forward, *plan.backward)
    assert marks(pulled, platform, *shapes) - extra == both - extra


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", PASSES)
def test_the_plan_is_what_kernels_read(monkeypatch, name, platform):
    """Plan and kernels share the same layout and step objects, compared by identity."""
    read = set()

    def noted(function):
        def run(*args, **options):
            read.update(map(id, args))
            return function(*args, **options)

        return run

    for module in ("_kernels.select", "_kernels.route", "_kernels.sums"):
        monkeypatch.setattr(f"jaxpool.{module}.carry_out", noted(passes.carry_out))
    monkeypatch.setattr("jaxpool._ops.blur.carry_out", noted(passes.carry_out))
    for name_of in ("sums", "sent"):
        monkeypatch.setattr(tables, name_of, noted(getattr(tables, name_of)))
    call, shape = CALLS[name]
    row, pulled, shapes = plan_and_pull(call, shape)
    read.clear()
    lowered(pulled, platform, *shapes)
    plan = row.passes[platform]
    reads = [each.read for each in (*(plan.forward if row.kept else ()), *plan.backward)]
    reads = [each for each in reads if hasattr(each, "layout")]
    assert reads or platform != "cpu"
    for each in reads:
        layout = each.layout
        if layout.reading == "tables":
            layout = each.step if hasattr(each, "step") else each.sources[0]
        assert id(layout) in read


def test_what_is_kept_is_what_a_pullback_holds():
    largest = [name for name, pool in POOLS.items() if pool.takes("k")]
    for name in ("max", "max, split", *RANKED, "cummax", *largest, "max over an axis"):
        call, shape = CALLS[name]
        row, *_ = plan_and_pull(call, shape)
        pull = jax.vjp(call, jnp.ones(shape))[1]
        assert row.kept_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(pull)), name


def rows_of(function, *shapes):
    return jaxpool.plan_of(function)(*[jax.ShapeDtypeStruct(each, jnp.float32) for each in shapes])


def pooled(x):
    return jaxpool.max_pool(x, (2, 2), (2, 2))


def softened(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def softened_elsewhere(x):
    return jaxpool.softmax_pool(x, (2, 2), (2, 2))


def test_a_train_step_has_a_row_for_each_pool_and_its_line():
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


def test_a_line_that_was_traced_before_is_not_taken_for_another():
    """`softmax_pool` is traced once per type, but each call reports its own line."""

    def both(x):
        return softened(x), softened_elsewhere(x)

    rows = rows_of(both, (1, 8, 8, 2))
    assert [row.where.split("(")[1] for row in rows] == ["softened)", "softened_elsewhere)"]


def test_arrays_of_other_shapes_are_other_rows():
    rows = rows_of(lambda x, y: (pooled(x), pooled(x), pooled(y)), (1, 8, 8, 2), (3, 8, 8, 2))
    assert [row.inputs[0].shape for row in rows] == [(1, 8, 8, 2), (3, 8, 8, 2)]


def test_reductions_of_lax_that_became_ours():
    def loss(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    assert rows_of(jax.grad(loss), (1, 8, 8, 2)) == ()
    (row,) = rows_of(jax.grad(jaxpool.accelerate(loss)), (1, 8, 8, 2))
    assert (row.function, row.runs) == ("a reduction of lax", ("forward", "backward"))
    assert row.where.endswith(" (loss)")


def test_a_pullback_alone():
    x = jnp.ones((9, 4))
    y, pull = jax.vjp(lambda x: jaxpool.segment_max(x, jnp.zeros(9, int), 3, ties="first"), x)
    (row,) = jaxpool.plan_of(pull)(y)
    assert (row.runs, row.kept_bytes) == (("backward",), 4 * (9 + 12))
    assert [stage.how for stage in row.passes["cpu"].backward] == ["gathered"]


def test_what_is_no_array_reaches_the_function_as_it_is():
    (row,) = jaxpool.plan_of(jaxpool.max_pool)(jnp.ones(X), (np.int64(2), 2), padding="SAME")
    assert row.window.window_shape == (2, 2)
    assert jaxpool.plan_of(lambda x, *, name: {name: x})(3.0, name="y") == ()


def test_integers_keep_nothing():
    (row,) = jaxpool.plan_of(pooled)(jnp.ones((1, 8, 8, 2), jnp.int32))
    assert (row.kept, row.kept_bytes, row.runs) == ((), 0, ("value",))


def test_a_soft_pool_is_the_sums_that_it_is_made_of():
    """p = inf gives one maximum of 9 taps; a temperature per output row makes the pool go tap by tap."""
    x = jnp.ones((2, 12, 12, 4))
    assert [len(row.passes["gpu"].forward) for row in jaxpool.plan_of(softened)(x)] == [2]
    (row,) = jaxpool.plan_of(jaxpool.lp_pool)(x, float("inf"), (3, 3))
    assert [stage.terms for stage in row.passes["gpu"].forward] == [9]
    heat = jnp.arange(1.0, 11).reshape(10, 1, 1)
    (row,) = jaxpool.plan_of(jaxpool.softmax_pool)(x, (3, 3), temperature=heat)
    assert {stage.how for stage in row.passes["gpu"].forward} == {"walked"}


@pytest.mark.parametrize(
    "name", [n for n in RIGHT if n not in ("accelerate", "accelerated", "plan_of", "sharded")]
)
def test_every_function_tells_its_plan(name):
    function, arguments = getattr(jaxpool, name), RIGHT[name]
    args, rest = (arguments, {}) if isinstance(arguments, tuple) else ((), arguments)
    rows = jaxpool.plan_of(lambda: function(*args, **rest))()
    assert rows
    for row in rows:
        assert row.function == name or name.startswith("spatial_pyramid")
        for plan in row.passes.values():
            assert plan.forward
            assert plan.backward
        assert (
            "\n    forward   ax" in str(row) or "\n    forward   1 el" in str(row) or row.inputs[1:]
        )


@pytest.mark.parametrize("kept_here", PLATFORMS)
def test_text_of_what_another_platform_keeps(kept_here):
    """A maximum saves x if it is traced for a TPU, otherwise an index."""
    x = jax.ShapeDtypeStruct((8, 64, 64, 8), jnp.float32)
    index, whole = "uint8[8,32,32,8]", "float32[8,64,64,8]"
    with tracing_for(kept_here):
        text = str(jaxpool.plan_of(jaxpool.max_pool)(x, (2, 2), (2, 2)))
    on_tpu = kept_here == "tpu"
    assert f"keeps       {whole if on_tpu else index} where" in text
    assert (f"where it is traced for tpu: {whole}: 1.0 MB" in text) == (not on_tpu)
    assert (f"where it is traced for gpu: {index}: 65.5 kB" in text) == on_tpu


def test_every_way_of_a_pass_has_words():
    assert set(plan_text.HOWS) == set(typing.get_args(How))


def test_text():
    x = jax.ShapeDtypeStruct((8, 64, 64, 8), jnp.float32)
    assert str(jaxpool.plan_of(jaxpool.avg_pool)(x, (3, 3), padding="SAME")) == TEXT
    assert repr(jaxpool.plan_of(jnp.sin)(x)) == "no pool of jaxpool"


TEXT = """\
avg_pool of float32[8,64,64,8] to float32[8,64,64,8]
  window      (3, 3), padding ((1, 1), (1, 1)), axes (1, 2)
  keeps       nothing from forward to backward
  cpu
    forward   axes 1, 2: 9 elements per result, in place
    backward  axes 1, 2: 9 elements per result, in place
  gpu
    forward   axes 1, 2: 9 elements per result, by slices
    backward  axes 1, 2: 9 elements per result, by slices
  tpu
    forward   axes 1, 2: 9 elements per result, by lax.reduce_window
    backward  axes 1, 2: 9 elements per result, by lax.reduce_window

by slices: shifted slices of the array, which is padded first where windows reach beyond it
in place: shifted slices without a padded copy; the loop tests bounds
by lax.reduce_window: one instruction of XLA reads the array once"""


@pytest.mark.parametrize("shape", [(13, 13), (3, 3)])
def test_text_leaves_the_layout_of_loops_to_programs(shape):
    x = jax.ShapeDtypeStruct((8, 40, 40, 128), jnp.float32)
    plans = jaxpool.plan_of(jaxpool.max_pool)(x, shape, padding="SAME")
    stages = [each for plan in plans[0].passes.values() for each in (*plan.forward, *plan.backward)]
    assert any(each.stored or each.phases > 1 or each.regions > 1 for each in stages)
    text = str(plans)
    assert not re.search("stored|interleaved|ends apart|each,", text)
    assert ("4 elements per result, by slices, 2 passes" in text) == (shape == (13, 13))


def test_examples_of_every_vmap_are_counted():
    def twice(pool):
        return jax.vmap(jax.vmap(lambda x: pool(x, (2,), axes=(0,))))

    for pool in (jaxpool.avg_pool, jaxpool.max_pool):
        (row,) = rows_of(jax.grad(lambda x, pool=pool: twice(pool)(x).sum()), (3, 5, 8, 2))
        assert row.examples == 15
        assert row.inputs[0].shape == (8, 2)
