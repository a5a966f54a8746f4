"""Elements that windows read at each position of an axis: regions, phases, transposes and tables."""

import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jaxpool._geometry import access
from jaxpool._geometry.window import Axis

axis_strategy = st.builds(
    lambda size, window, stride, dilation, low, out: Axis(
        0, size, window, stride, dilation, low, 0, out
    ),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(-3, 12),
    st.integers(1, 20),
)


def phases_of(dim, transposed):
    each = access.window_access(dim)
    return each.transposed() if transposed else (each,)


@given(axis_strategy, st.booleans(), st.booleans())
def test_regions_cover_each_position_once(dim, transposed, at_ends):
    phases = phases_of(dim, transposed)
    regions = access.split_into_regions([phases], separate_ends=at_ends)
    held = [
        position * len(phases) + phase
        for cut in regions
        for position in range(cut.start, cut.stop)
        for phase in range(cut.num_phases)
    ]
    assert held == list(range(dim.size if transposed else dim.out))
    assert len(regions) <= 2 * at_ends + 2
    for each in phases:
        first, stop = each.full_range
        for (offset, _), position in itertools.product(each.tap_offsets, range(each.out)):
            inside = 0 <= each.stride * position + offset < each.size
            low, high = each.valid_range(offset, 0, each.out)
            assert inside == (low <= position < high)
            assert inside or not first <= position < stop


@given(axis_strategy)
def test_transpose_matches_window_access(dim):
    """Compares taps too, because a cotangent selects its element by tap."""
    each = access.window_access(dim, tap_stride=7)
    gave = {
        (offset + each.stride * output, output, tap)
        for output in range(each.out)
        for offset, tap in each.tap_offsets
        if 0 <= offset + each.stride * output < dim.size
    }
    phases = each.transposed()
    got = {
        (position * len(phases) + phase, position + offset, tap)
        for phase, each in enumerate(phases)
        for position in range(each.out)
        for offset, tap in each.tap_offsets
        if 0 <= position + offset < dim.out
    }
    assert got == gave
    most = max(sum(element == one for element, *_ in gave) for one in range(dim.size))
    assert most <= access.max_elements_per_position(phases)


@given(axis_strategy, st.booleans())
def test_gather_tables_clamp_missing_elements(dim, transposed):
    phases = phases_of(dim, transposed)
    tables = access.gather_tables(phases)
    for position in range(access.total_positions(phases)):
        row, phase = divmod(position, len(phases))
        each = phases[phase]
        named = [(each.stride * row + offset, tap) for offset, tap in each.tap_offsets]
        real = {(place, tap) for place, tap in named if 0 <= place < each.size}
        named = [(e[position], t[position], exist[position]) for e, t, exist in tables]
        assert sorted(real) == sorted((e, t) for e, t, exist in named if exist)
        assert all(0 <= element < each.size for element, *_ in named)


@given(axis_strategy, st.booleans())
def test_slice_elements_shifts_offsets(dim, transposed):
    """A slice of the array reads the same elements at shifted offsets."""
    for each in phases_of(dim, transposed):
        begin, end = each.size // 3, each.size + 2
        part = each.slice_elements(begin, end)
        assert (part.size, part.out, part.stride) == (end - begin, each.out, each.stride)
        moved = [(offset + begin, tap) for offset, tap in part.tap_offsets]
        assert moved == list(each.tap_offsets)


@given(axis_strategy, st.sampled_from((1, 5)))
def test_window_access_matches_tap_positions(dim, unit):
    reads = access.window_access(dim, unit)
    assert [tap for _, tap in reads.tap_offsets] == [unit * tap for tap in range(dim.window)]
    positions = dim.tap_positions()
    assert positions.dtype == np.int32
    for position, row in enumerate(positions.tolist()):
        places = [reads.stride * position + offset for offset, _ in reads.tap_offsets]
        assert [at if 0 <= at < dim.size else dim.size for at in places] == row


@given(axis_strategy)
@example(Axis(0, size=2, window=1, stride=1, dilation=1, low=-1, high=0, out=1))
def test_covered_elements_mask(dim):
    want, got = np.isin(np.arange(dim.size), dim.tap_positions()), access.covered_elements_mask(dim)
    assert (got is None) == want.all()
    np.testing.assert_array_equal(want, True if got is None else got)
