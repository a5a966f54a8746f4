"""The steps of a multi-pass window cover all its taps in row-major order, and there are few of them."""

import itertools
import math

import pytest

from jaxpool._geometry.window import make_window
from jaxpool._plan.problem import plan_steps
from jaxpool._plan.tuning import CPU, PORTABLE

TUNINGS = pytest.mark.parametrize("tuning", [CPU, PORTABLE], ids=["cpu", "portable"])
# Taps of the second axis: too many to be in one step with the first axis
MINOR = 17


def steps_of_first_axis(window, stride, dilation, tuning):
    """Return the steps along the first axis of a window that takes several steps."""
    options = {"window_dilation": (dilation, 1)}
    geometry = make_window((1, 600, 40, 1), (window, MINOR), (stride, 1), **options)
    return [s for s in plan_steps(geometry, tuning, is_forward=False) if s.axes == (1,)]


def window_elements(steps, window, output):
    """Return position and flat tap of every element of the window at `output`, in the order of joining."""
    # pairs of a position along the window's axes and the first flat tap read from there
    wanted = [(tuple(output), 0)]
    order = {dim.axis: which for which, dim in enumerate(window.dims)}
    for step in reversed(steps):
        before = []
        for position, first in wanted:
            for chosen in itertools.product(*[access.tap_offsets for access in step.accesses]):
                place = list(position)
                for axis, access, (offset, _) in zip(step.axes, step.accesses, chosen, strict=True):
                    which = order[axis]
                    place[which] = access.stride * place[which] + offset
                before.append((tuple(place), first + sum(tap for _, tap in chosen)))
        wanted = before
    return wanted


@TUNINGS
@pytest.mark.parametrize("stride", [1, 2, 3, 50, 200])
def test_steps_cover_every_window(stride, tuning):
    """Each piece of a step is a result of the previous steps, and the pieces cover every tap."""
    for window in range(1, 130):
        length = 1
        for step in steps_of_first_axis(window, stride, 1, tuning):
            assert step.piece_taps == MINOR * length
            starts = [start // MINOR for start in step.piece_starts]
            covered = {start + tap for start in starts for tap in range(length)}
            length = step.num_flat_taps // MINOR
            assert covered == set(range(length))
            assert len(starts) <= tuning.max_pass_taps
        assert length == window


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@TUNINGS
@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation"),
    [
        ((9, 2), 1, "VALID", 1),
        ((13, 17), 1, "SAME", 1),
        ((17, 3), 2, ((8, 8), (1, 1)), 1),
        ((33, 33), 33, "VALID", 1),
        ((40, 1), 1, ((39, 0), (0, 0)), 1),
        ((3, 20), 1, "SAME_LOWER", 2),
        ((3, 3), 2, "SAME", 1),
    ],
)
def test_steps_read_each_tap_in_order(window, stride, padding, dilation, tuning, forward):
    """Pieces are joined in the order of their flat taps, which decides ties."""
    shape = (1, 45, 44, 2)
    geometry = make_window(shape, window, stride, padding, window_dilation=(1, dilation))
    steps = plan_steps(geometry, tuning, is_forward=forward)
    now = shape
    for step in steps:
        assert list(step.piece_starts) == sorted(set(step.piece_starts))
        assert step.input_shape(step.output_shape(now)) == now
        now = step.output_shape(now)
    assert now == geometry.pooled_shape(shape)
    for output in itertools.product(*[{0, dim.out // 2, dim.out - 1} for dim in geometry.dims]):
        found = {}
        for position, tap in window_elements(steps, geometry, output):
            assert found.setdefault(tap, position) == position
        assert sorted(found) == list(range(geometry.size))
        for tap, position in found.items():
            pairs = zip(geometry.dims, output, geometry.unravel(tap), strict=True)
            want = tuple(dim.stride * o - dim.low + t * dim.dilation for dim, o, t in pairs)
            assert position == want


@pytest.mark.parametrize(
    ("window", "stride", "dilation"), [(64, 64, 1), (50, 20, 1), (40, 48, 2), (70, 7, 3)]
)
def test_steps_compute_no_unread_positions(window, stride, dilation):
    """For strides beyond the window, the next step reads every position that a step computes."""
    steps = steps_of_first_axis(window, stride, dilation, CPU)
    for step, after in itertools.pairwise(steps):
        (made,), (reads,) = step.accesses, after.accesses
        offsets = [offset for offset, _ in reads.tap_offsets]
        assert reads.stride * (reads.out - 1) + max(offsets) == made.out - 1
        assert math.gcd(reads.stride, *offsets) == 1
