"""Maxima over boxes: an ordered scatter and the tiled loop give the same cotangents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._ops.box_max import BoxMax
from tests.support.compilation import DEFAULT_FUSION

RNG = np.random.default_rng(0)
X = RNG.integers(0, 5, (3, 9, 11, 4)).astype(np.float32)  # with many ties
BOXES = np.concatenate([RNG.uniform(-4, 8, (20, 2)), RNG.uniform(-2, 14, (20, 2))], 1)
BOXES[0] = np.nan
BOXES[1] = [30, 30, 40, 40]  # outside of every image
IMAGES = np.asarray([0, 1, 2, 3] * 5, np.int32)  # image 3 does not exist


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ordered_scatter_equals_tiled_loop(ties, count, dtype):
    """Image `count` does not exist."""
    x = jnp.asarray(X[:count], dtype)
    op = BoxMax((3, 4), 1.0, ties, x.shape[:3])
    given = tuple(map(jnp.asarray, (BOXES.astype(np.float32), IMAGES % (count + 1))))
    dy = jnp.asarray(RNG.integers(-9, 10, (20, 3, 4, 4)), dtype)

    @jax.jit
    def sent(x, dy):
        _, kept = op.primal("cpu", x, *given)
        return [op.transpose(platform, kept, dy)[0] for platform in ("cpu", "portable")]

    in_order, by_tiles = sent(x, dy)
    assert in_order.any()
    assert (in_order.shape, in_order.dtype) == (x.shape, x.dtype)
    np.testing.assert_array_equal(in_order, by_tiles)


def test_scatter_adds_in_order():
    """An array large enough that XLA for CPU divides the scatter among threads."""
    x = jnp.asarray(RNG.standard_normal((2, 9, 11, 64)), np.float32)
    op = BoxMax((7, 7), 1.0, "first", x.shape[:3])
    boxes, images = np.tile(BOXES[2:], (4, 1)).astype(np.float32), np.arange(72) % 2
    given = jnp.asarray(boxes), jnp.asarray(images, np.int32)
    _, kept = op.primal("cpu", x, *given)
    dy = jnp.asarray(RNG.standard_normal((72, 7, 7, 64)), np.float32)
    (dx,) = jax.jit(lambda dy: op.transpose("cpu", kept, dy)).lower(dy).compile(DEFAULT_FUSION)(dy)
    want, where = np.zeros((2 * 99 + 1, 64), np.float32), np.asarray(kept[1]).astype(int)
    rows = np.where(where < 99, where + 99 * images[:, None, None, None], 2 * 99)
    np.add.at(want, (rows, np.broadcast_to(np.arange(64), rows.shape)), np.asarray(dy))
    np.testing.assert_array_equal(dx.reshape(-1, 64), want[:-1])
