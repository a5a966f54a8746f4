"""Plans of max and sum pools for windows that were drawn at random, on both sides of the thresholds: drawn.txt.

The problems reach every branch of `jaxpool/_plan` that the plans of a pool's windows have. To add one, append its first
line to drawn.txt and run `python -m tests.plan.golden`.

The first line of a problem has shape, window, strides, padding, dilation, axes and dtype, and `sharded` for an array
with explicit sharding. The lines below it list the passes of each platform in the order in which they run. F, T and B
are the passes for the output, for a tangent and for a cotangent. For a maximum, S scatters a cotangent to all tied
elements and R to the element of a rank. T, S and R are omitted if they equal F, B and S. `max:` has the rest of the
plan, in the terms of `jaxpool/_plan/max_pool.py`.

`1,2: 9 bounded /4 stored` is a pass along axes 1 and 2 with 9 terms, in 4 regions, whose result is stored. Elements
outside the array are filled in before reading (`padded`) or term by term (`bounded`); with `tables`, index tables hold
the position of each term. `x4` means 4 phases, with at most that number of terms. `1: 1 repeated` is not a pass:
windows along axis 1 are disjoint, and each element receives one cotangent unchanged. `reduced` axes are covered by one
window, and `reduce_window` is lax's.

Braces enclose the positions that a pass reads. `{64 2p-1..1 31}`: along an axis of 64 elements, output position p of 31
reads 2p-1, 2p and 2p+1 if they exist. `2..0 by -1` are 2, 1 and 0. `x` separates axes. For maxima, positions go from
input to output, also in B, S and R: a cotangent goes from p to these positions. `#0..6 by 3` are their taps, numbered
in row-major order through the window. With `each of 3`, an element is the maximum of 3 taps, starting at that tap. For
sums, B reads positions of the pool's output. `;` separates interleaved phases, `(of 2)` means two consecutive phases
with equal reads, and `and` adds a second read of the previous pass's input. `cut 1 30`: further regions of the axis
begin at p = 1 and p = 30.
"""

import ast
import itertools
from pathlib import Path

from jaxpool._geometry.window import make_window
from jaxpool._plan.max_pool import (
    MaxPass,
    choose_residual,
    plan_max,
    plan_one_pass,
    plan_scatter,
    uses_select_and_scatter,
)
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.sum_pool import SumPass, plan_sum
from tests.plan.words import by_platform, format_steps, format_sums

PATH = Path(__file__).with_name("drawn.txt")


def lines():
    """Return all lines of drawn.txt: its problems, each with the plans of maxima and sums."""
    titles = [line for line in PATH.read_text().splitlines() if line[0] != " "]
    return [line for title in titles for line in _problem_lines(title)]


def _problem_lines(title):
    shape, window, strides, padding, dilation, axes, dtype, *sharded = map(
        _parse_word, title.split()
    )
    geometry = make_window(
        shape, window, strides, padding, window_dilation=dilation, axes=axes, empty_windows="allow"
    )
    found = {}  # plan by direction (F, T, B, ...) and platform
    for platform in PLATFORMS:
        problem = Problem(geometry, shape, dtype, platform, bool(sharded))
        for way, said in [*_max_lines(problem), *_sum_lines(problem)]:
            found.setdefault(way, {})[platform] = f"{way} {said}"
    return [title, *[line for plans in found.values() for line in by_platform(plans)]]


def _parse_word(word):
    """Evaluate a word of a title, unless it is a name."""
    return word if word.isidentifier() else ast.literal_eval(word)


def _max_lines(problem):
    """Return the lines of max pools and rank pools. T, S and R are omitted if they equal F, B and S."""
    plan, ranked = plan_max(problem), plan_rank(problem)
    ways = {
        "F": _format_passes(format_steps(plan.forward)),
        "T": _format_passes(format_steps(plan.tangent[::-1])),
        "B": _format_passes(format_steps(plan.backward, back=True)),
        "S": _format_passes(format_steps([plan_one_pass(problem)], back=True)),
        "R": _format_passes(format_steps(ranked.backward, back=True)),
    }
    same = {"T": "F", "S": "B", "R": "S"}
    widened = dict.fromkeys(
        each.widen_mode for each in (plan, ranked) if each.widen_mode != "never"
    )
    notes = [f"cotangents widened, {', '.join(widened)}"] if widened else []
    notes += ["NaN in a chain of its own"] * (plan.nan_mode == "alone")
    notes += [f"values by reduce_window over {_format_groups(plan.value_groups)}"] * bool(
        plan.value_groups
    )
    sent = plan_scatter(problem)
    if sent.groups and _input_is_residual(problem):
        notes += [
            f"sent by select_and_scatter over {_format_groups(sent.groups)}, {sent.comparison}"
        ]
        notes += [f"transposed by {sent.permutation}"] * bool(sent.permutation)
    said = [(way, text) for way, text in ways.items() if text != ways.get(same.get(way))]
    return [(f"max {way}", text) for way, text in said] + [("max:", ", ".join(notes))] * bool(notes)


def _sum_lines(problem):
    for way, back in (("F", False), ("B", True)):
        yield f"sum {way}", _format_passes(format_sums(plan_sum(problem, is_transposed=back)))


def _input_is_residual(problem):
    """Return True if x is the residual and select_and_scatter computes the cotangent."""
    kept = choose_residual(problem.window, split=False, platform=problem.platform)
    return uses_select_and_scatter(problem) and kept == "input"


def _format_groups(groups):
    """Format groups of axes. One instruction handles a group, and groups follow one another."""
    return ", then ".join(",".join(str(dim.axis) for dim in group) for group in groups)


def _format_passes(passes):
    return ", ".join(words + _format_reads(plan) for words, plan in passes) or "nothing"


def _format_reads(read):
    """Format the positions that a pass reads along each axis, and the starts of its regions."""
    words = []
    if isinstance(read, MaxPass):
        words += [" x ".join(_format_access(each, taps=True) for each in read.step.accesses)]
        words += [f"each of {read.step.piece_taps}"] * (read.step.piece_taps > 1)
    elif isinstance(read, SumPass):
        sources = (" x ".join(map(_format_phases, source)) for source in read.sources)
        words += [" and ".join(sources)]
    else:
        return ""
    starts = [" ".join(str(cut.start) for cut in cuts[1:]) for cuts in read.layout.axis_regions]
    words += [f"cut {each}" for each in starts if each]
    return " {" + ", ".join(words) + "}"


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
