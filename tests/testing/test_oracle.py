"""The oracle and `assert_pool_matches`, against worked examples."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import PoolCase, assert_pool_matches, oracle, pools

pytestmark = pytest.mark.usefixtures("strict")


def test_oracle_sums_are_exact_and_rounded_once():
    x = np.ones((512, 1), jnp.bfloat16)
    assert oracle.sum_pool(x, (512,)).y.item() == 512
    cancelling = np.array([[1e30], [1.0], [-1e30]], np.float32)
    assert oracle.sum_pool(cancelling, (3,)).y.item() == 1
    assert oracle.sum_pool(np.full((2, 1), 100, np.int8), (2,)).y.item() == 200 - 256


def test_assert_pool_matches_detects_mismatches():
    x, dy = (np.array(values, np.float32)[:, None] for values in ([1, 1, 0, 2], [1, 2]))
    case = PoolCase("max", x, dy, (2,), (2,), "VALID")
    assert_pool_matches(jaxpool.max_pool, case)
    assert_pool_matches(jaxpool.max_pool, case, jit=False)
    for wrong, message in [
        (jaxpool.min_pool, "value of"),
        (lambda x, **kwargs: jaxpool.max_pool(x, **kwargs, ties="last"), "cotangent of"),
        (lambda x, **kwargs: jaxpool.max_pool(x, **kwargs)[:1], "want float32"),
        (lambda x, **kwargs: jaxpool.max_pool(x, **kwargs).astype(jnp.bfloat16), "got bfloat16"),
        (lambda x, **kwargs: jaxpool.max_pool(x, **kwargs) * np.float32(np.nan), "value of"),
    ]:
        with pytest.raises(AssertionError, match=message):
            assert_pool_matches(wrong, case)


def test_assert_pool_matches_invalid_case_raises():
    x = np.ones((4, 1), np.float32)
    name, hint = "jaxpool.testing.assert_pool_matches", "With dy=None the value alone is compared."
    rule = "`case.dy` must be an array of the shape and dtype of the output, float32[2,1]"
    for dy, got in [
        (np.ones(2, np.float32), "float32[2]"),
        (np.ones((2, 1)), "float64[2,1]"),
        ([1, 1], "[1, 1]"),
    ]:
        said = f"{name}: {rule}; got case.dy={got}. {hint}"
        with pytest.raises(ValueError, match=re.escape(said)):
            assert_pool_matches(jaxpool.max_pool, PoolCase("max", x, dy, (2,), (2,), "VALID"))
    whole = PoolCase("max", x.astype(int), np.ones((2, 1)), (2,), (2,), "VALID")
    with pytest.raises(
        ValueError, match=r"`case.dy` must be None where the output is int64\[2,1\]"
    ):
        assert_pool_matches(jaxpool.max_pool, whole)
    with pytest.raises(TypeError, match=f"{name}: `case` must be a PoolCase or a Call; got case=3"):
        assert_pool_matches(jaxpool.max_pool, 3)


def test_oracle_unknown_ties_raises():
    with pytest.raises(ValueError, match="ties must be 'first', 'last' or 'split'; got 'none'"):
        oracle.max_pool(np.ones((4, 1)), (2,), ties="none")


def test_max_unpool_with_narrow_index_dtype():
    arguments = np.full((1, 1), 3, np.float32), np.full((1, 1), 5, np.int8), (200,)
    want = np.where(np.arange(200) == 5, np.float32(3), 0)[:, None]
    for meaning in (oracle.max_unpool(*arguments).y, pools()["max_unpool"].twin(*arguments)):
        np.testing.assert_array_equal(meaning, want)
