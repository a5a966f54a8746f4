"""Error messages of adaptive pools for invalid arguments."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

IMAGE = np.zeros((2, 4, 5, 3), np.float32)
EXPECTED = "an int, or a tuple with a positive int or None for each pooled axis"
ADVICE = "Pass a tuple such as (7, 7), or (7, None) to keep the size of the second axis."
X = "x.shape=(2, 4, 5, 3)"
CONTEXT = f"{X}, output_shape"
MESSAGES = [
    (
        {"output_shape": "3"},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape='3' ({X}). {ADVICE}",
    ),
    (
        {"output_shape": (3, 2.0)},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(3, 2.0) ({X}). " + ADVICE,
    ),
    (
        {"output_shape": (True, 2)},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(True, 2) ({X}). " + ADVICE,
    ),
    (
        {"output_shape": (0, 2)},
        ValueError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(0, 2) ({X}). {ADVICE}",
    ),
    (
        {"output_shape": ()},
        ValueError,
        f"`output_shape` must be {EXPECTED}; got output_shape=() ({X}). {ADVICE}",
    ),
    (
        {"output_shape": 3},
        TypeError,
        f"`axes` must be given when `output_shape` is an int; got axes=None ({CONTEXT}=3). "
        "Pass axes=(1, 2), say.",
    ),
    (
        {"output_shape": (3, 2), "axes": (1,)},
        ValueError,
        "`axes` must be 2 axes, one for each entry of the shape; got axes=(1,) "
        f"({CONTEXT}=(3, 2)). Make the lengths agree.",
    ),
    (
        {"output_shape": (3, 2), "axes": (1, 4)},
        ValueError,
        "`axes` must be distinct ints from -4 to 3; got axes=(1, 4) "
        f"({CONTEXT}=(3, 2)). Name each pooled axis of x once.",
    ),
    (
        {"output_shape": (3, 2, 1, 1)},
        ValueError,
        "`x` must be an array of at least 5 axes, 4 pooled and channels; got x.ndim=4 "
        f"({CONTEXT}=(3, 2, 1, 1)). Pass axes=... to pool an array without a channel axis, or add "
        "the axis with x[..., None].",
    ),
    (
        {"output_shape": (3, 2), "autodiff": "both"},
        ValueError,
        "`autodiff` must be 'vjp' or 'jvp'; got autodiff='both' "
        f"({CONTEXT}=(3, 2)). Leave it out for 'vjp'.",
    ),
    (
        {"output_shape": (3, 2), "ties": "all"},
        ValueError,
        "`ties` must be 'first', 'last' or 'split'; got ties='all' "
        f"({CONTEXT}=(3, 2)). Leave it out for 'first'.",
    ),
]


@pytest.mark.parametrize(
    "name", ["adaptive_max_pool", "adaptive_max_pool_with_argmax", "adaptive_avg_pool"]
)
@pytest.mark.parametrize(("arguments", "kind", "message"), MESSAGES)
def test_messages(name, arguments, kind, message):
    if name == "adaptive_avg_pool" and "ties" in arguments:
        return
    with pytest.raises(kind, match=f"^{re.escape(f'jaxpool.{name}: {message}')}$"):
        getattr(jaxpool, name)(IMAGE, **arguments)


def test_messages_about_x():
    f = jaxpool.adaptive_max_pool
    with pytest.raises(TypeError, match=r"^jaxpool.adaptive_max_pool: `x` must be an array; got"):
        f([1.0], (2,))
    message = (
        "jaxpool.adaptive_max_pool: `x` must be of at least one element along pooled axis 1; got "
        "x.shape[1]=0 (x.shape=(2, 0, 3), output_shape=(2,)). Batch and channel axes may be empty, pooled "
        "axes not."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        f(np.zeros((2, 0, 3), np.float32), (2,))
    (n,) = jax.export.symbolic_shape("n")
    message = (
        "jaxpool.adaptive_max_pool: `x` must be of known size along pooled axis 1; got x.shape[1]=n "
        "(x.shape=(2, n, 3), output_shape=(2,)). Batch and channel axes may be symbolic, pooled "
        "axes not."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.eval_shape(
            functools.partial(f, output_shape=(2,)), jax.ShapeDtypeStruct((2, n, 3), np.float32)
        )


def test_too_many_positions_for_the_indices():
    message = (
        "jaxpool.adaptive_max_pool_with_argmax: `x` must be of fewer than 2**31 positions along "
        "the pooled axes, which int32 indices can name; got x=(65536, 32768) "
        "(x.shape=(65536, 32768, 1), output_shape=(2, 2)). Pool parts of the array."
    )
    x = jax.ShapeDtypeStruct((65536, 32768, 1), np.float32)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.eval_shape(
            functools.partial(jaxpool.adaptive_max_pool_with_argmax, output_shape=(2, 2)), x
        )
