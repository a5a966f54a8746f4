"""Error messages of `max_pool_with_argmax` and `max_unpool` for invalid arguments."""

import jax
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

X = np.zeros((2, 4, 4, 3), np.float32)
Y, AT = np.zeros((2, 2, 2, 3), np.float32), np.zeros((2, 2, 2, 3), np.int32)
UNPOOL = "(y.shape=(2, 2, 2, 3), spatial_shape=(4, 4))"
MESSAGES = [
    (
        lambda: jaxpool.max_pool_with_argmax([1.0], (2,)),
        TypeError,
        "jaxpool.max_pool_with_argmax: `x` must be an array; got x=[1.0] (window_shape=(2,)). Pass jnp.asarray(x).",
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
        "axis 1 (it spans 5); got window_shape=(5, 2) (x.shape=(2, 4, 4, 3)). "
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
        "jaxpool.max_unpool: `y` must be an array; got y=None (spatial_shape=(4, 4)). Pass an array of jax or NumPy.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, [0], (4, 4)),
        TypeError,
        f"jaxpool.max_unpool: `indices` must be an array; got indices=[0] {UNPOOL}. "
        "Pass jnp.asarray(indices).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, Y, (4, 4)),
        TypeError,
        "jaxpool.max_unpool: `indices` must be an array of integers; got indices.dtype=float32 "
        f"{UNPOOL}. Pass the indices that max_pool_with_argmax returned.",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT[:1], (4, 4)),
        ValueError,
        "jaxpool.max_unpool: `indices` must be of the shape of y; got indices.shape=(1, 2, 2, 3) "
        f"{UNPOOL}. Pass the indices that max_pool_with_argmax returned with y.",
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
        "axis; got spatial_shape=4 (y.shape=(2, 2, 2, 3)). "
        "Pass a tuple such as (4, 4).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, ()),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be a tuple of positive ints, one an unpooled "
        "axis; got spatial_shape=() (y.shape=(2, 2, 2, 3)). "
        "Pass a tuple such as (4, 4).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, (4, 0)),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be 2 ints of at least 1, one per pooled "
        "axis; got spatial_shape=(4, 0) (y.shape=(2, 2, 2, 3)). "
        "Pass a tuple such as (2, 2).",
    ),
    (
        lambda: jaxpool.max_unpool(Y, AT, (2**16, 2**15)),
        ValueError,
        "jaxpool.max_unpool: `spatial_shape` must be of fewer than 2**31 positions along the "
        "pooled axes, which int32 indices can name; got spatial_shape=(65536, 32768) "
        "(y.shape=(2, 2, 2, 3)). Pool parts of the array.",
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
        "y.ndim=2 (y.shape=(2, 3), spatial_shape=(4, 4)). Pass axes=... to pool an array without a "
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
