"""Windows of unequal lengths, copied next to each other on a grid: the position of each element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.adaptive import RaggedAxis, adaptive_window
from jaxpool._kernels import patches
from jaxpool._kernels.positions import ragged_window_bounds


@pytest.fixture(params=["constants", "computed"])
def tables(request, monkeypatch):
    """Index tables as constants, and computed by the program as for long axes."""
    monkeypatch.setattr(patches, "is_constant_table", lambda length: request.param == "constants")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("size", [1, 2, 5, 7, 12, 13])
def test_ragged_window_positions(size):
    for out in (2, 3, 5, 8, 16):
        (dim,) = adaptive_window((1, size, 1), (out,), None).dims
        if not isinstance(dim, RaggedAxis):
            continue
        flat = dim.tap_positions().reshape(-1)
        places = np.stack(patches._indices_of_copies(dim))
        assert np.array_equal(patches._tap_positions(dim), dim.tap_positions())
        for position, column in enumerate(places.T):
            wanted = np.flatnonzero(flat == position)
            assert sorted(column[: len(wanted)]) == sorted(column[column < len(flat)])
            assert column[: len(wanted)].tolist() == wanted.tolist()
            assert set(column[len(wanted) :]) <= {len(flat) + position}


@pytest.mark.parametrize("out", [63, 1_428_572])
def test_window_bounds_of_long_axis(out):
    size = 10_000_000
    (dim,) = adaptive_window((1, size, 1), (out,), None).dims
    number = np.unique(np.linspace(0, out - 1, 999).astype(int))
    start, last = ragged_window_bounds(dim, jnp.asarray(number, np.int32))
    assert (np.asarray(start) == number * size // out).all()
    assert (np.asarray(start + last) == -(-(number + 1) * size // out) - 1).all()


def test_long_axis_program_has_no_constant_table():
    (dim,) = adaptive_window((1, 1_000_003, 1), (1_000,), None).dims
    for kernel in (patches._indices_of_copies, patches._tap_positions):
        assert len(jax.jit(lambda kernel=kernel: kernel(dim)).lower().as_text()) < 30_000


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("out", [2, 3, 5, 12, 16])
def test_taps_inside_mask(out):
    window = adaptive_window((1, 12, 1), (out,), None)
    (dim,) = window.dims
    assert np.array_equal(
        patches.taps_inside_mask(window, 3).ravel(), (dim.tap_positions() < dim.size).ravel()
    )
