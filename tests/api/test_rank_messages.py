"""What ranks, morphology and the k largest refuse, word for word, and what they keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

X = jnp.zeros((1, 4, 4, 3))
CALLED = "(x.shape=(1, 4, 4, 3), "
WINDOW, KERNEL = f"{CALLED}window_shape=(3, 3))", f"{CALLED}kernel.shape="
REFUSED = {
    "a rank that a window at the border lacks": (
        lambda: jaxpool.rank_pool(X, 4, (3, 3), padding="SAME"),
        "jaxpool.rank_pool: `rank` must be an int from -4 to 3; got rank=4 "
        f"{WINDOW}. 0 is the smallest element, -1 the largest.",
    ),
    "a rank that is no int": (
        lambda: jaxpool.rank_pool(X, 0.5, (3, 3)),
        "jaxpool.rank_pool: `rank` must be an int from -9 to 8; got rank=0.5 "
        f"{WINDOW}. 0 is the smallest element, -1 the largest.",
    ),
    "more than there are": (
        lambda: jaxpool.k_max_pool(X, 5),
        "jaxpool.k_max_pool: `k` must be an int from 1 to 4, the size of axis 2; got k=5 "
        "(x.shape=(1, 4, 4, 3)). Ask for fewer, or name another axis.",
    ),
    "a count that is no int": (
        lambda: jaxpool.k_max_pool(X, True),
        "jaxpool.k_max_pool: `k` must be an int from 1 to 4, the size of axis 2; got k=True "
        "(x.shape=(1, 4, 4, 3)). Pass an int.",
    ),
    "a kernel of other channels": (
        lambda: jaxpool.dilate(X, jnp.zeros((3, 3, 2))),
        "jaxpool.dilate: `kernel` must be of shape window_shape or (*window_shape, C), C the size of "
        "the channels of x; got kernel.shape=(3, 3, 2) (x.shape=(1, 4, 4, 3)). Pass axes=(1, 2), say, "
        "where x has no batch axis or several.",
    ),
    "a kernel of integers": (
        lambda: jaxpool.erode(X, jnp.zeros((3, 3), int)),
        "jaxpool.erode: `kernel` must be of floats as x is, or of integers as x is, x being float32; "
        f"got kernel=dtype('int32') {KERNEL}(3, 3)). Convert one of them.",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    call, message = REFUSED[what]
    with pytest.raises((TypeError, ValueError)) as found:
        call()
    assert str(found.value) == message


KEPT = {
    "median_pool": (lambda x: jaxpool.median_pool(x, (3, 3)), {"uint8[1,2,2,3]"}),
    "median_pool, split": (
        lambda x: jaxpool.median_pool(x, (3, 3), ties="split"),
        {"uint16[1,2,2,3]"},
    ),
    "dilate": (lambda x: jaxpool.dilate(x, np.zeros((2, 2), np.float32)), {"uint8[1,3,3,3]"}),
    "k_max_pool": (lambda x: jaxpool.k_max_pool(x, 2), {"uint8[1,4,2,3]"}),
    "blur_pool": (lambda x: jaxpool.blur_pool(x, (3, 3)), set()),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_index_an_output_is_kept_and_nothing_is_scattered(name):
    f, kept = KEPT[name]
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], X))
    assert {f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves} == kept
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    assert "scatter" not in gradient.trace(X).lower(lowering_platforms=("cuda",)).as_text()
