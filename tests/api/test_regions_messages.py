"""Error messages of pools over boxes for invalid arguments."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

X = jnp.arange(60.0).reshape(5, 6, 2)
BOX = jnp.array([[0.0, 0, 4, 4], [1, 2, 3, 5]])
BATCH = jnp.stack([X, X])
MESSAGES = [
    (
        {"boxes": BOX[0]},
        ValueError,
        "`boxes` must be an array (..., K, 4) of (y0, x0, y1, x1); got",
    ),
    (
        {"x": BATCH},
        ValueError,
        "`boxes` must be (2, K, 4) without batch_indices, K boxes of each image; got boxes.shape=(2, 4)",
    ),
    (
        {"x": BATCH, "boxes": BOX[None]},
        ValueError,
        "`boxes` must be (2, K, 4) without batch_indices",
    ),
    ({"x": BATCH, "boxes": BOX[None, None]}, ValueError, "`boxes` must be (2, K, 4) without"),
    (
        {"x": BATCH[None]},
        ValueError,
        "`x` must be (B, H, W, C), or (H, W, C) without batch_indices",
    ),
    (
        {"batch_indices": np.array([0, 0])},
        ValueError,
        "`x` must be (B, H, W, C), or (H, W, C) without batch_indices; got x.shape=(5, 6, 2)",
    ),
    ({"output_shape": 0}, ValueError, "`output_shape` must be an int or 2 ints of at least 1"),
    ({"spatial_scale": 0}, ValueError, "`spatial_scale` must be a positive number; got"),
    (
        {"x": BATCH, "batch_indices": np.array([0, 2])},
        ValueError,
        "`batch_indices` must be ints from 0 to 1; got batch_indices=[0, 2]",
    ),
    (
        {"x": BATCH[:0], "batch_indices": np.array([0, 0])},
        ValueError,
        "`batch_indices` must be empty where x is; got batch_indices=[0, 0]",
    ),
    ({"x": X[:, :0]}, ValueError, "`x` must be of at least one element along pooled axis 1; got"),
    (
        {"x": BATCH, "batch_indices": np.array([0.0, 1.0])},
        TypeError,
        "`batch_indices` must be an array of integers; got batch_indices.dtype=float64",
    ),
    (
        {"x": BATCH, "batch_indices": np.array([0])},
        ValueError,
        "`batch_indices` must be of shape (2,); got batch_indices.shape=(1,)",
    ),
]
OWN = [
    (
        "roi_align",
        {"samples": 0},
        ValueError,
        "`samples` must be an int from 1 to 1024; got samples=0",
    ),
    (
        "roi_align",
        {"samples": 1.5},
        TypeError,
        "`samples` must be an int from 1 to 1024; got samples=1.5",
    ),
    ("roi_align", {"aligned": 1}, TypeError, "`aligned` must be True or False; got aligned=1"),
    ("roi_align", {"kind": "sum"}, ValueError, "`kind` must be 'avg' or 'max'; got kind='sum'"),
    ("roi_max_pool", {"ties": "all"}, ValueError, "`ties` must be 'first', 'last' or 'split'; got"),
]


@pytest.mark.parametrize(
    ("name", "given", "error", "message"),
    [(name, *row) for name in ("roi_align", "roi_max_pool") for row in MESSAGES] + OWN,
)
def test_messages(name, given, error, message):
    arguments = {"x": X, "boxes": BOX, "output_shape": 2} | given
    with pytest.raises(error) as raised:
        getattr(jaxpool, name)(**arguments)
    assert str(raised.value).startswith(f"jaxpool.{name}: {message}")
