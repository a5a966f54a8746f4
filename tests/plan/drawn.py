"""Plans of max and sum pools for random windows on both sides of the thresholds: drawn.txt.

The first line of a problem has shape, window, strides, padding, dilation, axes and dtype, and `sharded` for an array
with explicit sharding. The lines below it list the passes of each platform in the order in which they run, in the
notation of `golden.py`. For a maximum, S scatters a cotangent to all tied elements and R to the element of a rank. T, S
and R are omitted if they equal F, B and S. `max:` has the rest of the plan, in the terms of
`jaxpool/_plan/max_pool.py`.

Braces enclose the positions that a pass reads. `{64 2p-1..1 31}`: along an axis of 64 elements, output position p of 31
reads 2p-1, 2p and 2p+1 if they exist. `2..0 by -1` are 2, 1 and 0. `x` separates axes. For maxima, positions go from
input to output, also in B, S and R: a cotangent goes from p to these positions. `#0..6 by 3` are their taps, numbered
in row-major order through the window. With `each of 3`, an element is the maximum of 3 taps, starting at that tap. For
sums, B reads positions of the pool's output. `;` separates interleaved phases, `(of 2)` means two consecutive phases
with equal reads, and `and` adds a second read of the previous pass's input. `cut 1 30`: further regions of the axis
begin at p = 1 and p = 30.
"""

import itertools
import random
from pathlib import Path

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import make_window
from jaxpool._plan.max_pool import Pass, plan_max, plan_scatter, plan_ties, residual, scatters
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.stages import of_steps, of_sums
from jaxpool._plan.sum_pool import SumPass, plan_sum
from tests.plan.words import a_pass, by_platform

PATH = Path(__file__).with_name("drawn.txt")
PROBLEMS = 250


def lines():
    """Return all lines of drawn.txt: the plans of each random problem, for maxima and sums."""
    chance = random.Random(0)
    return [line for _ in range(PROBLEMS) for line in _of(*drawn_problem(chance))]


def drawn_problem(chance):
    """Draw arguments of `make_window`, a dtype and whether the array is sharded."""
    while True:
        rank = chance.choice((1, 1, 2, 2, 2, 3))
        longest = (130, 20, 6)[rank - 1]
        window = [round(longest ** chance.random()) for _ in range(rank)]
        if chance.random() < 0.5:
            window = window[:1] * rank
        sizes = [chance.choice((each, chance.randint(1, 12 * longest))) for each in window]
        strides = chance.choice(
            ([1] * rank, [2] * rank, window, [chance.randint(1, 2 * each) for each in window])
        )
        dilation = [chance.choice((1, 1, 1, 2, 3)) for _ in range(rank)]
        sides = [(chance.randint(0, each), chance.randint(0, each)) for each in window]
        padding = chance.choice(("VALID", "SAME", sides))
        batch, row = (
            chance.choice((1, 2, 16, 16, 16, None)),
            chance.choice((1, 3, 8, 11, 12, 15, 16, 64)),
        )
        dtype = chance.choice(("float32", "float32", "bfloat16", "float8_e5m2", "int8", "float64"))
        if chance.random() < 0.3:  # sizes in bytes around the thresholds
            sizes = [chance.choice((16, 32, 64)) for _ in window]
            batch, row = chance.choice((1, 2, 4)), chance.choice((1, 8, 16))
            strides, padding = [1] * rank, "SAME"
        shape = (batch, *sizes, row) if chance.random() < 0.8 else (batch, row, *sizes)
        first = 1 if shape[-1] == row else 2
        options = {"window_dilation": dilation, "axes": tuple(range(first, first + rank))}
        try:
            make_window(shape, window, strides, padding, **options, empty_windows="allow")
        except ArgumentError:
            continue
        return shape, window, strides, padding, options, dtype, chance.random() < 0.1


def _of(shape, window, strides, padding, options, dtype, sharded):
    geometry = make_window(shape, window, strides, padding, **options, empty_windows="allow")
    words = [*map(str, (shape, window, strides, padding, *options.values())), dtype]
    title = " ".join([*words, *["sharded"] * sharded]).replace(", ", ",")
    found = {}  # plan by direction (F, T, B, ...) and platform
    for platform in PLATFORMS:
        problem = Problem(geometry, shape, dtype, platform, sharded)
        for way, said in [*_of_maxima(problem), *_of_sums(problem)]:
            found.setdefault(way, {})[platform] = f"{way} {said}"
    return [title, *[line for plans in found.values() for line in by_platform(plans)]]


def _of_maxima(problem):
    """Return the lines of max pools and rank pools. T, S and R are omitted if they equal F, B and S."""
    plan, ranked = plan_max(problem), plan_rank(problem)
    ways = {
        "F": _told(of_steps(plan.forward)),
        "T": _told(of_steps(plan.tangent[::-1])),
        "B": _told(of_steps(plan.backward, back=True), back=True),
        "S": _told(of_steps([plan_ties(problem)], back=True), back=True),
        "R": _told(of_steps(ranked.backward, back=True), back=True),
    }
    same = {"T": "F", "S": "B", "R": "S"}
    widened = dict.fromkeys(each.widen for each in (plan, ranked) if each.widen != "never")
    notes = [f"cotangents widened, {', '.join(widened)}"] if widened else []
    notes += ["NaN in a chain of its own"] * (plan.nan == "alone")
    notes += [f"values by reduce_window over {_groups(plan.value_by)}"] * bool(plan.value_by)
    sent = plan_scatter(problem)
    if sent.groups and _keeps_input(problem):
        notes += [f"sent by select_and_scatter over {_groups(sent.groups)}, {sent.compared}"]
        notes += [f"transposed by {sent.order}"] * bool(sent.order)
    said = [(way, text) for way, text in ways.items() if text != ways.get(same.get(way))]
    return [(f"max {way}", text) for way, text in said] + [("max:", ", ".join(notes))] * bool(notes)


def _of_sums(problem):
    for way, back in (("F", False), ("B", True)):
        yield f"sum {way}", _told(of_sums(plan_sum(problem, transposed=back)), back=back)


def _keeps_input(problem):
    """Return True if x is the residual and select_and_scatter computes the cotangent."""
    kept = residual(problem.window, split=False, platform=problem.platform)
    return scatters(problem) and kept == "input"


def _groups(groups):
    """Format groups of axes. One instruction handles a group, and groups follow one another."""
    return ", then ".join(",".join(str(dim.axis) for dim in group) for group in groups)


def _told(stages, *, back=False):
    said = (a_pass(stage, back=back) + _what_it_reads(stage.read) for stage in stages)
    return ", ".join(said) or "nothing"


def _what_it_reads(read):
    """Format the positions that a pass reads along each axis, and the starts of its regions."""
    words = []
    if isinstance(read, Pass):
        words += [" x ".join(_access(each, taps=True) for each in read.step.accesses)]
        words += [f"each of {read.step.reach}"] * (read.step.reach > 1)
    elif isinstance(read, SumPass):
        sources = (" x ".join(map(_phases, source)) for source in read.sources)
        words += [" and ".join(sources)]
    else:
        return ""
    starts = [" ".join(str(cut.first) for cut in cuts[1:]) for cuts in read.layout.cuts]
    words += [f"cut {each}" for each in starts if each]
    return " {" + ", ".join(words) + "}"


def _phases(phases):
    """Format the phases of an axis. Consecutive phases with equal reads appear once, with their count."""
    groups = itertools.groupby(_access(each) for each in phases)
    counted = [(text, len([*same])) for text, same in groups]
    return "; ".join(text + f" (of {count})" * (count > 1) for text, count in counted)


def _access(access, *, taps=False):
    offsets, flat = ([each[which] for each in access.pairs] for which in (0, 1))
    numbers = f" #{_numbers(flat)}" * taps
    by = str(access.stride) * (access.stride != 1)
    return f"{access.size} {by}p{_numbers(offsets, sign='+')}{numbers} {access.out}"


def _numbers(numbers, sign=""):
    """Format a list of numbers. An arithmetic progression appears as its first, its last and its step."""
    if not numbers:
        return " nothing"
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    first = f"{numbers[0]:{sign}}"
    if len(numbers) == 1 or len(steps) > 1:
        return ",".join([first, *map(str, numbers[1:])])
    (step,) = steps
    return f"{first}..{numbers[-1]}" + f" by {step}" * (step != 1)
