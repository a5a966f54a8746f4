"""What an explanation says is what a lowered program does, and all that it may say has words."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

import jaxpool
from jaxpool._cli import _plans
from jaxpool._cli._case import FUNCTIONS, read_case
from jaxpool._cli._explain import deciding, explain
from jaxpool._plan.problem import PLATFORMS
from tests.plan.golden import CASES, NO_PLAN

LOWERED = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
SIDE = {"window_shape": (2, 2), "strides": (2, 2)}
SAME = {"window_shape": (3, 3), "padding": "SAME"}
LONG = {"window_shape": (15, 9), "strides": (2, 2)}
X, BIG = (2, 8, 8, 3), (2, 64, 64, 16)
CALLS = [  # a case, the call it stands for, the shape of x
    ("max 2x2 stride 2", functools.partial(jaxpool.max_pool, **SIDE), X),
    ("max 3x3 SAME", functools.partial(jaxpool.max_pool, **SAME), BIG),
    ("max 3x3 SAME ties split", functools.partial(jaxpool.max_pool, **SAME, ties="split"), BIG),
    ("min 15x9 stride 2", functools.partial(jaxpool.min_pool, **LONG), BIG),
    (
        "max 15x9 stride 2 ties split",
        functools.partial(jaxpool.max_pool, **LONG, ties="split"),
        BIG,
    ),
    ("max 8x8", functools.partial(jaxpool.max_pool, window_shape=(8, 8)), X),
    ("avg 2x2 stride 2", functools.partial(jaxpool.avg_pool, **SIDE), X),
    ("avg 3x3 SAME", functools.partial(jaxpool.avg_pool, **SAME), BIG),
    ("avg 15x9 stride 2", functools.partial(jaxpool.avg_pool, **LONG), BIG),
    ("sum 8x8", functools.partial(jaxpool.sum_pool, window_shape=(8, 8)), X),
    ("adaptive max to 4x4", lambda x: jaxpool.adaptive_max_pool(x, (4, 4)), X),
    ("adaptive max to 5x5", lambda x: jaxpool.adaptive_max_pool(x, (5, 5)), X),
    ("adaptive avg to 5x5", lambda x: jaxpool.adaptive_avg_pool(x, (5, 5)), X),
    ("global max", jaxpool.global_max_pool, X),
    ("global avg", jaxpool.global_avg_pool, X),
    ("max over 1", lambda x: jaxpool.max(x, 1, ties="first"), X),
    ("cummax over 1", lambda x: jaxpool.cummax(x, axis=1), X),
    ("maximum of 2", lambda x: jaxpool.maximum(x, 2 * x), X),
    ("unpool to 16x16", lambda x: jaxpool.max_unpool(x, INDICES, (16, 16)), X),
    ("unpool to 64x64", lambda x: jaxpool.max_unpool(x, INDICES, (64, 64)), X),
    ("fractional max 2x2 to 3x3", lambda x: jaxpool.fractional_max_pool(KEY, x, (2, 2), (3, 3)), X),
    ("fractional avg 2x2 to 3x3", lambda x: jaxpool.fractional_avg_pool(KEY, x, (2, 2), (3, 3)), X),
    ("median 3x3 SAME", functools.partial(jaxpool.median_pool, **SAME), BIG),
    ("rank 8x8 ties split", lambda x: jaxpool.rank_pool(x, 3, (8, 8), ties="split"), X),
    ("erode 3x3 SAME", lambda x: jaxpool.erode(x, jnp.zeros((3, 3)), padding="SAME"), X),
    ("blur 3x3", lambda x: jaxpool.blur_pool(x, (3, 3), padding="VALID"), X),
    ("k max to 2 over 1", lambda x: jaxpool.k_max_pool(x, 2, axis=1), X),
    ("stochastic 2x2 stride 2", lambda x: jaxpool.stochastic_pool(KEY, x, **SIDE), X),
]
INDICES, KEY = jnp.zeros(X, jnp.int32), jax.random.key(0)
MARKS = {  # operations of a program, and the readings that they go with
    "gather": {"gathered", "tables"},
    "scatter": {"scattered"},
    "reduce": {"reduced", "blocks"},
    "concatenate": {"regions"},
}


def marks(program, on, *shapes):
    """Which of these operations a program has on a platform."""
    xs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text = jax.jit(program).trace(*xs).lower(lowering_platforms=(LOWERED[on],)).as_text()
    return {name for name in MARKS if re.search(rf"stablehlo\.{name}\b", text)}


def expected(*stages):
    readings = {stage.reading for stage in stages}
    several = [stage for stage in stages if max(stage.regions, stage.phases) > 1]
    readings |= {"regions" for stage in several if stage.reading != "tables"}
    return {name for name, forms in MARKS.items() if readings & forms}


# What is no pass over x: indices are checked, where windows begin is drawn.
BESIDE = {
    "max_unpool": {"reduce"},
    "adaptive_avg_pool": {"reduce"},
    "fractional_max_pool": {"concatenate"},
    "fractional_avg_pool": {"concatenate"},
    "rank_pool": {"concatenate"},  # bits are unpacked
    "erode": {"concatenate"},  # the entries of the kernel
}


@pytest.mark.parametrize("on", PLATFORMS)
@pytest.mark.parametrize(("words", "call", "shape"), CALLS, ids=[call[0] for call in CALLS])
def test_programs_do_as_explained(words, call, shape, on):
    case = read_case(f"{words} {'x'.join(map(str, shape))}")
    explained, beside = explain(case, on), BESIDE.get(case.function, set())
    assert marks(call, on, shape) - beside == expected(*explained.forward) - beside

    def pulled(x, dy):
        return jax.vjp(call, x)[1](dy)

    dy = jax.eval_shape(call, jax.ShapeDtypeStruct(shape, jnp.float32)).shape
    forward = () if explained.keeps == "nothing" else explained.forward
    assert marks(pulled, on, shape, dy) - beside == expected(*forward, *explained.backward) - beside


def test_every_case_of_the_benchmark_has_words():
    """And every form that such cases take is one that `info` names for the function."""
    for case in CASES:
        if case.op in NO_PLAN:
            continue
        named = {}
        for plan in _plans.of_function(case.op)["plans"]:
            named |= dict.fromkeys(plan["platforms"], plan)
        for on in PLATFORMS:
            found = explain(read_case(case.name), on)
            assert found.keeps in _plans.KEPT
            assert found.keeps in _plans.of_function(case.op)["keeps"]
            for direction in _plans.DIRECTIONS:
                forms = set(_plans._forms(getattr(found, direction)))
                assert forms <= set(_plans.FORMS)
                assert forms <= set(named[on][direction]), (case.name, on, direction)


def test_every_function_has_samples():
    assert set(_plans.SAMPLES) == set(jaxpool.__all__) - {"accelerate", "keep_memory", "sharded"}
    assert set(FUNCTIONS) <= set(_plans.SAMPLES)


def test_a_function_that_nothing_explains_has_an_entry_too():
    entry = {"derivatives": "reverse", **_plans.of_function("mode_pool")}
    assert list(_plans.functions_in_words({"mode_pool": entry}))[1:] == [
        "  mode_pool",
        "    derivative  reverse",
    ]


def test_the_thresholds_that_decide():
    """Why a 13x13 window is not one pass; a window of 5 taps is far from a long one."""
    case = read_case("max 13x13 SAME 8x40x40x128")
    assert deciding(case, "tpu")["forward"] == {"overlapping_taps": 9, "pieces": 8}
    assert "longest_sum" not in deciding(read_case("avg 5 SAME 8x64x64"), "cpu")["forward"]
    assert deciding(read_case("adaptive max to 5x5 8x64x64x64"), "cpu")["forward"] == {}
