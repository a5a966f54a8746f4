"""What the tests of pools with chance share: keys, types, and what jax makes of a pool."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0, impl="rbg")  # compiles fastest
THREEFRY = jax.random.key(0)
FLOATS = [np.float16, jnp.bfloat16, jnp.float8_e3m4, jnp.float8_e4m3, jnp.float8_e4m3b11fnuz]
FLOATS += [jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2, jnp.float8_e5m2fnuz]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def transforms(pool, x, v):
    """What jax makes of a pool in both modes, to second order."""

    def loss(x):
        return (pool(x) ** 2).sum()

    y, tangent = jax.jvp(pool, (x,), (v,))
    cotangent = jax.vjp(pool, x)[1](y)[0]
    gradient = jax.grad(loss)
    return {
        "value": y,
        "adjoint": ((tangent * y).sum(), (v * cotangent).sum()),
        "vjp": gradient(x),
        "hvp": jax.jvp(gradient, (x,), (v,))[1],
        "vjp of vjp": jax.grad(lambda x: (gradient(x) * v).sum())(x),
        "vjp of jvp": jax.grad(lambda x: jax.jvp(loss, (x,), (v,))[1])(x),
        "remat": jax.grad(jax.checkpoint(loss))(x),
        "map": jax.vmap(pool, in_axes=1, out_axes=1)(jnp.stack([x, v], 1)),
    }


def check_transforms(pool, x, v, rtol=1e-4):
    """They agree with one another, in and out of jit."""
    got = jax.jit(functools.partial(transforms, pool))(x, v)
    np.testing.assert_allclose(got["value"], pool(x), rtol=rtol)
    np.testing.assert_allclose(*got["adjoint"], rtol=rtol)
    np.testing.assert_allclose(got["vjp"], got["remat"], rtol=rtol, atol=1e-6)
    for mode in ("vjp of vjp", "vjp of jvp"):
        np.testing.assert_allclose(got["hvp"], got[mode], rtol=rtol, atol=1e-5)
    return got
