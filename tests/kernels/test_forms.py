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
VALUES = ("ties", "special", "lowest")


@dataclasses.dataclass(frozen=True)
class Case(forms.DrawnWindow):
    """A selection of `dtype`, with tangents and cotangents of dtype `sent`."""

    dtype: np.dtype
    sent: np.dtype
    kind: str
    ties: str

    def __str__(self):
        names = [getattr(self, field) for field in ("dtype", "kind", "ties", "shape", "window")]
        return " ".join(map(str, names))


def draw_case(seed):
    rng = np.random.default_rng(seed)
    window = forms.draw_window(rng)
    dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
    sent = dtype if oracle.is_floating(dtype) else np.dtype(np.float32)
    kind, ties = (
        rng.choice(["max", "min"]),
        rng.choice(["first", "last", "last_nan"], p=[0.4, 0.4, 0.2]),
    )
    return Case(window.shape, window.window, window.windows, dtype, sent, str(kind), str(ties)), rng


def plans_of(case, rng):
    """Return the plans that differ in the forward pass, in the backward pass, and in the tangent."""
    plans = forms.max_plans(case.window, case.shape, case.dtype)
    sent = forms.max_plans(case.window, case.shape, case.sent)
    return (
        forms.distinct_plans(
            plans, lambda plan: (plan.forward, plan.value, plan.value_groups), rng
        ),
        forms.distinct_plans(sent, lambda plan: (plan.widen_mode, plan.backward), rng),
        forms.distinct_plans(sent, lambda plan: plan.tangent, rng, 2),
    )


def compiled(case, plans):
    """Return one program for all variants, from x, a cotangent, a tangent and an index."""
    forward, backward, tangent = [named.values() for named in plans]
    kind, ties = case.kind, case.ties

    def run(x, dy, v, index):
        return (
            [select(x, case.window, kind, ties, plan) for plan in forward],
            [(select_value(x, kind, ties, plan),) for plan in forward],
            [(route(dy, index, plan),) for plan in backward],
            [(pick(v, index, plan),) for plan in tangent],
        )

    return jax.jit(run)


def oracle_answer(case, x):
    """Return the oracle's result. A window of padding alone has the value that every element beats."""
    best = max if case.kind == "max" else min
    least = draw_values(np.random.default_rng(0), (), case.dtype, "lowest", greatest=best is min)

    def rule(ties):
        choose = _parts.extremum_reducer(best, ties)
        return lambda values: choose(values) if values else (least, [])

    def answer(ties):
        return _parts.apply_reducer_to_windows(x, case.windows, lambda output: rule(ties))

    if case.ties != "last_nan":
        return answer(case.ties)
    numbers_first, nans_last = answer("first"), answer("last")
    nan = np.isnan(oracle.as_exact_numbers(numbers_first.y).astype(float))
    terms = [t for t in numbers_first.terms if not nan[t.output]]
    terms += [t for t in nans_last.terms if nan[t.output]]
    return dataclasses.replace(numbers_first, terms=tuple(terms))


def selected_taps(case, answer):
    """Return the flat tap that the oracle selects in each window, and True for windows with an element."""
    index = np.zeros(answer.y.shape, index_dtype(case.window.size))
    real = np.zeros(answer.y.shape, bool)
    for term in answer.terms:
        tap = 0
        for dim in case.window.dims:
            place = term.position[dim.axis] - term.output[dim.axis] * dim.stride + dim.low
            tap = tap * dim.window + place // dim.dilation
        index[term.output], real[term.output] = tap, True
    return index, real


def check_definition(case, answer, found, dy, v):
    """Compare the portable variant with the oracle, up to the signs of zeros."""
    (y, index), (value,), (dx,), (tangent,) = found
    maps = dataclasses.replace(
        answer, y=np.zeros(y.shape, case.sent), inputs=((case.shape, case.sent),)
    )
    wanted = [
        answer.y,
        selected_taps(case, answer)[0],
        answer.y,
        maps.cotangent(dy),
        maps.tangent(v),
    ]
    for got, want in zip((y, index, value, dx, tangent), wanted, strict=True):
        ours, theirs = (oracle.as_exact_numbers(array).astype(np.float64) for array in (got, want))
        np.testing.assert_array_equal(ours, theirs, str(case))


@pytest.mark.parametrize("seed", forms.seeds(12))
def test_variants_equal_portable(seed):
    """Variants have the same bits, and the portable variant equals the oracle."""
    case, rng = draw_case(seed)
    forward, *maps = plans_of(case, rng)
    run = compiled(case, [forward, *maps])
    named = {"select": forward, "value": forward, "route": maps[0], "pick": maps[1]}
    for values in VALUES:
        x = draw_values(rng, case.shape, case.dtype, values, greatest=case.kind == "min")
        answer = oracle_answer(case, x)
        index, real = selected_taps(case, answer)
        some_tap = rng.integers(0, case.window.size, index.shape).astype(index.dtype)
        dy = forms.draw_integers(rng, index.shape, case.sent, values == "special")
        v = forms.draw_integers(rng, case.shape, case.sent, values == "special")
        selected, *others = jax.device_get(run(x, dy, v, np.where(real, index, some_tap)))
        results = [[(y, np.where(real, tap, 0)) for y, tap in selected], *others]
        check_definition(case, answer, [found[0] for found in results], dy, v)
        for (what, names), found in zip(named.items(), results, strict=True):
            for name, got in zip(names, found, strict=True):
                if what == "value" and forward[name].value_groups:
                    got = [np.where(got[0] == 0, found[0][0], got[0])]  # zeros may differ in sign
                forms.assert_same_bits(got, found[0], f"{what}, {name}: {case}, {values}")
