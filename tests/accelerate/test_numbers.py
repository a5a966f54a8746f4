"""`accelerate` gives lax's values and gradients, except where lax is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpool import accelerate
from tests.support.accelerated import X, is_replaced, max_pool, min_pool, numbers, sum_pool


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, bool, jnp.bfloat16, np.float16])
def test_dtypes_match_lax(dtype):
    x = numbers(4, 4).astype(dtype)
    low, high = (False, True) if dtype is bool else (-jnp.inf, jnp.inf)
    if jnp.issubdtype(dtype, jnp.integer):
        low, high = (dtype(getattr(jnp.iinfo(dtype), end)) for end in ("min", "max"))

    def pools(x):
        y = [lax.reduce_window(x, low, lax.max, (2, 3), (1, 1), "SAME")]
        y += [lax.reduce_window(x, high, lax.min, (2, 3), (1, 1), "SAME")]
        return y if dtype is bool else [*y, lax.reduce_window(x, dtype(0), lax.add, (2, 2))]

    assert is_replaced(accelerate(pools), x)
    for ours, wanted in zip(accelerate(jax.jit(pools))(x), pools(x), strict=True):
        assert ours.dtype == wanted.dtype
        np.testing.assert_array_equal(ours, wanted)


def test_generic_reduce_window_as_max_min_or_sum():
    @jax.jit
    def pools(x, start):
        given = jnp.array(-jnp.inf)  # traced, so its value is not known at trace time
        constant = np.float32(2)  # not the identity of the reduction
        return (
            lax.reduce_window(x, constant, lax.max, (2, 2), (2, 2), "VALID"),
            lax.reduce_window(x, constant, lax.add, (2, 2), (2, 2), "VALID"),
            lax.reduce_window(x, -jnp.inf, jnp.maximum, (2, 2), (2, 2), "SAME"),
            lax.reduce_window(x, np.float32(np.inf), lambda a, b: lax.min(b, a), (2, 2)),
            lax.reduce_window(x, 0.0, jnp.add, (3, 2), (1, 1), "SAME"),
            lax.reduce_window(x, given, lax.max, (2, 2), (2, 2), ((0, 2), (1, 1))),
            # no element of x in some windows
            lax.reduce_window(x, np.float32(np.inf), lax.min, (2, 2), (2, 2), ((4, 0), (0, 3))),
            lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 2), ((4, 0), (0, 3))),
            lax.reduce_window(x, start, lax.max, (2, 2), (2, 2), ((0, 2), (0, 0))),
            lax.reduce_window(x, start, lax.min, (2, 2), (2, 2)),
            lax.reduce_window(x, start, lax.add, (2, 2), (2, 2)),
        )

    fast, y, minima = accelerate(pools), np.asarray(max_pool(X)), np.asarray(min_pool(X))
    start = y[0, 0]  # ties with a maximum, and then gets the cotangent
    assert is_replaced(fast, X, start)
    for given, wanted in zip(fast(X, start), pools(X, start), strict=True):
        np.testing.assert_array_equal(given, wanted)
    dx, dstart = jax.grad(lambda *args: sum(map(jnp.sum, fast(*args)[8:])), (0, 1))(X, start)
    num_selected = (y >= start).sum() + (minima <= start).sum()
    assert dx.sum() == 16 + num_selected
    assert dstart == 4 + (2 + 4 + 4 - num_selected)  # two windows hold only padding


def test_corrected_results_where_lax_is_wrong():
    def gradient_of(x, window, padding):
        pool = accelerate(lambda x: max_pool(x, window, (1,), padding).sum())
        return jax.grad(pool)(jnp.array(x)).tolist()

    assert gradient_of([jnp.nan, 5.0, 2.0], (3,), "VALID") == [1, 0, 0]
    assert gradient_of([-jnp.inf] * 3, (3,), ((1, 1),)) == [2, 1, 0]
    # the cotangent of two windows of padding is lost
    assert gradient_of([1.0], (1,), ((2, 0),)) == [1]
    ones = jnp.ones(512, jnp.bfloat16)
    assert accelerate(sum_pool)(ones, (512,), (1,))[0] == 512
    eighths = jnp.ones(3).astype(jnp.float8_e4m3fn)
    pooled = accelerate(max_pool)(eighths, (3,), (1,), "SAME")
    np.testing.assert_array_equal(pooled.astype(np.float32), 1)


def test_weak_types_preserved():
    weak = jnp.broadcast_to(1.0, (4, 4))
    for pool in (max_pool, sum_pool):
        for fast in (accelerate(pool), accelerate(jax.jit(pool)), jax.jit(accelerate(pool))):
            assert jax.typeof(fast(weak)).weak_type
        assert not jax.typeof(accelerate(pool)(X)).weak_type
        pushed = jax.jvp(accelerate(pool), (weak,), (weak,))
        assert [jax.typeof(y).weak_type for y in pushed] == [True, True]


def exported(fn, *shape):
    """`fn` of a float32 array of this shape, exported."""
    return jax.export.export(jax.jit(fn))(jax.ShapeDtypeStruct(shape, np.float32))


def test_symbolic_sizes():
    """The batch may be symbolic. A reduction of a symbolic pooled axis or window is left to lax."""
    (batch,) = jax.export.symbolic_shape("batch")
    entries = []
    pool = accelerate(lambda x: max_pool(x, (1, 2), (1, 2)), report=entries.append)
    np.testing.assert_array_equal(exported(pool, batch, 4).call(X), max_pool(X, (1, 2), (1, 2)))
    exported(accelerate(max_pool, report=entries.append), batch, 4)
    left_to_lax = "x is not of known size along pooled axis 0"
    assert [entry.reason for entry in entries] == [None, left_to_lax]

    def pool(x):
        return max_pool(x, (x.shape[0], 2), (1, 2))

    program = exported(accelerate(pool, report=entries.append), batch, 4)
    np.testing.assert_array_equal(program.call(X), pool(X))
    report = ": max of float32[batch, 4], window (batch, 2), strides (1, 2): left to lax"
    assert report in str(entries[-1])
