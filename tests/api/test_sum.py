"""Sum and average pooling by example: the elements that are added, and the divisor."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")


def row(*values):
    """One pooled axis and one channel."""
    return jnp.array(values, jnp.float32)[:, None]


def average_list(x, *args, **kwargs):
    return jaxpool.avg_pool(x, *args, **kwargs).ravel().tolist()


def gradient_list(x, *args, function=jaxpool.avg_pool, **kwargs):
    """The gradient of the sum of the outputs."""
    gradient = jax.grad(lambda x: function(x, *args, **kwargs).sum())(x)
    return gradient.ravel().tolist()


@pytest.mark.parametrize("autodiff", MODES)
def test_sums_by_argument(autodiff):
    x = row(1, 5, 2, 4, 3, 0)
    pool = functools.partial(jaxpool.sum_pool, autodiff=autodiff)

    def total(*args, **kwargs):
        return pool(x, *args, **kwargs).ravel().tolist()

    assert total((2,)) == [6, 7, 6, 7, 3]
    assert total((2,), (2,)) == [6, 6, 3]
    assert total((3,), (3,), ((1, 0),)) == [6, 9]
    assert total((3,), (2,), "SAME") == [8, 9, 3]
    assert total((3,), (2,), "SAME_LOWER") == [6, 11, 7]
    assert total((2,), window_dilation=(3,)) == [5, 8, 2]
    assert total((4,), (4,), ceil_mode=True) == [12, 3]
    assert pool(x[:, 0], 6, axes=(0,)).tolist() == [15]


@pytest.mark.parametrize("autodiff", MODES)
def test_elements_sum_the_cotangents_of_their_windows(autodiff):
    options = {"function": jaxpool.sum_pool, "autodiff": autodiff}
    x = row(*range(6))
    assert gradient_list(x, (2,), **options) == [1, 2, 2, 2, 2, 1]
    assert gradient_list(x, (2,), (2,), **options) == [1] * 6
    assert gradient_list(x, (2,), (3,), **options) == [1, 1, 0, 1, 1, 0]
    assert gradient_list(x, (3,), padding=1, **options) == [2, 3, 3, 3, 3, 2]
    assert gradient_list(x, (2,), window_dilation=(3,), **options) == [1] * 6


def test_divisor_counts_padding_but_not_ceil_mode_overhang():
    ones = row(1, 1, 1, 1, 1)
    assert average_list(ones, (2,), (2,), 1) == [0.5, 1, 1]
    assert average_list(ones, (2,), (2,), 1, ceil_mode=True) == [0.5, 1, 1]
    assert average_list(ones, (3,), (3,), ((1, 1),)) == pytest.approx([2 / 3, 1])
    assert average_list(ones, (2,), (2,), ceil_mode=True) == [1, 1, 1]
    assert average_list(ones, (3,), (3,), ((0, 1),), ceil_mode=True) == pytest.approx([1, 2 / 3])
    # 1 element and 1 padding
    assert average_list(ones, (4,), (4,), ((0, 1),), ceil_mode=True) == [1, 0.5]


def test_count_include_pad_false():
    x = row(2, 4, 6)
    assert average_list(x, (3,), (1,), 1) == [2, 4, pytest.approx(10 / 3)]
    assert average_list(x, (3,), (1,), 1, False) == [3, 4, 5]
    assert average_list(x, (3,), (1,), 1, count_include_pad=False) == [3, 4, 5]
    assert average_list(x, (2,), (2,), "SAME", False) == [3, 6]
    assert gradient_list(x, (2,), (2,), "SAME", False) == [0.5, 0.5, 1]
    assert gradient_list(x, (2,), (2,), "SAME") == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("divisor", [4, 4.0, np.int32(4), np.float64(4)])
def test_divisor_replaces_the_count(divisor, autodiff):
    x = row(2, 4, 6)
    for count in (True, False):
        options = {"divisor": divisor, "count_include_pad": count, "autodiff": autodiff}
        assert average_list(x, (3,), (2,), 1, **options) == [1.5, 2.5]
        assert gradient_list(x, (3,), (2,), 1, **options) == [0.25, 0.5, 0.25]
    assert average_list(x, (1,), divisor=-2) == [-1, -2, -3]
