"""The plans of all benchmark cases, a line a case and platform: what is chosen, so that a change shows.

    python -m tests.plan.golden     writes golden.txt and drawn.txt anew

In drawn.txt, a digest of all that is planned for problems drawn at random, on both sides of the thresholds.

V, F, T and B are the passes to a value alone, to the output and what is kept for its derivative, of a tangent and of a
cotangent. `1,2: 9 bounded /4 stored` is a pass along axes 1 and 2 of 9 terms, read in place, in 4 regions, whose result
is stored; `x4` says that there are 4 phases. `1: 1 repeated` is no pass: windows do not meet along axis 1, so each
element takes its one cotangent as it is. `reduced` are axes that one window covers, and `reduce_window` is lax's. V
and T are left out where they are F.
"""

import hashlib
import random
from pathlib import Path

from bench.cases import CASES
from jaxpool._arguments.errors import ArgumentError
from jaxpool._cli._plan import plans_of as plans_of_call
from jaxpool._geometry.window import make_window
from jaxpool._plan.max_pool import plan_max, plan_ties
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.sum_pool import plan_sum

PATH = Path(__file__).with_name("golden.txt")
DRAWN = Path(__file__).with_name("drawn.txt")
PROBLEMS = 700
NO_PLAN = ("train_step", "maximum", "minimum")


def lines():
    """All lines, sorted by the name of the case; platforms with the same plan share one."""
    found = []
    for case in sorted(CASES, key=lambda case: case.name):
        if case.op not in NO_PLAN:
            plans = {}
            for on, words in plans_of(case).items():
                plans.setdefault(words, []).append(on)
            found.append(case.name)
            found += [f"  {' '.join(on):11} {plan}" for plan, on in plans.items()]
    return found


def plans_of(case):
    """A line for each platform: what each pool of a case keeps, and its passes."""
    rows = plans_of_call(case.name)
    return {on: " || ".join(_plan(row, row.passes[on]) for row in rows) for on in PLATFORMS}


def _plan(row, plan):
    ways = {"V": plan.value, "F": plan.forward, "T": plan.tangent, "B": plan.backward}
    same = [way for way in "VT" if ways[way] in (None, ways["F"])]
    passes = [
        f"{way} {', '.join(_pass(stage, back=way == 'B') for stage in stages)}"
        for way, stages in ways.items()
        if way not in same
    ]
    kept = " ".join(f"{each.dtype}{list(each.shape)}".replace(" ", "") for each in row.kept)
    return " | ".join([kept or "nothing", *passes, *plan.why])


def _pass(stage, *, back):
    words = [f"{','.join(map(str, stage.axes))}:", str(stage.terms)]
    words += [f"x{stage.phases}"] * (stage.phases > 1) + [stage.how]
    words += [f"/{stage.regions}"] * (stage.regions > 1)
    notes = [stage.note] if stage.note else []
    layout = getattr(stage.read, "layout", None)
    if layout is not None and layout.minor_last:
        notes.append("phases of the minor axis joined last")
    if layout is not None and _has_spare_turn(stage.read, back=back):
        notes.append("a turn of phases too many, cut off")
    return " ".join([*words, *[f"({note})" for note in notes], *["stored"] * stage.stored])


def _has_spare_turn(read, *, back):
    """Whether a pass computes more of the phases of an axis than there are elements."""
    step = getattr(read, "step", None)
    reads = read.sources[0] if step is None else step.transposed if back else step.phases
    ends = zip(read.layout.cuts, reads, strict=bool(read.layout.cuts))
    return any(cuts[-1].stop > max(access.out for access in along) for cuts, along in ends)


def drawn_lines():
    """A problem a line, and a digest for each platform."""
    chance = random.Random(0)
    return [_digests(*drawn_problem(chance)) for _ in range(PROBLEMS)]


def drawn_problem(chance):
    """Arguments of `make_window`, a dtype and whether the array is sharded."""
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
        if chance.random() < 0.3:  # as many bytes as a threshold says
            sizes = [chance.choice((16, 32, 64)) for _ in window]
            batch, row = chance.choice((1, 2, 4)), chance.choice((1, 8, 16))
            strides, padding = [1] * rank, "SAME"
        shape = (batch, *sizes, row) if chance.random() < 0.8 else (batch, row, *sizes)
        first = 1 if shape[-1] == row else 2
        options = {"window_dilation": dilation, "axes": tuple(range(first, first + rank))}
        try:
            make_window(shape, window, strides, padding, **options, empty="allow")
        except ArgumentError:
            continue
        return shape, window, strides, padding, options, dtype, chance.random() < 0.1


def _digests(shape, window, strides, padding, options, dtype, sharded):
    geometry = make_window(shape, window, strides, padding, **options, empty="allow")
    found = []
    for on in PLATFORMS:
        problem = Problem(geometry, shape, dtype, on, sharded)
        sums = [plan_sum(problem, transposed=transposed) for transposed in (False, True)]
        plans = [plan_max(problem), plan_ties(problem), plan_rank(problem), *sums]
        found.append(hashlib.sha256(repr(plans).encode()).hexdigest()[:8])
    words = [*map(str, (shape, window, strides, padding, *options.values())), dtype]
    words += ["sharded"] * sharded
    return " | ".join([" ".join(words).replace(", ", ","), *found])


if __name__ == "__main__":
    DRAWN.write_text("\n".join([*drawn_lines(), ""]))
    PATH.write_text("\n".join([*lines(), ""]))
