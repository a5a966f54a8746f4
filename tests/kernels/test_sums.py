"""Sums over windows and their transpose, pass by pass: against loops in NumPy, in integers, so to the bit."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxpool._kernels.dense import End

import jaxpool
from jaxpool._geometry import taps
from jaxpool._geometry.window import Axis, make_window
from jaxpool._kernels import sums
from tests.support.geometry import window_of

GEOMETRIES = [
    # shape, window, strides, padding, dilation, ceil, axes
    ((2, 9, 8, 3), (3, 3), (1, 1), "SAME", 1, False, None),
    ((2, 19, 18, 16), (3, 3), (2, 2), "SAME", 1, False, None),
    ((2, 3, 19, 18), (3, 3), (2, 2), 1, 1, False, (3, 2)),
    ((19, 21), (2, 3), (3, 2), ((1, 0), (0, 2)), 1, True, (0, 1)),
    ((1, 12, 13, 2), (3, 2), (1, 2), ((2, 2), (1, 0)), 2, False, None),
    ((1, 14, 13, 2), (2, 3), (4, 4), 0, 1, False, None),  # gaps, and rests that no window reaches
    ((2, 17, 15, 1), (2, 2), (2, 2), "VALID", 1, False, None),
    ((1, 16, 17, 2), (4, 4), (2, 2), "SAME", 1, False, None),
    ((1, 19, 18, 2), (4, 4), (3, 3), "SAME_LOWER", 1, False, None),
    ((1, 16, 17, 2), (6, 5), (1, 1), "SAME", 1, False, None),
    ((2, 25, 1), (7,), (3,), 3, 1, True, None),
    ((1, 20, 22, 2), (7, 7), (2, 2), "SAME", 1, False, None),
    ((1, 30, 27, 1), (13, 11), (2, 1), "SAME", 1, False, None),
    ((1, 7, 8, 9, 2), (3, 3, 3), (2, 2, 2), "SAME", 1, False, None),
    ((1, 7, 8, 9, 2), (3, 2, 3), (1, 1, 1), "SAME_LOWER", 1, False, None),
    ((1, 5, 3, 2), (9, 3), (1, 1), 4, 1, False, None),  # windows larger than the input
    ((3, 10, 3), (3,), (1,), ((0, 4),), 2, False, None),
    ((2, 80, 1), (33,), (1,), "SAME", 1, False, None),  # 3 * 11
    ((90,), (37,), (1,), ((20, 3),), 1, False, (0,)),  # 6 * 6 + 1
    ((200, 1), (40,), (1,), 50, 3, False, (0,)),
    ((2, 150, 1), (70,), (2,), "SAME", 1, False, None),
    ((1, 131, 2), (64,), (32,), "SAME", 1, False, None),  # blocks alone
    ((2, 100, 1), (63,), (40,), ((30, 11),), 1, True, None),  # blocks of 20 and a rest
    ((99, 2), (127,), (64,), 63, 1, False, (0,)),  # blocks of 16
    ((1, 150, 2), (41,), (37,), "SAME", 1, False, None),  # a stride without blocks
    ((1, 90, 3), (34,), (2,), ((33, 5),), 1, False, None),  # 17 taps of each phase
    ((1, 90, 1), (61,), (3,), "SAME_LOWER", 1, False, None),  # 20 and a rest
    ((120, 1), (40,), (8,), "VALID", 2, False, (0,)),
    ((1, 300, 1), (300,), (15,), 290, 1, False, None),  # 20 taps of each of 15 phases
    ((1500,), (1100,), (1,), "SAME", 1, False, (0,)),
    ((1, 8, 1), (2,), (3,), ((4, 5),), 1, False, None),  # some windows are padding alone
]


def by_loops(x, window):
    """The sums over each window, axis by axis."""
    for dim in window.dims:
        columns = []
        for output in range(dim.out):
            places = [
                output * dim.stride - dim.low + tap * dim.dilation for tap in range(dim.window)
            ]
            real = [place for place in places if 0 <= place < dim.size]
            columns.append(np.take(x, real, dim.axis).sum(dim.axis))
        x = np.stack(columns, dim.axis)
    return x


def spread_by_loops(dy, window):
    for dim in window.dims:
        shape = list(dy.shape)
        shape[dim.axis] = dim.size
        dx = np.moveaxis(np.zeros(shape, dy.dtype), dim.axis, 0)
        for output, share in enumerate(np.moveaxis(dy, dim.axis, 0)):
            for tap in range(dim.window):
                place = output * dim.stride - dim.low + tap * dim.dilation
                if 0 <= place < dim.size:
                    dx[place] += share
        dy = np.moveaxis(dx, 0, dim.axis)
    return dy


@pytest.mark.parametrize("how", ["regions", "tested", "gathered"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_same_sums_as_by_loops(geometry, dtype, how, monkeypatch):
    monkeypatch.setattr(sums, "_worth_cutting", lambda *_: how != "tested")
    monkeypatch.setattr(sums, "WORTH_MANY_AXES", 1 << 60 if how == "tested" else 0)
    monkeypatch.setattr(sums, "worth_gathering", lambda *_: how == "gathered")
    window = window_of(*geometry)
    rng = np.random.default_rng(3)
    x = rng.integers(-1, 2, geometry[0]).astype(dtype)
    dy = rng.integers(-1, 2, window.pooled(geometry[0])).astype(dtype)
    y = jax.jit(lambda x: sums.window_sum(x, window, End(np.float32)))(x)
    np.testing.assert_array_equal(y, by_loops(x.astype(np.float32), window))
    dx = jax.jit(lambda dy: sums.window_spread(dy, window, End(np.float32)))(dy)
    np.testing.assert_array_equal(dx, spread_by_loops(dy.astype(np.float32), window))


axes = st.builds(
    lambda size, window, stride, dilation, low, out: Axis(
        0, size, window, stride, dilation, low, 0, out
    ),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(-3, 12),
    st.integers(1, 20),
)


@given(axes, st.sampled_from(["outputs", "inputs"]), st.integers(0, 4))
@settings(deadline=None)
def test_regions_hold_each_position_once_and_elements_where_they_say(dim, what, most):
    phases = taps.of_outputs(dim) if what == "outputs" else taps.of_inputs(dim)
    regions = taps.cuts([phases], most)
    held = [
        position * len(phases) + phase
        for cut in regions
        for position in range(cut.first, cut.stop)
        for phase in range(cut.phases)
    ]
    assert held == list(range(dim.out if what == "outputs" else dim.size))
    assert len(regions) <= 2 * most + 2
    for each in phases:
        first, stop = each.complete
        for offset, position in itertools.product(each.offsets, range(each.out)):
            inside = 0 <= each.stride * position + offset < each.size
            low, high = each.inside(offset, 0, each.out)
            assert inside == (low <= position < high)
            assert inside or not first <= position < stop


def test_what_an_input_gets_is_what_outputs_gave():
    dim = Axis(0, 23, 4, 3, 2, 5, 4, 8)
    gave = {
        (offset + each.stride * output, output)
        for (each,) in [taps.of_outputs(dim)]
        for output in range(each.out)
        for offset in each.offsets
        if 0 <= offset + each.stride * output < dim.size
    }
    got = {
        (position * 3 + phase, position + offset)
        for phase, each in enumerate(taps.of_inputs(dim))
        for position in range(each.out)
        for offset in each.offsets
        if 0 <= position + offset < dim.out
    }
    assert got == gave
    assert len(gave) > 20


@pytest.mark.parametrize(
    ("shape", "window", "strides", "dilation"),
    [
        ((1, 2000, 8), (63,), 1, 1),
        ((1, 2000, 8), (63,), 2, 1),
        ((1, 2000, 8), (997,), 1, 1),
        ((1, 4000, 8), (400,), 160, 1),
        ((1, 4000, 8), (2048,), 512, 1),
        ((1, 4000, 8), (2,), 2000, 3),
        ((1, 200, 200, 8), (40, 40), 20, 1),
        ((1, 100, 100, 8), (3, 3), 1, 20),
        ((1, 8, 8, 8, 2), (3, 3, 3), 1, 1),
        ((1, 9, 9, 9, 9, 9), (2,) * 5, 1, 1),
    ],
)
def test_programs_stay_short(shape, window, strides, dilation):
    """Of forward and backward, in equations and lines of nested ones."""
    x = jnp.zeros(shape)
    axes = tuple(range(1, 1 + len(window)))

    def loss(x):
        options = {"padding": "SAME", "window_dilation": dilation, "axes": axes}
        return jaxpool.avg_pool(x, window, strides, **options).sum()

    assert str(jax.make_jaxpr(jax.grad(loss))(x)).count("\n") < 2000


@pytest.mark.parametrize(
    ("padding", "dilation", "channels", "forward", "backward"),
    [
        ("SAME", 1, 1, [3], [3]),
        ("VALID", 1, 1, [3], [2, 1]),  # backwards two positions at either end test bounds
        ("SAME", 2, 3, [2, 1], [2, 1]),
        ("SAME", 2, 4, [3], [3]),  # looked up
    ],
)
def test_three_axes_that_test_bounds_are_two_passes(padding, dilation, channels, forward, backward):
    shape = (1, 32, 32, 32, channels)
    window = window_of(shape, (3, 3, 3), (1, 1, 1), padding, dilation, False, None)
    x, dy = (jax.ShapeDtypeStruct(each, jnp.float32) for each in (shape, window.pooled(shape)))
    found = []

    def passes(x, dy):
        for array, spread in ((x, False), (dy, True)):
            fits = functools.partial(sums._flat, x=array, spread=spread)
            found.append([len(group) for group in sums._passes(window.dims, fits)])

    jax.eval_shape(passes, x, dy)
    assert found == [forward, backward]


def test_the_order_of_axes_changes_nothing():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 40, 41)), jnp.float32)

    def program(axes, window):
        def both(x):
            y, vjp = jax.vjp(lambda x: jaxpool.avg_pool(x, window, 2, axes=axes), x)
            return y, vjp(y)

        return jax.jit(both)(x)

    jax.tree.map(np.testing.assert_array_equal, program((2, 3), (9, 5)), program((3, 2), (5, 9)))


def test_the_cotangent_of_an_empty_axis_is_empty():
    window = make_window((1, 0, 3), (3,), (2,), ((2, 2),), axes=(1,), empty="keep")
    dx = sums.window_spread(jnp.ones(window.pooled((1, 0, 3))), window, End(np.float16))
    assert (dx.shape, dx.dtype) == ((1, 0, 3), np.float16)


@pytest.mark.parametrize(
    ("pool", "dtype", "channels", "apart"),
    [
        ("avg_pool", jnp.float16, 32, True),
        ("avg_pool", jnp.float16, 64, False),
        ("avg_pool", jnp.float32, 32, False),
        ("sum_pool", jnp.float16, 32, False),
    ],
)
def test_what_is_repeated_is_rounded_to_float16_before(pool, dtype, channels, apart):
    x = jnp.zeros((2, 8, 6, channels), dtype)
    y, vjp = jax.vjp(lambda x: getattr(jaxpool, pool)(x, (4, 2), (4, 3)), x)
    dy = jnp.asarray(np.random.default_rng(0).standard_normal(y.shape), dtype)
    count = np.float32(8 if pool == "avg_pool" else 1)
    want = np.zeros(x.shape, dtype)
    want.reshape(2, 2, 4, 2, 3, channels)[..., :2, :] = (np.asarray(dy, np.float32) / count).astype(
        dtype
    )[:, :, None, :, None]
    np.testing.assert_array_equal(vjp(dy)[0], want)
    assert (" cond[" in str(jax.make_jaxpr(vjp)(dy))) is apart


@pytest.mark.parametrize("pool", ["avg_pool", "max_pool"])
@pytest.mark.parametrize(
    ("window", "strides", "dilation"), [(3, 1, 1), (3, 2, 1), (2, 4, 2), (13, 2, 1), (40, 1, 1)]
)
def test_regions_keep_explicit_shardings(window, strides, dilation, pool):
    """Phases without taps too."""
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 66, 65, 32)), jnp.float32)

    def loss(x):
        function = getattr(jaxpool, pool)
        sides = ((window - 1, 1), (0, window - 1))
        return function(x, window, strides, sides, window_dilation=dilation, axes=(1, 2)).sum()

    want = jax.grad(loss)(x)
    with jax.set_mesh(mesh):
        spec = jax.sharding.PartitionSpec("b")
        given = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
        got = jax.jit(jax.grad(loss))(given)
        assert got.sharding.spec[0] == "b"
    np.testing.assert_allclose(got, want, rtol=1e-5)
