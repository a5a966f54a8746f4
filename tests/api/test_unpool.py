"""`max_unpool` against loops: colliding indices, indices out of range, dtypes and transformations."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool._ops.unpool import Unpool
from jaxpool.testing import geometries, pool_cases
from tests.support.argmax_pools import column, every_dtype, hashable_options, pooled
from tests.support.drawn import examples, with_new_values

pytestmark = pytest.mark.usefixtures("strict")


def unpooled_oracle(y, indices, spatial_shape, axes):
    """Loops: of colliding indices, the last in row-major order wins."""
    moved = np.moveaxis(y, axes, range(-len(axes), 0))
    where = np.moveaxis(indices, axes, range(-len(axes), 0))
    lanes = moved.shape[: y.ndim - len(axes)]
    x = np.zeros((*lanes, int(np.prod(spatial_shape))), y.dtype)
    for lane in np.ndindex(*lanes):
        for value, at in zip(moved[lane].ravel(), where[lane].ravel(), strict=True):
            if 0 <= int(at) < x.shape[-1]:
                x[*lane, int(at)] = value
    return np.moveaxis(x.reshape(*lanes, *spatial_shape), range(-len(axes), 0), axes)


def cotangent_oracle(dx, indices, axes):
    """Loops: dx at each index, and 0 for indices out of range or overwritten."""
    moved = np.moveaxis(dx, axes, range(-len(axes), 0)).reshape(
        *[size for axis, size in enumerate(dx.shape) if axis not in axes], -1
    )
    where = np.moveaxis(indices, axes, range(-len(axes), 0))
    dy, last = np.zeros(where.shape, dx.dtype), {}
    for position in np.ndindex(*where.shape):
        at = int(where[position])
        if 0 <= at < moved.shape[-1]:
            last[(*position[: moved.ndim - 1], at)] = position
    for target, position in last.items():
        dy[position] = moved[target]
    return np.moveaxis(dy, range(-len(axes), 0), axes)


@functools.partial(jax.jit, static_argnames=("spatial_shape", "axes"))
def unpool_and_cotangent(y, indices, dx, spatial_shape, axes):
    """The unpooled array and the cotangent of y, with traced indices."""
    unpool = functools.partial(jaxpool.max_unpool, spatial_shape=spatial_shape, axes=axes)
    x, pullback = jax.vjp(lambda y: unpool(y, indices), y)
    return x, pullback(dx)[0]


LAYOUTS = [
    ((2, 5, 3), (7,), (1,)),
    ((2, 3, 4, 3), (4, 5), (1, 2)),
    ((2, 3, 4, 3), (4, 5), (2, 1)),
    ((3, 4, 2, 3), (4, 5), (3, 0)),
    ((2, 2, 2, 2, 2), (3, 2, 2), (1, 2, 3)),
]


@pytest.mark.parametrize(("shape", "spatial_shape", "axes"), LAYOUTS)
def test_colliding_and_out_of_range_indices(shape, spatial_shape, axes):
    rng = np.random.default_rng(3)
    count = int(np.prod(spatial_shape))
    out = list(shape)
    for axis, size in zip(axes, spatial_shape, strict=True):
        out[axis] = size
    for least, most in [(0, count), (0, 3), (-2, count + 3)]:
        y, dx = (rng.standard_normal(size).astype(np.float32) for size in (shape, out))
        indices = rng.integers(least, most, shape).astype(np.int32)
        x, dy = unpool_and_cotangent(y, indices, dx, spatial_shape, axes)
        np.testing.assert_array_equal(x, unpooled_oracle(y, indices, spatial_shape, axes))
        np.testing.assert_array_equal(dy, cotangent_oracle(dx, indices, axes))


def test_default_axes_exclude_batch_and_channels():
    y, indices = np.ones((2, 3, 2, 5), np.float32), np.zeros((2, 3, 2, 5), np.int32)
    want = jaxpool.max_unpool(y, indices, (4, 4), axes=(1, 2))
    np.testing.assert_array_equal(jaxpool.max_unpool(y, indices, [4, 4]), want)


def test_last_of_many_colliding_elements_wins():
    """Enough elements that XLA could divide a scatter among threads."""
    rng = np.random.default_rng(4)
    y = np.arange(40_000, dtype=np.float32)[None, :, None]
    indices = rng.integers(0, 50, y.shape).astype(np.int32)
    last = np.zeros(50, np.float32)
    last[indices.ravel()] = y.ravel()
    for _ in range(3):
        np.testing.assert_array_equal(jaxpool.max_unpool(y, indices, (50,)).ravel(), last)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_input(shape):
    y, indices = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    x, dy = jax.vjp(lambda y: jaxpool.max_unpool(y, indices, (4,), axes=(1,)), y)
    assert x.shape == (shape[0], 4, shape[2])
    assert not x.any()
    assert dy(x)[0].shape == shape


def test_overwritten_elements_have_zero_derivative():
    y, indices = column(1, 2, 3), column(2, 2, 0, dtype=np.int32)
    unpool = functools.partial(jaxpool.max_unpool, indices=indices, spatial_shape=(4,))
    x, pullback = jax.vjp(unpool, y)
    np.testing.assert_array_equal(x, column(3, 0, 2, 0))
    np.testing.assert_array_equal(pullback(column(10, 20, 30, 40))[0], column(0, 30, 10))
    tangent = jax.jvp(unpool, (y,), (column(1, 10, 100),))[1]
    np.testing.assert_array_equal(tangent, column(100, 0, 10, 0))
    jacobians = (
        jax.jacfwd(unpool)(y),
        jax.jacrev(unpool)(y),
        jax.jacfwd(jax.grad(sum_of_squares))(y),
    )
    np.testing.assert_array_equal(jacobians[0], jacobians[1])
    np.testing.assert_array_equal(jnp.diag(jacobians[2][:, 0, :, 0]), [0, 2, 0])


def sum_of_squares(y):
    """The sum of squares of two elements; the second element overwrites the first."""
    return (jaxpool.max_unpool(y[:2], np.zeros((2, 1), np.int32), (2,)) ** 2).sum()


@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_derivatives_match_on_every_platform(platform):
    """Scatters write in order on CPU, but not on every platform."""
    rng = np.random.default_rng(7)
    y, indices = rng.normal(size=(2, 6, 5, 3)).astype(np.float32), rng.integers(0, 24, (2, 6, 5, 3))
    dx = rng.normal(size=(2, 4, 6, 3)).astype(np.float32)
    op = Unpool((2, 1), (6, 4))

    @jax.jit
    def run(y, indices, dx):
        x, residual = op.primal(platform, y, indices)
        return (
            x,
            op.value(platform, y, indices),
            op.transpose(platform, residual, dx)[0],
            (op.linear(platform, residual, y)),
        )

    x, value, dy, tangent = run(y, indices.astype(np.int32), dx)
    np.testing.assert_array_equal(x, unpooled_oracle(y, indices, (6, 4), (2, 1)))
    np.testing.assert_array_equal(dy, cotangent_oracle(dx, indices, (2, 1)))
    np.testing.assert_array_equal(value, x)
    np.testing.assert_array_equal(tangent, x)


def test_maximum_shared_by_two_windows_counts_once():
    """Unpooling a pool is the identity at a maximum, so its derivative there is 1."""
    x = column(1, 3, 2)

    def through(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2,))
        return jaxpool.max_unpool(y, indices, (3,))

    np.testing.assert_array_equal(through(x), column(0, 3, 0))
    np.testing.assert_array_equal(jax.grad(lambda x: through(x).sum())(x), column(0, 1, 0))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_out_of_range_indices_of_every_dtype_are_dropped(dtype, x64):
    """Including indices that would be in range after truncation to 32 bits."""
    info = np.iinfo(dtype)
    values = [0, info.min, 5, info.max, 6, 3 if info.bits < 64 else 2**32 + 1]
    indices = np.array(values, np.uint64 if info.min == 0 else np.int64).astype(dtype)[:, None]
    y = column(1, 2, 3, 4, 5, 6)
    x, dy = unpool_and_cotangent(y, indices, column(1, 2, 3, 4, 5, 6), (6,), (0,))
    want = unpooled_oracle(y, indices, (6,), (0,))
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(dy, cotangent_oracle(column(1, 2, 3, 4, 5, 6), indices, (0,)))


def test_index_dtype_narrower_than_the_output_size():
    y, indices = column(1, 2), column(0, 255, dtype=np.uint8)
    x = jaxpool.max_unpool(y, indices, (1000,))
    assert (x[0, 0], x[255, 0], x.sum()) == (1, 2, 3)


@every_dtype
def test_dtypes(dtype):
    y = np.array([[1], [0], [1]]).astype(dtype)
    x = jaxpool.max_unpool(y, column(3, 1, 0, dtype=np.int32), (4,))
    assert x.dtype == dtype
    np.testing.assert_array_equal(np.asarray(x).astype(int), column(1, 0, 0, 1, dtype=int))


def test_cotangent_is_the_transpose_of_the_tangent(x64):
    rng = np.random.default_rng(5)
    indices = rng.integers(0, 12, (2, 5, 3))
    y, v = rng.standard_normal((2, 2, 5, 3))
    unpool = jax.jit(lambda y: jaxpool.max_unpool(y, jnp.asarray(indices), (12,)))
    w = rng.standard_normal((2, 12, 3))
    _, tangent = jax.jvp(unpool, (y,), (v,))
    cotangent = jax.vjp(unpool, y)[1](w)[0]
    np.testing.assert_allclose((tangent * w).sum(), (v * cotangent).sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "window", "channels"), [("bfloat16", 2, 32), ("float32", 5, 3), ("float16", 3, 1)]
)
def test_backward_pass_is_a_gather(dtype, window, channels):
    """The forward pass scatters values. The transpose of the linear map is a gather."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.permutation(2 * 20 * 20 * channels).reshape(2, 20, 20, channels) % 256)
    y, indices = jaxpool.max_pool_with_argmax(x.astype(dtype), (window,) * 2, (window,) * 2)
    unpool = functools.partial(jaxpool.max_unpool, indices=indices, spatial_shape=(20, 20))
    assert "stablehlo.scatter" in jax.jit(unpool).lower(y).as_text()
    dx = jnp.asarray(rng.integers(-3, 4, x.shape), dtype)
    pullback = jax.jit(jax.vjp(unpool, y)[1])
    assert "scatter" not in pullback.lower(dx).as_text()
    (dy,) = pullback(dx)
    np.testing.assert_array_equal(dy, cotangent_oracle(np.asarray(dx), np.asarray(indices), (1, 2)))


def test_vmap_over_indices():
    y = np.ones((2, 3, 1), np.float32)
    indices = np.array([[0, 1, 2], [3, 9, 0]], np.int32)[..., None]
    unpool = jax.vmap(lambda y, indices: jaxpool.max_unpool(y, indices, (4,)))
    np.testing.assert_array_equal(unpool(y, indices)[..., 0], [[1, 1, 1, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 2, 0), (0, 2, 0)])
def test_empty_batch_and_channels(shape):
    x = np.zeros((shape[0], 4, shape[2]), np.float32)
    y, indices = jaxpool.max_pool_with_argmax(x, (2,), (2,))
    assert y.shape == indices.shape == shape
    assert jaxpool.max_unpool(y, indices, (4,)).shape == x.shape


@examples(4)
@given(data=st.data())
def test_max_unpool_restores_maxima(data):
    drawn = data.draw(pool_cases(kinds=("max",), ties=("first",), geometry=geometries(max_size=6)))
    window = drawn.window()
    for case in with_new_values(drawn, ("ties", "special", "lowest"), rounds=1):
        y, indices, _ = pooled(case.x, case.dy, hashable_options(**case.geometry()))
        x, again = unpool_and_cotangent(
            y, indices, np.asarray(case.x), window.input_shape, window.axes
        )
        np.testing.assert_array_equal(
            x, unpooled_oracle(np.asarray(y), np.asarray(indices), window.input_shape, window.axes)
        )
        want = cotangent_oracle(np.asarray(case.x), np.asarray(indices), window.axes)
        np.testing.assert_array_equal(again, want)
        chosen = np.asarray(x) != 0
        np.testing.assert_array_equal(np.asarray(x)[chosen], case.x[chosen])


def test_channels_with_explicit_sharding():
    mesh = jax.make_mesh((1,), ("c",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        spec = jax.sharding.PartitionSpec(None, None, "c")
        y = jax.device_put(jnp.ones((2, 3, 4)), jax.NamedSharding(mesh, spec))
        indices = jax.device_put(np.full((2, 3, 4), 5), jax.NamedSharding(mesh, spec))
        x = jax.jit(lambda y, i: jaxpool.max_unpool(y, i, (6,)))(y, indices)
    assert (np.asarray(x)[:, 5] == 1).all()
    assert np.asarray(x).sum() == 8


def test_indices_inside_and_outside_disjoint_windows():
    """Indices inside disjoint windows, some outside. The last row and column are in no window."""
    rng = np.random.default_rng(4)
    y = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    rows, columns = np.arange(3)[:, None, None] * 2, np.arange(4)[:, None] * 3
    inside = (rows + rng.integers(0, 2, y.shape)) * 13 + columns + rng.integers(0, 3, y.shape)
    for indices in (inside, np.where(rng.random(y.shape) < 0.1, 90, inside)):
        dx = rng.standard_normal((2, 7, 13, 5)).astype(np.float32)
        x, dy = unpool_and_cotangent(y, indices, dx, spatial_shape=(7, 13), axes=(1, 2))
        np.testing.assert_array_equal(x, unpooled_oracle(y, indices, (7, 13), (1, 2)))
        np.testing.assert_array_equal(dy, cotangent_oracle(dx, indices, (1, 2)))


def test_constant_indices_are_not_folded_at_compile_time():
    """XLA would fold a scatter of constants at compile time, which takes 25 s at 16x56x56x64."""
    y = jnp.ones((1, 4, 4, 2))
    first = np.arange(4) * 2
    indices = np.broadcast_to((first[:, None] * 8 + first)[None, :, :, None], y.shape)

    def scatters_left(unpooled, *arguments):
        program = jax.jit(unpooled).lower(*arguments).compile().as_text()
        # XLA expands some scatters to loops
        return len(re.findall(r" (?:scatter|while)\(", program))

    traced = scatters_left(lambda y, at: jaxpool.max_unpool(y, at, (8, 8)), y, indices)
    assert traced
    assert scatters_left(lambda y: jaxpool.max_unpool(y, indices, (8, 8)), y) == traced
