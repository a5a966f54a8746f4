"""Running maximum and minimum: tie rules, both autodiff modes, dtypes, episodes and messages."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import assert_close, draw_values, oracle
from tests.support.compilation import FAST_COMPILE
from tests.support.later import first_values, later

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("first", "last")
nan, inf = np.nan, np.inf
SHAPE = (3, 7, 4)


def value_and_cotangent_program(f, **options):
    def program(x, dy):
        y, pullback = jax.vjp(functools.partial(f, **options), x)
        return y, pullback(dy)[0]

    return jax.jit(program, compiler_options=FAST_COMPILE)


def running_extremum_reference(x, better, ties, reverse=False):
    """Reference in Python: the running extremum of a list, and the index of each selected element."""
    order = range(len(x))[::-1] if reverse else range(len(x))
    y, index, best = [0.0] * len(x), [0] * len(x), None
    # "first" and "last" refer to the order along the axis: a reverse scan meets the first element last.
    later_tie_wins = ties == ("first" if reverse else "last")
    for i in order:
        if best is None:
            best = i
        elif np.isnan(x[best]) or np.isnan(x[i]):
            challenger_wins = np.isnan(x[i]) and (not np.isnan(x[best]) or later_tie_wins)
            best = i if challenger_wins else best
        elif better(x[i], x[best]) or (later_tie_wins and x[i] == x[best]):
            best = i
        y[i], index[i] = x[best], best
    return np.array(y), np.array(index)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


COMPARATORS = {"cummax": np.greater, "cummin": np.less}
CALLS = [
    ("cummax", 0, False, "vjp"),
    ("cummax", -2, True, "vjp"),
    ("cummin", 1, True, "jvp"),
    slow("cummax", 1, False, "vjp"),
    slow("cummax", -1, False, "vjp"),
    slow("cummax", 1, False, "jvp"),
    slow("cummin", -1, False, "vjp"),
]


@pytest.mark.parametrize(("name", "axis", "reverse", "autodiff"), CALLS)
@pytest.mark.parametrize("ties", TIES)
def test_value_and_cotangent(name, axis, reverse, autodiff, ties):
    options = {"axis": axis, "reverse": reverse, "ties": ties}
    program = value_and_cotangent_program(getattr(jaxpool, name), autodiff=autodiff, **options)
    rng = np.random.default_rng(0)
    for values in ("ties", "ties", "special", "lowest", "normal"):
        x = draw_values(rng, SHAPE, np.float32, values, greatest=name == "cummin")
        dy = draw_values(rng, SHAPE, np.float32, "normal")
        y, dx = program(x, dy)
        x_scan_first, expected_dx = np.moveaxis(x, axis, 0), np.zeros(SHAPE)
        for position in np.ndindex(*x_scan_first.shape[1:]):
            index_of_line = (slice(None), *position)
            want, index = running_extremum_reference(
                x_scan_first[index_of_line], COMPARATORS[name], ties, reverse
            )
            np.testing.assert_array_equal(np.moveaxis(y, axis, 0)[index_of_line], want)
            np.add.at(
                np.moveaxis(expected_dx, axis, 0)[index_of_line],
                index,
                np.moveaxis(dy, axis, 0)[index_of_line],
            )
        np.testing.assert_allclose(dx, expected_dx, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((1, 2, 9, 40), id="some"),
        pytest.param(tuple(range(1, 41)), id="every", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("ties", "reverse"), [("first", False), ("last", False), slow("first", True)]
)
def test_selection_does_not_depend_on_the_axis_length(ties, reverse, lengths):
    """Prefixes of one array, or suffixes in reverse."""
    rng = np.random.default_rng(1)
    x = draw_values(rng, (40,), np.float32, "ties")
    x[20:] += rng.integers(0, 2, 20)
    dy = rng.integers(1, 100, 40).astype(np.float32)
    f = functools.partial(jaxpool.cummax, reverse=reverse, ties=ties)
    parts = [slice(40 - size, None) if reverse else slice(size) for size in lengths]

    def cotangents(x, dy):
        return [jax.vjp(f, x[part])[1](dy[part])[0] for part in parts]

    got = jax.jit(cotangents, compiler_options=FAST_COMPILE)(x, dy)
    for part, dx in zip(parts, got, strict=True):
        _, index = running_extremum_reference(x[part], np.greater, ties, reverse)
        np.testing.assert_array_equal(dx, np.bincount(index, dy[part], len(index)))


@pytest.mark.parametrize("name", COMPARATORS)
def test_ties_nan_and_infinity_examples(name):
    sign = 1 if name == "cummax" else -1
    f = getattr(jaxpool, name)
    calls = [{"ties": "first"}, {"ties": "last"}, {"ties": "first", "reverse": True}]
    programs = [value_and_cotangent_program(f, **options) for options in calls]
    cases = [
        # values, then counts of outputs per element: "first", "last", "first" in reverse
        ([1, 3, 2, 3, 4], [1, 3, 0, 0, 1], [1, 2, 0, 1, 1], [0, 0, 0, 0, 5]),
        ([0.0, -0.0, -1, 0.0, -2], [5, 0, 0, 0, 0], [1, 2, 0, 2, 0], [1, 1, 0, 2, 1]),
        ([1, nan, 9, nan, 2], [1, 4, 0, 0, 0], [1, 2, 0, 2, 0], [0, 2, 0, 2, 1]),
        ([-inf, -inf, inf, inf, 0], [2, 0, 3, 0, 0], [1, 1, 1, 2, 0], [0, 0, 3, 1, 1]),
        ([-inf] * 5, [5, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
    ]
    for values, *counts in cases:
        x = sign * np.array(values, np.float32)
        for program, count in zip(programs, counts, strict=True):
            np.testing.assert_array_equal(program(x, np.ones(5, np.float32))[1], count)


def test_nan_propagates():
    x = np.array([1, nan, inf, -inf], np.float32)
    np.testing.assert_array_equal(jaxpool.cummax(x), [1, nan, nan, nan])
    np.testing.assert_array_equal(jaxpool.cummin(x), [1, nan, nan, nan])
    np.testing.assert_array_equal(jaxpool.cummin(x, reverse=True), [nan, nan, -inf, -inf])


# Dtypes

DTYPES = [
    *[np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32],
    *[jnp.bfloat16, np.float16, np.float32],
    *[getattr(jnp, name) for name in dir(jnp) if name.startswith("float8_")],
]
QUICK_DTYPES = (np.bool_, np.uint32, jnp.float8_e4m3fn, jnp.float8_e8m0fnu)


@pytest.mark.parametrize(
    "dtype",
    [*QUICK_DTYPES, *[slow(dtype) for dtype in DTYPES if dtype not in QUICK_DTYPES]],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_dtypes(dtype):
    rng = np.random.default_rng(3)
    floating = jnp.issubdtype(dtype, jnp.floating)
    for name in COMPARATORS:
        f = functools.partial(getattr(jaxpool, name), axis=1)
        program = value_and_cotangent_program(f) if floating else lambda x, dy, f=f: (f(x), None)
        for values in ("ties", "special", "lowest"):
            x = draw_values(rng, SHAPE, dtype, values, greatest=name == "cummin")
            dy = draw_values(rng, SHAPE, dtype, "ties")
            want = getattr(oracle, name)(x, axis=1)
            y, dx = program(x, dy)
            assert_close(y, want.y, 0, f"{name} of {x}")
            if floating:
                assert_close(dx, want.cotangent(dy), 0, f"cotangent of {x}")


@pytest.mark.usefixtures("x64")
def test_64_bit_dtypes():
    for dtype in (np.int64, np.uint64, np.float64):
        x = draw_values(np.random.default_rng(4), (2, 3), dtype, "lowest")
        assert_close(jaxpool.cummax(x), oracle.cummax(x).y, 0, "value")
    assert jax.grad(lambda x: jaxpool.cummax(x).sum())(x).dtype == np.float64


@pytest.mark.parametrize("autodiff", MODES)
def test_cotangents_accumulate_in_float32(autodiff):
    """A sum of 512 ones in bfloat16 would stop at 256."""
    x, ones = np.zeros(512, jnp.bfloat16), np.ones(512, jnp.bfloat16)
    _, dx = value_and_cotangent_program(jaxpool.cummax, autodiff=autodiff)(x, ones)
    assert (dx.dtype, dx[0], dx[1:].any()) == (x.dtype, 512, False)


# Shapes and transformations


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1,), (2, 1)])
def test_axes_of_size_zero_and_one(shape):
    x = np.ones(shape, np.float32)
    for ties in TIES:
        f = functools.partial(jaxpool.cummax, ties=ties)
        y, dx = value_and_cotangent_program(f)(x, x)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(dx, x)


@pytest.mark.parametrize("autodiff", MODES)
def test_residual_is_one_index_per_output(autodiff):
    for size, dtype in [(256, np.uint8), (257, np.uint16)]:
        x = np.zeros((2, size), np.float32)
        f = jax.jit(functools.partial(jaxpool.cummax, autodiff=autodiff))
        leaves = jax.tree.leaves(jax.eval_shape(lambda x, f=f: jax.vjp(f, x)[1], x))
        assert [(leaf.shape, leaf.dtype) for leaf in leaves] == [(x.shape, dtype)]


@pytest.mark.parametrize("autodiff", MODES)
def test_backward_pass_has_no_scatter_gather_or_sort(autodiff):
    f = functools.partial(jaxpool.cummax, autodiff=autodiff)
    program = jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())).lower(np.ones(9, np.float32))
    operations = set(re.findall(r"stablehlo\.(\w+)", program.as_text()))
    assert "pad" in operations
    assert not [name for name in operations if re.search("scatter|gather|sort", name)]


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_empty_array(reverse):
    dx = jax.grad(lambda x: jaxpool.cummax(x, 0, reverse=reverse).sum())(jnp.zeros((0, 2)))
    assert dx.shape == (0, 2)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_subnormal_values(kind, dtype):
    """XLA for CPU treats subnormals as zeros in float comparisons: a running maximum of 1e-42, 0, 0 would decrease."""
    dtype = jnp.dtype(dtype)
    tiny = np.asarray(jnp.finfo(dtype).smallest_subnormal, dtype)
    x = np.array([3, 0, 5, 0, 0, 7, -2, 4, 1], np.float32) * np.float32(tiny)
    x = (x if kind == "max" else -x).astype(dtype)
    f = functools.partial(getattr(jaxpool, f"cum{kind}"))
    y, dx = value_and_cotangent_program(f)(x, np.ones(x.shape, dtype))
    expected = getattr(np, f"{kind}imum").accumulate(x.astype(np.float32)).astype(dtype)
    bits = np.dtype(f"uint{8 * dtype.itemsize}")
    np.testing.assert_array_equal(np.asarray(y).view(bits), expected.view(bits))
    np.testing.assert_array_equal(np.asarray(f(x)).view(bits), expected.view(bits))
    np.testing.assert_array_equal(np.asarray(dx, np.float32), [2, 0, 3, 0, 0, 4, 0, 0, 0])


# Episodes


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ties", first_values(1, TIES))
def test_reset_equals_separate_scans(ties, reverse):
    """Value, index and cotangent equal those of separate scans over the episodes, in both directions."""
    rng = np.random.default_rng(3)
    starts = np.array([0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0], bool)
    bounds = [0, *np.flatnonzero(starts), len(starts)]
    f = functools.partial(jaxpool.cummax_with_argmax, ties=ties, reverse=reverse)

    def both(x, dy, pieces):
        results = []
        for piece in pieces:
            given = {"reset": starts[:, None]} if len(pieces) == 1 else {}

            def run(x, given=given):
                return f(x, 0, **given)

            y, back, index = jax.vjp(run, x[piece], has_aux=True)
            results.append((y, index + piece.start, back(dy[piece])[0]))
        return [jnp.concatenate(each) for each in zip(*results, strict=True)]

    episodes = [slice(int(a), int(b)) for a, b in itertools.pairwise(bounds)]
    whole = jax.jit(functools.partial(both, pieces=[slice(0, 11)]), compiler_options=FAST_COMPILE)
    parts = jax.jit(functools.partial(both, pieces=episodes), compiler_options=FAST_COMPILE)
    for values in ("ties", "special", "lowest"):
        x = draw_values(rng, (11, 2), np.float32, values)
        dy = draw_values(rng, (11, 2), np.float32, "normal")
        for got, want in zip(whole(x, dy), parts(x, dy), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_reset_adds_no_residual():
    x, starts = jnp.ones((9, 4)), jnp.arange(9)[:, None] == 4
    for options in ({}, {"reset": starts}):
        _, back = jax.vjp(lambda x, options=options: jaxpool.cummax(x, 0, **options), x)
        (residual,) = [leaf for leaf in jax.tree.leaves(back) if leaf.size > 1]
        assert (residual.dtype, residual.shape) == (jnp.uint8, (9, 4))


def test_indices_match_pytorch():
    torch = pytest.importorskip("torch")
    x = np.array([[1, 3, 2, 3, nan, 3, nan], [0.0, -0.0, -1, -inf, 5, 5, 1]], np.float32)
    for name in COMPARATORS:
        want = getattr(torch, name)(torch.tensor(x), 1).indices
        _, index = getattr(jaxpool, f"{name}_with_argmax")(x, 1, ties="last")
        np.testing.assert_array_equal(index, want)


@pytest.mark.parametrize(("reverse", "x64"), [(False, False), later(True, True)])
def test_reset_in_arrays_scanned_in_blocks(reverse, x64):
    # Long enough for blocks of blocks.
    x = np.random.default_rng(4).standard_normal((3301, 16)).astype(np.float32)
    bounds = [0, 7, 8, 40, 900, 2999, 3301]
    starts = np.isin(np.arange(3301), bounds)[:, None]
    with jax.enable_x64(x64):
        y, index = jaxpool.cummax_with_argmax(x, 0, reset=starts, reverse=reverse)
    order = -1 if reverse else 1
    for begin, end in itertools.pairwise(bounds):
        want = np.maximum.accumulate(x[begin:end][::order])[::order]
        np.testing.assert_array_equal(y[begin:end], want)
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(index), 0), y)
