"""Plans of max and sum pools for windows that were drawn at random, on both sides of the thresholds: drawn.txt.

The problems reach every branch of `jaxpool/_plan` that the plans of a pool's windows have. To add one, append its first
line to drawn.txt and run `python -m tests.plan.golden`.

The first line of a problem has shape, window, strides, padding, dilation, axes and dtype, and `sharded` for an array
with explicit sharding. The lines below it have the plan of a maximum and of a sum on each platform: the passes for the
output (F), a tangent (T) and a cotangent (B), in the order in which they run. For a maximum, S scatters a cotangent to
all tied elements and R to the element of a rank. T, S and R are omitted if they equal F, B and S. The rest of the plan
of a maximum is in the terms of `jaxpool/_plan/max_pool.py`.

`1,2: 9 bounded {...}` is a pass along axes 1 and 2 with at most 9 terms. Elements outside the array are filled in
before reading (`padded`) or term by term (`bounded`); with `tables`, index tables hold the position of each term. `1: 1
repeated` is not a pass: windows along axis 1 are disjoint, and each element receives one cotangent unchanged. `reduced`
axes are covered by one window, and `reduce_window` is lax's.

Braces enclose the positions that a pass reads. `{64 2p-1..1 31}`: along an axis of 64 elements, output position p of 31
reads 2p-1, 2p and 2p+1 if they exist. `2..0 by -1` are 2, 1 and 0. `x` separates axes. For maxima, positions go from
input to output, also in B, S and R: a cotangent goes from p to these positions. `#0..6 by 3` are their taps, numbered
in row-major order through the window. With `each of 3`, an element is the maximum of 3 taps, starting at that tap. For
sums, B reads positions of the pool's output. `;` separates interleaved phases, `(of 2)` means two consecutive phases
with equal reads, and `and` adds a second read of the previous pass's input. `in 0 1 30 31`: the regions of the axis
begin at p = 0, 1 and 30, and the last ends before p = 31.
"""

import ast
import itertools
import math
from pathlib import Path

from jaxpool._geometry.access import max_elements_per_position
from jaxpool._geometry.window import Window, make_window
from jaxpool._plan.max_pool import (
    choose_residual,
    plan_max,
    plan_one_pass,
    plan_scatter,
    uses_select_and_scatter,
)
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.sum_pool import plan_sum

PATH = Path(__file__).with_name("drawn.txt")


def lines():
    """Return all lines of drawn.txt: its problems, each with the plans of maxima and sums."""
    titles = [line for line in PATH.read_text(encoding="utf-8").splitlines() if line[0] != " "]
    return [line for title in titles for line in _problem_lines(title)]


def by_platform(plans):
    """Return one line per plan. Platforms with equal plans share a line."""
    shared = {}
    for platform, words in plans.items():
        shared.setdefault(words, []).append(platform)
    return [f"  {' '.join(platform):11} {plan}" for plan, platform in shared.items()]


def _problem_lines(title):
    words = [word if word.isidentifier() else ast.literal_eval(word) for word in title.split()]
    shape, window, strides, padding, dilation, axes, dtype, *sharded = words
    geometry = make_window(
        shape, window, strides, padding, window_dilation=dilation, axes=axes, empty_windows="allow"
    )
    problems = {
        each: Problem(shape, dtype, each, geometry, is_sharded=bool(sharded)) for each in PLATFORMS
    }
    maxima = {platform: f"max {_max_words(problem)}" for platform, problem in problems.items()}
    sums = {platform: f"sum {_sum_words(problem)}" for platform, problem in problems.items()}
    return [title, *by_platform(maxima), *by_platform(sums)]


def _max_words(problem):
    """Format the plans of max pools and rank pools."""
    plan, ranked, sent = plan_max(problem), plan_rank(problem), plan_scatter(problem)
    passes = {
        "F": plan.forward,
        "T": plan.tangent[::-1],
        "B": plan.backward,
        "S": [plan_one_pass(problem)],
        "R": ranked.backward,
    }
    words = {
        way: ", ".join(map(_max_pass_words, each)) or "nothing" for way, each in passes.items()
    }
    same = {"T": "F", "S": "B", "R": "S"}
    told = [f"{way} {text}" for way, text in words.items() if text != words.get(same.get(way))]
    told += [f"widened {plan.widen_mode}, {ranked.widen_mode}, NaN {plan.nan_mode}"]
    if plan.value_groups:
        told += [f"values by reduce_window over {_format_groups(plan.value_groups)}"]
    residual = choose_residual(problem.window, split=False, platform=problem.platform)
    if sent.groups and residual == "input" and uses_select_and_scatter(problem):
        told += [f"select_and_scatter over {_format_groups(sent.groups)}, {sent.comparison}"]
        told += [f"transposed by {sent.permutation}"] * bool(sent.permutation)
    return " | ".join(told)


def _max_pass_words(one):
    accesses = " x ".join(_format_access(each, taps=True) for each in one.step.accesses)
    pieces = f", each of {one.step.piece_taps}" * (one.step.piece_taps > 1)
    return _pass_words(one.step.axes, len(one.step.piece_starts), one.layout, accesses + pieces)


def _sum_words(problem):
    plans = {way: plan_sum(problem, is_transposed=way == "B") for way in ("F", "B")}
    return " | ".join(f"{way} {_sum_plan_words(plan)}" for way, plan in plans.items())


def _sum_plan_words(plan):
    words, whole = [], Window(plan.global_dims)
    if plan.global_dims and plan.is_transposed:
        words += [_terms(whole.axes, 1, "repeated")]
    elif plan.global_dims:
        words += [_terms(whole.axes, whole.size, "reduced")]
    for group in map(Window, plan.reduce_window_groups):
        words += [_terms(group.axes, group.size, "reduce_window")]
    words += [_terms([dim.axis], 1, "repeated") for dim in plan.disjoint_dims]
    for one in plan.passes:
        count = sum(math.prod(map(max_elements_per_position, source)) for source in one.sources)
        reads = " and ".join(" x ".join(map(_format_phases, source)) for source in one.sources)
        words += [_pass_words(one.axes, count, one.layout, reads)]
    return ", ".join(words) or "nothing"


def _format_groups(groups):
    """Format groups of axes. One instruction handles a group, and groups follow one another."""
    return ", then ".join(",".join(str(dim.axis) for dim in group) for group in groups)


def _terms(axes, count, how):
    return f"{','.join(map(str, axes))}: {count} {how}"


def _pass_words(axes, count, layout, reads):
    regions = []
    for cuts in layout.axis_regions:
        bounds = [cut.start for cut in cuts] + [cuts[-1].stop]
        regions.append(" ".join(map(str, bounds)))
    cut = f" in {' x '.join(regions)}" * bool(regions)
    last = ", minor axis joined last" * layout.minor_axis_last
    return f"{_terms(axes, count, layout.read_mode)} {{{reads}{cut}{last}}}"


def _format_phases(phases):
    """Format the phases of an axis. Consecutive phases with equal reads appear once, with their count."""
    groups = itertools.groupby(_format_access(each) for each in phases)
    counted = [(text, len([*same])) for text, same in groups]
    return "; ".join(text + f" (of {count})" * (count > 1) for text, count in counted)


def _format_access(access, *, taps=False):
    offsets, flat = ([each[which] for each in access.tap_offsets] for which in (0, 1))
    numbers = f" #{_format_numbers(flat)}" * taps
    by = str(access.stride) * (access.stride != 1)
    return f"{access.size} {by}p{_format_numbers(offsets, sign='+')}{numbers} {access.out}"


def _format_numbers(numbers, sign=""):
    """Format a list of numbers. An arithmetic progression appears as its first, its last and its step."""
    if not numbers:
        return " nothing"
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    first = f"{numbers[0]:{sign}}"
    if len(numbers) == 1 or len(steps) > 1:
        return ",".join([first, *map(str, numbers[1:])])
    (step,) = steps
    return f"{first}..{numbers[-1]}" + f" by {step}" * (step != 1)
