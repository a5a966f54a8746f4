"""The drop-ins for Flax, compared with `flax.linen.pooling`."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from tests.support.compat_cases import (
    assert_arrays_match,
    assert_same_error,
    compare,
    drawn_calls,
    function_call,
    geometries,
    ints,
    random_dtype,
)

theirs = pytest.importorskip("flax.linen.pooling")

from jaxpool.compat import flax as ours  # noqa: E402

NAMES = ("max_pool", "min_pool", "avg_pool", "pool")
X = jnp.arange(24.0).reshape(1, 4, 6, 1)


def random_shape_and_args(rng):
    """A shape, with a window, strides and padding for it."""
    rank, batch = rng.integers(1, 4), rng.integers(0, 3)
    shape = (*ints(rng, batch, 1, 2), *ints(rng, rank, 3, 7 if rank < 3 else 4), 2)
    strides = None if rng.random() < 0.2 else ints(rng, rank, 1, 3)
    padding = rng.choice(["VALID", "SAME", "SAME_LOWER", "same"])
    if batch < 2 and rng.random() < 0.4:
        padding = tuple(ints(rng, 2, 0, 3) for _ in range(rank))
    return shape, (ints(rng, rank, 1, 3), strides, str(padding) if batch > 1 else padding)


call = functools.partial(function_call, ours, theirs)


@drawn_calls
@pytest.mark.parametrize("name", NAMES)
def test_random_calls(name, calls):
    reductions = [(-np.inf, lax.max), (np.float32(np.inf), lax.min), (0, lax.add)]
    cases = []
    for rng in geometries(calls):
        shape, args = random_shape_and_args(rng)
        if name == "avg_pool":
            args = (*args, bool(rng.integers(2)))
        elif name == "pool":
            args = (*reductions[rng.integers(3)], *args)
        exact = name in ("max_pool", "min_pool")
        dtype = np.float32 if name == "pool" else random_dtype(rng, np.uint8)
        cases.append(call(name, shape, args, exact=exact, dtype=dtype))
    compare(cases)


UNUSUAL_ARGUMENTS = [
    ((2, 2), None, ((3, 4), (0, 0))),  # some windows hold only padding
    ((9, 9), None, "VALID"),  # larger than the input
    ((1, 1), (2, 2), "VALID"),
    ((1, 1), None, "VALID"),
    ((1,), (2,), ((1, 1),)),
    ((), None, "VALID"),
    ((2, 2, 2), None, "SAME"),  # also pools the batch axis
    ((2, 2), (), "valid"),
    ((2, 2), 0, "SAME"),
    ((np.int64(2), 2), (np.int32(2), 1), [[1, 0], [0, 1]]),
    ((2, 2), None, np.ones((2, 2), int)),
]


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_unusual_valid_arguments(name):
    shapes = [X.shape if len(args[0]) != 1 else (4, 6, 1) for args in UNUSUAL_ARGUMENTS]
    calls = [call(name, shape, args) for shape, args in zip(shapes, UNUSUAL_ARGUMENTS, strict=True)]
    compare(calls, ("normal", "ties"))


def test_avg_of_padding_only_windows():
    """The first window is NaN, without an effect on the gradient."""
    each = call("avg_pool", (4, 6), ((2,), None, ((3, 0),), False))
    compare([each], ("normal",))
    assert np.isnan(each.ours(jnp.ones((4, 6)))[0]).all()


@pytest.mark.parametrize("name", NAMES[:3])
def test_values_with_negative_padding(name):
    for padding in [((-1, 0), (0, 0)), ((-1, 0), (-3, 2)), ((-4, 0), (0, 0))]:
        assert_arrays_match(
            *(getattr(m, name)(X, (2, 2), None, padding) for m in (ours, theirs)), 1e-6, name
        )


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_axes_of_size_0(name):
    shapes = [(0, 4, 6, 1), (1, 4, 6, 0), (1, 0, 6, 1)]
    paddings = ["VALID", "SAME", ((1, 1), (1, 1))]
    compare(
        [call(name, shape, ((2, 2), None, padding)) for shape in shapes for padding in paddings],
        ("normal",),
    )


INVALID_ARGUMENTS = {
    "window_shape": [
        *([2, 2], 2, (2, 2, 2, 2), (0, 2), (-1, 2), np.array([2, 2]), (jnp.int32(2), 2), "22")
    ],
    "strides": [[2, 2], 2, (2,), (0, 1), (-1, 1), (2.0, 1), (2, 2, 2), np.array([2, 2])],
    "padding": ["Foo", 1, (1, 1), ((1, 1),), ((1, 1, 1), (1, 1, 1)), None],
    "inputs": [[[1.0, 2.0]], None, jnp.ones((4, 6))],
}


@pytest.mark.parametrize("argument", INVALID_ARGUMENTS)
def test_invalid_arguments_raise_like_flax(argument):
    right = {"inputs": X, "window_shape": (2, 2)}
    wrong = [{argument: value} for value in INVALID_ARGUMENTS[argument]]
    if argument == "inputs":
        wrong.append({"inputs": jnp.ones((2, 2, 4, 6, 1)), "padding": ((1, 1), (1, 1))})
    for name in NAMES[:3]:
        for given in wrong:
            assert_same_error(getattr(ours, name), getattr(theirs, name), **(right | given))


def test_float_stride_raises_after_equal_int_stride():
    ours.max_pool(X, (2, 2), (2, 1))
    assert_same_error(ours.max_pool, theirs.max_pool, X, (2, 2), (2.0, 1))


def test_drop_ins_replace_flax_functions(monkeypatch):
    for name in NAMES:
        monkeypatch.setattr(theirs, name, getattr(ours, name))
    x = X + 1  # a shape that no other test has traced
    np.testing.assert_array_equal(ours.max_pool(x[:, :3], (2, 2)), x[:, 1:3, 1:])
    assert ours.avg_pool(x[:, :3], (3, 6)).shape == (1, 1, 1, 1)


def test_avg_of_bool_and_float8_avg_excluding_padding_raise():
    assert_same_error(ours.avg_pool, theirs.avg_pool, X > 3, (2, 2))
    x = X.astype(jnp.float8_e5m2)
    assert_same_error(ours.avg_pool, theirs.avg_pool, x, (2, 2), None, "SAME", False)


def test_strict_promotion_matches_flax():
    accepted = []
    names = ["float16", "bfloat16", "float32", "int8", "int32"]
    with jax.numpy_dtype_promotion("strict"):
        for name, counted in itertools.product(names, (True, False)):
            args = (X.astype(name), (2, 2), None, "SAME", counted)
            try:
                want = theirs.avg_pool(*args)
            except ValueError:
                continue
            accepted.append((name, counted))
            assert_arrays_match(ours.avg_pool(*args), want, 1e-6, args)
    assert ("float32", False) in accepted


def test_avg_pool_is_one_op():
    for counted in (True, False):
        program = jax.make_jaxpr(lambda x, c=counted: ours.avg_pool(x, (3, 3), None, "SAME", c))(X)
        assert len(program.eqns) == 1


def test_padding_is_not_selected_without_infinity():
    x = jnp.array([[-3.0], [-2.0]]).astype(jnp.float8_e4m3fn)
    y = ours.max_pool(x, (3,), None, ((1, 1),))
    np.testing.assert_array_equal(y.astype(jnp.float32).ravel(), [-2, -2])


@pytest.mark.parametrize("init", [np.zeros(1, np.float32), "traced"])
def test_traced_or_invalid_initial_value(init):
    """The drop-in falls back to lax's reduction, or raises flax's error."""

    def pooled(module):
        if isinstance(init, str):
            pool = jax.jit(lambda start: module.pool(X, start, lax.max, (2, 2), None, "SAME"))
            return pool(np.float32(5))
        try:
            return module.pool(X, init, lax.max, (2, 2), None, "SAME")
        except Exception as error:
            return str(error)

    got, want = pooled(ours), pooled(theirs)
    assert got == want if isinstance(want, str) else (got == want).all()


def test_uneven_shards_raise_lax_error():
    mesh = AbstractMesh((4,), ("rows",), axis_types=(AxisType.Explicit,))
    where = NamedSharding(mesh, PartitionSpec(None, "rows"))
    x = jax.ShapeDtypeStruct((1, 16, 4, 1), np.float32, sharding=where)

    def refused(module):
        with jax.sharding.use_abstract_mesh(mesh), pytest.raises(Exception, match="14") as raised:
            jax.eval_shape(lambda x: module.max_pool(x, (3, 3)), x)
        return str(raised.value)

    assert refused(ours) == refused(theirs)


def test_dtype_follows_x64_mode_between_calls():
    x = np.ones((1, 4, 4, 1), np.float32)

    def dtypes():
        pools = [ours.avg_pool, theirs.avg_pool]
        return [pool(x, (2, 2), count_include_pad=False).dtype for pool in pools]

    for wide in (False, True, False):
        with jax.enable_x64(wide):
            one, other = dtypes()
        assert one == other
