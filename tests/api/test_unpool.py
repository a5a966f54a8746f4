"""`max_unpool`: colliding indices, indices out of range, dtypes of indices, and programs."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import oracle
from tests.search.programs import on_platform
from tests.support.chance import column

pytestmark = pytest.mark.usefixtures("strict")


def check_against_oracle(y, indices, spatial_shape, axes, platform="cpu"):
    """Compare the value for traced indices, its tangent along y and a cotangent, by the plans of a platform."""
    answer = oracle.max_unpool(y, indices, spatial_shape, axes=axes)
    dx = np.cos(np.arange(answer.y.size)).reshape(answer.y.shape).astype(y.dtype)

    def value_and_derivatives(y, indices, dx):
        def unpool(y):
            return jaxpool.max_unpool(y, indices, spatial_shape, axes=axes)

        x, pullback = jax.vjp(unpool, y)
        return x, jax.jvp(unpool, (y,), (y,))[1], pullback(dx)[0]

    with on_platform(platform):
        found = jax.jit(value_and_derivatives)(y, indices, dx)
    for got, want in zip(found, (answer.y, answer.y, answer.cotangent(dx)), strict=True):
        np.testing.assert_array_equal(got, want)


LAYOUTS = [
    ((2, 5, 3), (7,), (1,)),
    ((2, 3, 4, 3), (4, 5), (1, 2)),
    ((2, 3, 4, 3), (4, 5), (2, 1)),
    ((3, 4, 2, 3), (4, 5), (3, 0)),
    ((2, 2, 2, 2, 2), (3, 2, 2), (1, 2, 3)),
    ((2, 0, 3), (4,), (1,)),
]
DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def cases():
    """Yield indices, the sizes of the unpooled axes, and these axes."""
    for shape, sizes, axes in LAYOUTS:
        count = int(np.prod(sizes))
        for least, most in [(0, count), (0, 3), (-2, count + 3)]:  # collisions, and out of range
            indices = np.random.default_rng(3).integers(least, most, shape).astype(np.int32)
            yield indices, sizes, axes
    # Inside and outside of disjoint windows. The last row and column are in no window.
    rng, shape = np.random.default_rng(4), (2, 3, 4, 5)
    rows, columns = np.arange(3)[:, None, None] * 2, np.arange(4)[:, None] * 3
    inside = (rows + rng.integers(0, 2, shape)) * 13 + columns + rng.integers(0, 3, shape)
    for indices in (inside, np.where(rng.random(shape) < 0.1, 90, inside)):
        yield indices, (7, 13), (1, 2)
    # Out of range in every dtype, including indices that would be in range after truncation to 32 bits
    for dtype in DTYPES:
        info = np.iinfo(dtype)
        values = [0, info.min, 5, info.max, 6, 3 if info.bits < 64 else 2**32 + 1]
        wide = np.uint64 if info.min == 0 else np.int64
        yield np.array(values, wide).astype(dtype)[:, None], (6,), (0,)
    # A dtype narrower than the output size
    yield column(0, 255, dtype=np.uint8), (1000,), (0,)


def is_in_range(indices, spatial_shape):
    return ((indices >= 0) & (indices < np.prod(spatial_shape))).all()


@pytest.mark.parametrize("platform", ["cpu", "portable"])
@pytest.mark.parametrize(
    ("indices", "spatial_shape", "axes"),
    [
        pytest.param(*case, id="in_range" if is_in_range(*case[:2]) else "out_of_range")
        for case in cases()
    ],
)
def test_colliding_and_other_indices(indices, spatial_shape, axes, platform, x64):
    """Scatters write in order on CPU, but not on every platform."""
    y = np.random.default_rng(3).standard_normal(indices.shape).astype(np.float32)
    check_against_oracle(y, indices, spatial_shape, axes, platform)


def test_last_of_many_colliding_elements_wins():
    """Enough elements that XLA could divide a scatter among threads."""
    rng = np.random.default_rng(4)
    y = np.arange(40_000, dtype=np.float32)[None, :, None]
    indices = rng.integers(0, 50, y.shape).astype(np.int32)
    last = np.zeros(50, np.float32)
    last[indices.ravel()] = y.ravel()
    for _ in range(3):
        np.testing.assert_array_equal(jaxpool.max_unpool(y, indices, (50,)).ravel(), last)


def test_overwritten_elements_have_zero_derivative():
    y, indices = column(1, 2, 3), column(2, 2, 0, dtype=np.int32)
    unpool = functools.partial(jaxpool.max_unpool, indices=indices, spatial_shape=(4,))
    np.testing.assert_array_equal(unpool(y), column(3, 0, 2, 0))
    jacobian = [[0, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    for transform in (jax.jacfwd, jax.jacrev):
        np.testing.assert_array_equal(transform(unpool)(y)[:, 0, :, 0], jacobian)
    hessian = jax.hessian(lambda y: (unpool(y) ** 2).sum())(y)
    np.testing.assert_array_equal(hessian[:, 0, :, 0], np.diag([0, 2, 2]))


def test_maximum_shared_by_two_windows_counts_once():
    """Unpooling a pool is the identity at a maximum, so its derivative there is 1."""
    x = column(1, 3, 2)

    def through(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2,))
        return jaxpool.max_unpool(y, indices, (3,))

    np.testing.assert_array_equal(through(x), column(0, 3, 0))
    np.testing.assert_array_equal(jax.grad(lambda x: through(x).sum())(x), column(0, 1, 0))


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
    pullback = jax.jit(jax.vjp(unpool, y)[1])
    assert "scatter" not in pullback.lower(jnp.zeros(x.shape, dtype)).as_text()
    check_against_oracle(np.asarray(y), np.asarray(indices), (20, 20), (1, 2))


def test_vmap_over_indices():
    y = np.ones((2, 3, 1), np.float32)
    indices = np.array([[0, 1, 2], [3, 9, 0]], np.int32)[..., None]
    unpool = jax.vmap(lambda y, indices: jaxpool.max_unpool(y, indices, (4,)))
    np.testing.assert_array_equal(unpool(y, indices)[..., 0], [[1, 1, 1, 0], [1, 0, 0, 1]])


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
