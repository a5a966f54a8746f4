"""Loops over the taps of a window equal unrolled code with one term per tap. Also bit masks of tied taps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.window import make_window
from jaxpool._kernels import rank, rolled
from jaxpool._kernels.keys import from_zero_tied_sort_keys, min_or_max_key, zero_tied_sort_keys
from jaxpool._kernels.slices import elements_at_tap, pad_input
from jaxpool._ops.rank_pool import RankPool
from jaxpool._plan.rank_pool import position_of_rank
from tests.support import forms


@pytest.mark.parametrize("seed", forms.seeds(6))
def test_loops_equal_unrolled_terms(seed):
    rng = np.random.default_rng(seed)
    drawn = forms.draw_window(rng)
    while any(dim.first_empty_window() is not None for dim in drawn.window.dims):
        drawn = forms.draw_window(rng)
    window, joined = drawn.window, bool(seed % 2)
    ranks = ("higher", 0, -1, "lower")[seed % 4]
    walk = rolled.TapLoop(window, joined)

    @jax.jit
    def both(x, v, dy):
        key, found = zero_tied_sort_keys(x), []
        fill = min_or_max_key(key.dtype, isinstance(ranks, str) or ranks >= 0)
        count = rank.num_elements_inside(window, x.ndim) if isinstance(ranks, str) else window.size
        place = position_of_rank(ranks, count)
        y = rolled.key_of_rank_in_windows(walk, key, place, fill)
        found.append(from_zero_tied_sort_keys(y, x.dtype))
        tied = rolled.equal_key_selection(walk, key, y, fill)
        for ties in ("first", "last"):
            tap = tied.first_or_last_selected_tap(take_last=ties == "last")
            selected = rolled.tap_selection(walk, tap)
            found += [tap, selected.pick(v), selected.route(dy)]
        found += [tied.pick(v), tied.route(dy)]
        wanted = []
        for ties in ("first", "last", "split"):
            op = RankPool(window, ties, range(window.size), ranks)
            y, kept = op.primal("cpu", x)
            wanted += [y] if ties == "first" else []
            wanted += [] if ties == "split" else [kept]
            wanted += [op.linear("cpu", kept, v), *op.transpose("cpu", kept, dy)]
        return found, wanted

    x = rng.integers(0, 4, drawn.shape).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    v = rng.standard_normal(x.shape).astype(np.float32)
    dy = rng.standard_normal(window.pooled_shape(x.shape)).astype(np.float32)
    found, wanted = both(x, v, dy)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("joined", [False, True])
def test_planes_contain_window_elements(joined):
    window = make_window((2, 7, 9, 3), (3, 4), (2, 3), "SAME", window_dilation=(1, 2))
    x = jnp.arange(2.0 * 7 * 9 * 3).reshape(2, 7, 9, 3)
    walk = rolled.TapLoop(window, joined)
    planes = walk.to_planes(x, 0)
    assert planes.shape[0] == 2 * 3
    np.testing.assert_array_equal(walk.from_planes(planes, x.shape), x)

    def join(state, tap, blocks):
        return (jnp.where(tap == wanted, blocks[0], state[0]),)

    for wanted in range(window.size):
        first = [walk.collapse_output(jnp.zeros(window.pooled_shape(x.shape)))]
        (found,) = walk.fold_over_taps(join, first, [planes], x.shape)
        want = elements_at_tap(pad_input(x, window, 0), window, wanted)
        np.testing.assert_array_equal(found.reshape(want.shape), want)


@pytest.mark.parametrize("last", [False, True])
def test_first_or_last_tied_tap_of_several_words(last):
    """Windows of 70 taps have words of 32, 32 and 6 bits. Each column is one window."""
    window, chance = make_window((1, 70, 1), (70,)), np.random.default_rng(0)
    taps = [np.sort(chance.choice(70, n, replace=False)) for n in (1, 2, 3, 5, 70) * 4]
    bits = np.zeros((70, len(taps)), np.uint32)
    for column, held in enumerate(taps):
        bits[held, column] = 1
    words = [
        (bits[first:end] << np.arange(end - first, dtype=np.uint32)[:, None]).sum(0).astype(dtype)
        for first, end, dtype in ((0, 32, np.uint32), (32, 64, np.uint32), (64, 70, np.uint8))
    ]
    found = rank.first_or_last_tied_tap(tuple(map(jnp.asarray, words)), window, last)
    np.testing.assert_array_equal(found, [held[-1 if last else 0] for held in taps])
