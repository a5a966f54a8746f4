"""Every variant of a selection and of its two linear maps equals the portable variant bit by bit.

Windows are random. Special thresholds let small arrays reach all variants (`tests/support/forms.py`).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.dtypes import index_dtype
from jaxpool._kernels.select import pick, route, select, select_value
from jaxpool.testing import draw_values, oracle
from jaxpool.testing.oracle import _parts
from tests.support import forms

FLOATS = [np.float32] * 4 + [jnp.bfloat16] * 3 + [np.float16] * 2
FLOATS += [jnp.float8_e4m3fn, jnp.float8_e5m2]
DTYPES = [*FLOATS, np.int8, np.uint8, np.int32, np.bool_]


def oracle_answer(drawn, x, kind, ties):
    """Return the oracle's result. A window of padding alone has the value that every element beats."""
    best = max if kind == "max" else min
    least = draw_values(np.random.default_rng(0), (), x.dtype, "lowest", greatest=best is min)
    first, last = (_parts.extremum_reducer(best, each) for each in ("first", "last"))

    def rule(values):
        y, weights = first(values)
        takes_last = ties == "last" or (ties == "last_nan" and y != y)
        return last(values) if takes_last else (y, weights)

    reducer = _parts.reducer_with_empty_value(rule, least)
    return _parts.apply_reducer_to_windows(x, drawn.windows, lambda output: reducer)


def selected_taps(window, answer):
    """Return the flat tap that the oracle selects in each window, and True for windows with an element."""
    index = np.zeros(answer.y.shape, index_dtype(window.size))
    real = np.zeros(answer.y.shape, bool)
    for term in answer.terms:
        tap = 0
        for dim in window.dims:
            place = term.position[dim.axis] - term.output[dim.axis] * dim.stride + dim.low
            tap = tap * dim.window + place // dim.dilation
        index[term.output], real[term.output] = tap, True
    return index, real


@pytest.mark.parametrize("seed", forms.seeds(12))
def test_variants_equal_portable(seed):
    """Variants have the same bits, and the portable variant equals the oracle."""
    rng = np.random.default_rng(seed)
    drawn = forms.draw_window(rng)
    shape, window = drawn.shape, drawn.window
    dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
    sent = dtype if oracle.is_floating(dtype) else np.dtype(np.float32)  # tangents and cotangents
    kind = str(rng.choice(["max", "min"]))
    ties = str(rng.choice(["first", "last", "last_nan"], p=[0.4, 0.4, 0.2]))
    says = f"{dtype} {kind} {ties} {shape} {window}"
    plans, sent_plans = (forms.max_plans(window, shape, each) for each in (dtype, sent))
    forward = forms.distinct_plans(
        plans, lambda plan: (plan.forward, plan.value, plan.value_groups), rng
    )
    backward = forms.distinct_plans(sent_plans, lambda plan: (plan.widen_mode, plan.backward), rng)
    tangent = forms.distinct_plans(sent_plans, lambda plan: plan.tangent, rng, 2)

    @jax.jit
    def run(x, dy, v, index):
        return (
            [select(x, window, kind, ties, plan) for plan in forward.values()],
            [(select_value(x, kind, ties, plan),) for plan in forward.values()],
            [(route(dy, index, plan),) for plan in backward.values()],
            [(pick(v, index, plan),) for plan in tangent.values()],
        )

    named = {"select": forward, "value": forward, "route": backward, "pick": tangent}
    for values in ("ties", "special", "lowest"):
        x = draw_values(rng, shape, dtype, values, greatest=kind == "min")
        answer = oracle_answer(drawn, x, kind, ties)
        index, real = selected_taps(window, answer)
        some_tap = rng.integers(0, window.size, index.shape).astype(index.dtype)
        dy = forms.draw_integers(rng, index.shape, sent, values == "special")
        v = forms.draw_integers(rng, shape, sent, values == "special")
        selected, *others = jax.device_get(run(x, dy, v, np.where(real, index, some_tap)))
        results = [[(y, np.where(real, tap, 0)) for y, tap in selected], *others]

        maps = dataclasses.replace(answer, y=np.zeros(index.shape, sent), inputs=((shape, sent),))
        wanted = [answer.y, index, answer.y, maps.cotangent(dy), maps.tangent(v)]
        portable = [array for found in results for array in found[0]]
        for arrays in zip(portable, wanted, strict=True):  # up to the signs of zeros
            ours, theirs = (oracle.as_exact_numbers(each).astype(np.float64) for each in arrays)
            np.testing.assert_array_equal(ours, theirs, says)

        for (what, names), found in zip(named.items(), results, strict=True):
            for name, got in zip(names, found, strict=True):
                if what == "value" and forward[name].value_groups:
                    got = [np.where(got[0] == 0, found[0][0], got[0])]  # zeros may differ in sign
                forms.assert_same_bits(got, found[0], f"{what}, {name}: {says}, {values}")
