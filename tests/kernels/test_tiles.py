"""Max pools of windows that tile an array, which are reductions on CPU, compared with NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.cpu import tiles
from tests.support.later import first_values

# shape, axes, window
CASES = [
    ((2, 32, 48, 32), (1, 2), (8, 16)),
    ((2, 32, 48, 32), (2, 1), (4, 32)),
    ((4, 40, 64, 32), (1, 3), (5, 32)),
    ((2, 64, 32, 64), (2, 3), (16, 16)),
    ((32, 1280), (1,), (320,)),
    ((2, 16, 16, 16, 32), (1, 2, 3), (4, 8, 2)),
]


def taps_of_windows(x, axes, window):
    """Return x as an array of windows, with the taps of each window along the last axis."""
    lengths = dict(zip(axes, window, strict=True))
    sizes = [
        (n // lengths[axis], lengths[axis]) if axis in axes else (n,)
        for axis, n in enumerate(x.shape)
    ]
    tap_axes = [axis + sum(other <= axis for other in axes) for axis in axes]
    tiles = np.moveaxis(x.reshape([*itertools.chain(*sizes)]), tap_axes, range(-len(axes), 0))
    return tiles.reshape(*tiles.shape[: x.ndim], -1)


def selected_taps(taps, kind, ties):
    """Return the tap of each window that has its extremum, or the first or last of its NaNs."""
    is_tied = (taps == getattr(np, kind)(taps, axis=-1, keepdims=True)) | np.isnan(taps)
    if ties == "last":
        return taps.shape[-1] - 1 - is_tied[..., ::-1].argmax(-1, keepdims=True)
    return is_tied.argmax(-1, keepdims=True)


def random_values(shape, dtype):
    """Return few different numbers, so that most windows have ties, with NaN, infinities and zeros of both signs."""
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1, 2], np.float32)
    chances = [0.001, 0.001, 0.39, 0.3, 0.3, 0.004, 0.004]
    return np.random.default_rng(0).choice(values, shape, p=chances).astype(jnp.dtype(dtype))


@pytest.mark.parametrize("dtype", first_values(1, ["float32", "bfloat16", "float16"]))
@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("shape", "axes", "window"), CASES)
def test_values_and_derivatives(shape, axes, window, kind, ties, dtype, monkeypatch):
    kernels = set()
    for name in ("select", "route", "pick"):
        kernel = getattr(tiles, name)

        def run(*args, name=name, kernel=kernel, **kwargs):
            kernels.add(name)
            return kernel(*args, **kwargs)

        monkeypatch.setattr(tiles, name, run)
    jax.clear_caches()

    def pool(x):
        options = {"axes": axes, "ties": ties, "autodiff": "jvp"}
        return getattr(jaxpool, f"{kind}_pool")(x, window, window, **options)

    def derivatives(x, dy, x_dot):
        y, transpose = jax.vjp(pool, x)
        return y, transpose(dy)[0], jax.jvp(pool, (x,), (x_dot,))[1]

    x = random_values(shape, dtype)
    rng = np.random.default_rng(1)
    x_dot = rng.integers(1, 9, shape).astype(x.dtype)
    dy = rng.integers(1, 9, jax.eval_shape(pool, x).shape).astype(x.dtype)
    y, dx, y_dot = map(np.asarray, jax.jit(derivatives)(x, dy, x_dot))
    has_short_rows = max(axes) == len(shape) - 1 and dtype != "float32"
    assert kernels == (set() if has_short_rows else {"select", "route", "pick"})

    tap = selected_taps(taps_of_windows(x.astype(np.float32), axes, window), kind, ties)
    for array, of_windows in ((x, y), (x_dot, y_dot), (dx, dy)):
        selected = np.take_along_axis(taps_of_windows(array, axes, window), tap, -1)[..., 0]
        np.testing.assert_array_equal(selected.astype(np.float32), of_windows.astype(np.float32))
    assert np.count_nonzero(dx) == dy.size
