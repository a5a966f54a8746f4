"""Calls with concrete arrays do not pass through `jax.custom_vjp`, which takes most of the time of an eager call."""

import jax
import numpy as np
import pytest

from jaxpool.testing import pools

POOLS = pools()
X = np.arange(96, dtype=np.float32).reshape(1, 4, 6, 4)


class CustomVjpError(Exception):
    """Raised by `jax.custom_vjp` in these tests."""


@pytest.fixture
def no_custom_vjp(monkeypatch):
    def refuse(*args, **kwargs):
        raise CustomVjpError

    monkeypatch.setattr(jax.custom_vjp, "__call__", refuse)


@pytest.mark.parametrize("name", POOLS)
def test_eager_call_skips_custom_vjp(name, no_custom_vjp):
    POOLS[name].of()(X)


@pytest.mark.parametrize("name", [name for name in POOLS if POOLS[name].modes])
def test_traced_call_uses_custom_vjp(name, no_custom_vjp):
    with pytest.raises(CustomVjpError):
        jax.jit(POOLS[name].of())(X)
