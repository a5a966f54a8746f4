"""Max pooling with positions and unpooling: against the oracle, by hand, and undoing each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import examples, refilled
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import draw_values, geometries, oracle, pool_cases

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan
FLOATS = [np.float32, np.float16, jnp.bfloat16, jnp.float8_e3m4, jnp.float8_e4m3]
FLOATS += [jnp.float8_e4m3b11fnuz, jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2]
FLOATS += [jnp.float8_e5m2fnuz]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


@functools.partial(jax.jit, static_argnames=("options",))
def pooled(x, dy, options):
    """y, indices and, where there is one, the cotangent of x."""
    pool = functools.partial(jaxpool.max_pool_with_argmax, **dict(options))
    if dy is None:
        return *pool(x), None
    y, pullback, indices = jax.vjp(pool, x, has_aux=True)
    return y, indices, pullback(dy)[0]


def frozen(**options):
    return tuple(sorted(options.items()))


def unpooled_oracle(y, indices, spatial_shape, axes):
    """Loops: in row-major order, what comes later overwrites."""
    moved = np.moveaxis(y, axes, range(-len(axes), 0))
    where = np.moveaxis(indices, axes, range(-len(axes), 0))
    lanes = moved.shape[: y.ndim - len(axes)]
    x = np.zeros((*lanes, int(np.prod(spatial_shape))), y.dtype)
    for lane in np.ndindex(*lanes):
        for value, at in zip(moved[lane].ravel(), where[lane].ravel(), strict=True):
            if 0 <= int(at) < x.shape[-1]:
                x[*lane, int(at)] = value
    return np.moveaxis(x.reshape(*lanes, *spatial_shape), range(-len(axes), 0), axes)


def read_oracle(dx, indices, axes):
    """Loops: what stands at each index, 0 where it is out of range."""
    moved = np.moveaxis(dx, axes, range(-len(axes), 0)).reshape(
        *[size for axis, size in enumerate(dx.shape) if axis not in axes], -1
    )
    where = np.moveaxis(indices, axes, range(-len(axes), 0))
    dy = np.zeros(where.shape, dx.dtype)
    for position in np.ndindex(*where.shape):
        at = int(where[position])
        if 0 <= at < moved.shape[-1]:
            dy[position] = moved[*position[: moved.ndim - 1], at]
    return np.moveaxis(dy, range(-len(axes), 0), axes)


# Pooling with positions


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("ties", ["first", "last"])
@examples(4)
@given(data=st.data())
def test_value_indices_and_cotangent(ties, autodiff, data):
    drawn = data.draw(pool_cases(kinds=("max",), ties=(ties,)))
    for case in refilled(drawn, ("ties", "special", "lowest"), rounds=2):
        answer = case.answer()
        dy = np.sign(case.dy)  # small integers: their sums are exact
        options = frozen(**case.geometry(), ties=ties, autodiff=autodiff)
        y, indices, dx = pooled(case.x, dy, options)
        assert indices.dtype == np.int32
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_array_equal(dx, answer.cotangent(dy))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type(dtype):
    geometry = {"window_shape": (3,), "strides": (2,), "padding": ((1, 1),)}
    rng = np.random.default_rng(0)
    for kind in ("ties", "special", "lowest"):
        x = draw_values(rng, (9, 5), dtype, kind)
        answer = oracle.max_pool(x, **geometry)
        dy = np.ones(answer.y.shape, dtype) if oracle.is_floating(dtype) else None
        y, indices, dx = pooled(x, dy, frozen(**geometry))
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.float64(y), np.float64(answer.y))
        np.testing.assert_array_equal(indices, answer.indices)
        if dy is not None:
            assert dx.dtype == dtype
            np.testing.assert_array_equal(np.float64(dx), np.float64(answer.cotangent(dy)))


def test_split_divides_the_cotangent_and_names_the_first():
    x = column(2, 1, 2, 2, 3, 3)
    y, indices, dx = pooled(
        x, column(6, 8), frozen(window_shape=3, strides=3, axes=(0,), ties="split")
    )
    np.testing.assert_array_equal(y, column(2, 3))
    np.testing.assert_array_equal(indices, column(0, 4))
    np.testing.assert_array_equal(dx, column(3, 0, 3, 0, 4, 4))


def test_a_nan_is_named_and_padding_is_not():
    y, indices = jaxpool.max_pool_with_argmax(column(1, NAN, 5, NAN), (4,))
    assert np.isnan(y).all()
    assert indices.item() == 1
    assert jaxpool.max_pool_with_argmax(column(1, NAN, 5, NAN), (4,), ties="last")[1].item() == 3
    infinities = column(-INF, -INF, -INF)
    for ties, want in [("first", (0, 0, 1)), ("last", (1, 2, 2)), ("split", (0, 0, 1))]:
        _, indices = jaxpool.max_pool_with_argmax(infinities, (3,), padding=1, ties=ties)
        np.testing.assert_array_equal(indices, column(*want))


def test_indices_are_row_major_in_the_order_of_axes():
    x = np.zeros((2, 3, 4), np.float32)
    x[1, 2, 3] = 1
    for axes, want in [((0, 1), 1 * 3 + 2), ((1, 0), 2 * 2 + 1), ((2, 0), 3 * 2 + 1)]:
        shape = tuple(x.shape[axis] for axis in axes)
        y, indices = jaxpool.max_pool_with_argmax(x, shape, axes=axes)
        assert indices.max() == want
        assert y.shape == tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


def test_positions_beyond_what_a_tap_index_holds():
    """A window of 300 taps and an input of 90,000 elements, the last of them the greatest."""
    x = np.zeros((300, 300, 1), np.float32)
    x[-1, -1] = 1
    _, indices = jaxpool.max_pool_with_argmax(x, (15, 20), (15, 20))
    assert indices[-1, -1, 0] == 300 * 300 - 1
    assert indices[3, 4, 0] == 45 * 300 + 80


def test_the_residual_is_the_tap_alone():
    x = jnp.zeros((4, 6, 6, 3))
    for autodiff in ("vjp", "jvp"):
        pool = functools.partial(
            jaxpool.max_pool_with_argmax, window_shape=(2, 2), strides=(2, 2), autodiff=autodiff
        )
        _, pullback, _ = jax.vjp(pool, x, has_aux=True)
        kept = [leaf for leaf in jax.tree.leaves(pullback) if leaf.size > 1]
        assert [(leaf.dtype, leaf.shape) for leaf in kept] == [(np.uint8, (4, 3, 3, 3))]


def test_indices_have_no_derivative():
    def loss(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2,), (2,))
        return (y * indices.astype(y.dtype)).sum()

    x = column(1, 2, 4, 3)
    np.testing.assert_array_equal(jax.grad(loss)(x), column(0, 1, 2, 0))


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("ties", ["first", "split"])
def test_transformations_of_a_pool_with_positions(ties, autodiff):
    """Each gives for y what it gives for `max_pool`."""
    options = {"window_shape": (2, 2), "padding": "SAME", "ties": ties, "autodiff": autodiff}
    x = np.random.default_rng(1).integers(0, 3, (2, 3, 4, 2)).astype(np.float32)
    v = np.random.default_rng(2).standard_normal(x.shape).astype(np.float32)

    def ours(x):
        return jaxpool.max_pool_with_argmax(x, **options)[0]

    def plain(x):
        return jaxpool.max_pool(x, **options)

    def transformed(pool):
        gradient = jax.grad(lambda x: (pool(x) ** 3).sum())
        results = [
            jax.vmap(pool, in_axes=1)(jnp.stack([x, v], 1)),
            gradient(x),
            jax.jvp(gradient, (x,), (v,))[1],
            jax.grad(lambda x: (gradient(x) * v).sum())(x),
            jax.grad(jax.checkpoint(lambda x: (pool(x) ** 2).sum()))(x),
        ]
        if autodiff == "jvp":
            results += [jax.jvp(pool, (x,), (v,))[1], jax.linearize(pool, x)[1](v)]
        return results

    for got, want in zip(
        jax.jit(transformed, static_argnums=0)(ours),
        jax.jit(transformed, static_argnums=0)(plain),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_forward_mode_needs_the_other_mode():
    x = column(1, 2, 3)
    pool = functools.partial(jaxpool.max_pool_with_argmax, window_shape=(2,))
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(pool, (x,), (x,))
    (y, _), (y_dot, _) = jax.jvp(functools.partial(pool, autodiff="jvp"), (x,), (x,))
    np.testing.assert_array_equal(y_dot, y)


# Unpooling


@functools.partial(jax.jit, static_argnames=("spatial_shape", "axes"))
def unpooled(y, indices, dx, spatial_shape, axes):
    """The unpooled array and the cotangent of y; the indices are traced."""
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
def test_unpooling_with_collisions_and_indices_out_of_range(shape, spatial_shape, axes):
    rng = np.random.default_rng(3)
    count = int(np.prod(spatial_shape))
    out = list(shape)
    for axis, size in zip(axes, spatial_shape, strict=True):
        out[axis] = size
    for least, most in [(0, count), (0, 3), (-2, count + 3)]:
        y, dx = (rng.standard_normal(size).astype(np.float32) for size in (shape, out))
        indices = rng.integers(least, most, shape).astype(np.int32)
        x, dy = unpooled(y, indices, dx, spatial_shape, axes)
        np.testing.assert_array_equal(x, unpooled_oracle(y, indices, spatial_shape, axes))
        np.testing.assert_array_equal(dy, read_oracle(dx, indices, axes))


def test_the_axes_before_the_last_are_the_default():
    y, indices = np.ones((2, 3, 2, 5), np.float32), np.zeros((2, 3, 2, 5), np.int32)
    want = jaxpool.max_unpool(y, indices, (4, 4), axes=(1, 2))
    np.testing.assert_array_equal(jaxpool.max_unpool(y, indices, [4, 4]), want)


def test_the_last_wins_among_many():
    """Many enough that a scatter would be divided among threads."""
    rng = np.random.default_rng(4)
    y = np.arange(40_000, dtype=np.float32)[None, :, None]
    indices = rng.integers(0, 50, y.shape).astype(np.int32)
    last = np.zeros(50, np.float32)
    last[indices.ravel()] = y.ravel()
    for _ in range(3):
        np.testing.assert_array_equal(jaxpool.max_unpool(y, indices, (50,)).ravel(), last)


def test_losers_get_their_cotangent_and_tangents_add():
    y, indices = column(1, 2, 3), column(2, 2, 0, dtype=np.int32)
    unpool = functools.partial(jaxpool.max_unpool, indices=indices, spatial_shape=(4,))
    x, pullback = jax.vjp(unpool, y)
    np.testing.assert_array_equal(x, column(3, 0, 2, 0))
    np.testing.assert_array_equal(pullback(column(10, 20, 30, 40))[0], column(30, 30, 10))
    tangent = jax.jvp(unpool, (y,), (column(1, 10, 100),))[1]
    np.testing.assert_array_equal(tangent, column(100, 0, 11, 0))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_indices_of_every_type_are_dropped_out_of_range(dtype, x64):
    """Also those that would be in range once cut to 32 bits."""
    info = np.iinfo(dtype)
    values = [0, info.min, 5, info.max, 6, 3 if info.bits < 64 else 2**32 + 1]
    indices = np.array(values, np.uint64 if info.min == 0 else np.int64).astype(dtype)[:, None]
    y = column(1, 2, 3, 4, 5, 6)
    x, dy = unpooled(y, indices, column(1, 2, 3, 4, 5, 6), (6,), (0,))
    want = unpooled_oracle(y, indices, (6,), (0,))
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(dy, read_oracle(column(1, 2, 3, 4, 5, 6), indices, (0,)))


def test_an_index_type_too_narrow_for_the_sizes():
    y, indices = column(1, 2), column(0, 255, dtype=np.uint8)
    x = jaxpool.max_unpool(y, indices, (1000,))
    assert (x[0, 0], x[255, 0], x.sum()) == (1, 2, 3)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_unpooling_of_every_type(dtype):
    y = np.array([[1], [0], [1]]).astype(dtype)
    x = jaxpool.max_unpool(y, column(3, 1, 0, dtype=np.int32), (4,))
    assert x.dtype == dtype
    np.testing.assert_array_equal(np.asarray(x).astype(int), column(1, 0, 0, 1, dtype=int))


def test_colliding_tangents_add_in_float32():
    y = jnp.ones((600, 1), jnp.bfloat16)
    unpool = functools.partial(
        jaxpool.max_unpool, indices=np.zeros((600, 1), np.int32), spatial_shape=(2,)
    )
    assert jax.jvp(unpool, (y,), (y,))[1][0, 0] == 600


def test_transpose_of_unpooling(x64):
    rng = np.random.default_rng(5)
    indices = rng.integers(0, 12, (2, 5, 3))
    y, v = rng.standard_normal((2, 2, 5, 3))
    unpool = jax.jit(lambda y: jaxpool.max_unpool(y, jnp.asarray(indices), (12,)))
    w = rng.standard_normal((2, 12, 3))
    _, tangent = jax.jvp(unpool, (y,), (v,))
    cotangent = jax.vjp(unpool, y)[1](w)[0]
    np.testing.assert_allclose((tangent * w).sum(), (v * cotangent).sum(), rtol=1e-12)


def test_transformations_of_unpooling():
    """At distinct indices unpooling is linear: `at[].set` is its twin."""
    y = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    indices = np.array([[3, 0, 4], [1, 2, 0]], np.int32)[..., None]
    v = np.cos(y)

    def twin(y):
        zeros = jnp.zeros((2, 5, 1))
        return zeros.at[np.arange(2)[:, None], indices[..., 0]].set(y)

    def ours(y):
        return jaxpool.max_unpool(y, indices, (5,))

    def transformed(unpool):
        def loss(y):
            return (unpool(y) ** 3).sum()

        return [
            jax.vmap(unpool, in_axes=3, out_axes=1)(jnp.stack([y, v], 3)),
            jax.grad(loss)(y),
            jax.hessian(loss)(y),
            jax.jacfwd(jax.grad(loss))(y),
            jax.jacrev(jax.jacfwd(loss))(y),
            jax.linearize(unpool, y)[1](v),
            jax.grad(jax.checkpoint(loss))(y),
        ]

    for got, want in zip(
        jax.jit(transformed, static_argnums=0)(ours),
        jax.jit(transformed, static_argnums=0)(twin),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_unpooling_maps_over_indices():
    y = np.ones((2, 3, 1), np.float32)
    indices = np.array([[0, 1, 2], [3, 9, 0]], np.int32)[..., None]
    unpool = jax.vmap(lambda y, indices: jaxpool.max_unpool(y, indices, (4,)))
    np.testing.assert_array_equal(unpool(y, indices)[..., 0], [[1, 1, 1, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 2, 0), (0, 2, 0)])
def test_batch_and_channels_may_be_empty(shape):
    x = np.zeros((shape[0], 4, shape[2]), np.float32)
    y, indices = jaxpool.max_pool_with_argmax(x, (2,), (2,))
    assert y.shape == indices.shape == shape
    assert jaxpool.max_unpool(y, indices, (4,)).shape == x.shape


@examples(4)
@given(data=st.data())
def test_unpooling_puts_every_maximum_back(data):
    drawn = data.draw(pool_cases(kinds=("max",), ties=("first",), geometry=geometries(max_size=6)))
    window = drawn.window()
    for case in refilled(drawn, ("ties", "special", "lowest"), rounds=1):
        y, indices, _ = pooled(case.x, case.dy, frozen(**case.geometry()))
        x, again = unpooled(y, indices, np.asarray(case.x), window.input_shape, window.axes)
        np.testing.assert_array_equal(
            x, unpooled_oracle(np.asarray(y), np.asarray(indices), window.input_shape, window.axes)
        )
        np.testing.assert_array_equal(again, y)  # x read at the indices is y
        chosen = np.asarray(x) != 0
        np.testing.assert_array_equal(np.asarray(x)[chosen], case.x[chosen])


def test_symbolic_batch_and_channels():
    def there_and_back(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
        return jaxpool.max_unpool(y, indices, (4, 4))

    batch, channels = jax.export.symbolic_shape("b, c")
    spec = jax.ShapeDtypeStruct((batch, 4, 4, channels), np.float32)
    exported = jax.export.export(jax.jit(there_and_back))(spec)
    x = np.random.default_rng(6).standard_normal((3, 4, 4, 2)).astype(np.float32)
    np.testing.assert_array_equal(exported.call(x), there_and_back(x))


# Messages

X = np.zeros((2, 4, 4, 3), np.float32)
Y, AT = np.zeros((2, 2, 2, 3), np.float32), np.zeros((2, 2, 2, 3), np.int32)
UNPOOL = "(y.shape=(2, 2, 2, 3), spatial_shape=(4, 4))"
MESSAGES = [
    (
        lambda: jaxpool.max_pool_with_argmax([1.0], (2,)),
        TypeError,
        "jaxpool.max_pool_with_argmax: `x` must be an array; got x=[1.0]. Pass jnp.asarray(x).",
    ),
    (
        lambda: jaxpool.max_pool_with_argmax(X, (2, 2), ties="none"),
        ValueError,
        "jaxpool.max_pool_with_argmax: `ties` must be 'first', 'last' or 'split'; got ties='none' "
        "(x.shape=(2, 4, 4, 3), window_shape=(2, 2)). Leave it out for 'first'.",
    ),
    (
        lambda: jaxpool.max_pool_with_argmax(X, (5, 2)),
        ValueError,
        "jaxpool.max_pool_with_argmax: `window_shape` must be at most the padded input, 4 along "
        "axis 1 (it spans 5); got window_shape=(5, 2) (x.shape=(2, 4, 4, 3), window_shape=(5, 2)). "
        "Use a smaller window or more padding.",
    ),
    (
        lambda: jax.eval_shape(
            lambda x: jaxpool.max_pool_with_argmax(x, (2, 2)),
            jax.ShapeDtypeStruct((2**16, 2**15, 1), np.int8),
        ),
        ValueError,
        "jaxpool.max_pool_with_argmax: `x` must be of fewer than 2**31 positions along the pooled "
        "axes, which int32 indices can name; got x=(65536, 32768) (x.shape=(65536, 32768, 1), "
        "window_shape=(2, 2)). Pool parts of the array.",
    ),
    (
        lambda: jaxpool.max_unpool(None, AT, (4, 4)),
        TypeError,
        "jaxpool.max_unpool: `y` must be an array; got y=None. Pass jnp.asarray(y).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, [0], (4, 4)),
        TypeError,
        "jaxpool.max_unpool: `indices` must be an array; got indices=[0]. "
        "Pass jnp.asarray(indices).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, Y, (4, 4)),
        TypeError,
        "jaxpool.max_unpool: `indices` must be an array of integers; got indices=dtype('float32') "
        f"{UNPOOL}. Pass what max_pool_with_argmax gave.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT[:1], (4, 4)),
        ValueError,
        "jaxpool.max_unpool: `indices` must be of the shape of y; got indices=(1, 2, 2, 3) "
        f"{UNPOOL}. Pass what max_pool_with_argmax gave beside y.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT + np.int32(16), (4, 4)),
        ValueError,
        "jaxpool.max_unpool: `indices` must be from 0 to 15, positions in spatial_shape; got "
        f"indices=16 {UNPOOL}. Pass the sizes of the axes that were pooled.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT - np.int32(1), (4, 4)),
        ValueError,
        "jaxpool.max_unpool: `indices` must be from 0 to 15, positions in spatial_shape; got "
        f"indices=-1 {UNPOOL}. Pass the sizes of the axes that were pooled.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, 4),
        TypeError,
        "jaxpool.max_unpool: `spatial_shape` must be a tuple of positive ints, one an unpooled "
        "axis; got spatial_shape=4 (y.shape=(2, 2, 2, 3), spatial_shape=4). "
        "Pass a tuple such as (4, 4).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, ()),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be a tuple of positive ints, one an unpooled "
        "axis; got spatial_shape=() (y.shape=(2, 2, 2, 3), spatial_shape=()). "
        "Pass a tuple such as (4, 4).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, (4, 0)),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be an int or 2 ints of at least 1, one a pooled "
        "axis; got spatial_shape=(4, 0) (y.shape=(2, 2, 2, 3), spatial_shape=(4, 0)). "
        "Pass a tuple such as (2, 2).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, (2**16, 2**15)),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be of fewer than 2**31 positions along the "
        "pooled axes, which int32 indices can name; got spatial_shape=(65536, 32768) "
        "(y.shape=(2, 2, 2, 3), spatial_shape=(65536, 32768)). Pool parts of the array.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, (4, 4), axes=(1, 1)),
        ValueError,
        "jaxpool.max_unpool: `axes` must be distinct ints from -4 to 3; got axes=(1, 1) "
        f"{UNPOOL}. Name each pooled axis of y once.",
    ),
    (
        lambda: jaxpool.max_unpool(Y[0, 0], AT[0, 0], (4, 4)),
        ValueError,
        "jaxpool.max_unpool: `y` must be an array of at least 3 axes, 2 pooled and channels; got "
        "y=2 (y.shape=(2, 3), spatial_shape=(4, 4)). Pass axes=... to pool an array without a "
        "channel axis, or add the axis with y[..., None].",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), MESSAGES)
def test_messages(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


def test_a_known_index_out_of_range_raises_inside_a_trace_of_y():
    with pytest.raises(ValueError, match="from 0 to 15"):
        jax.jit(lambda y: jaxpool.max_unpool(y, AT + np.int32(16), (4, 4)))(Y)
