"""Exponents and temperatures whose inverse is out of range of the dtype."""

import jax.numpy as jnp
import pytest

from jaxpool._ops.ranged import clip_value


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.0, 2.0**-94), (1e-45, 2.0**-94), (2.0**-94, 2.0**-94), (3.0, 3.0), (1e39, 2.0**96)],
)
def test_clip_value(sign, value, kept):
    assert clip_value(sign * value, jnp.float32) == pytest.approx(sign * kept, rel=1e-7, abs=0)
