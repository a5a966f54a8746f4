"""What is planned, a line for each platform: what is chosen, so that a change shows.

    python -m tests.plan.golden     writes golden.txt and drawn.txt anew

golden.txt has the benchmark cases, and after them, by the name of the op, what is planned for ops that no case has,
where `bench.every_op` calls a public function that uses them. drawn.txt has maxima and sums of windows drawn at
random, on both sides of the thresholds, and what their passes read.

V, F, T and B are the passes to a value alone, to the output and what is kept for its derivative, of a tangent and of a
cotangent. `1,2: 9 bounded /4 stored` is a pass along axes 1 and 2 of 9 terms, read in place, in 4 regions, whose result
is stored; `x4` says that there are 4 phases. `1: 1 repeated` is no pass: windows do not meet along axis 1, so each
element takes its one cotangent as it is. `reduced` are axes that one window covers, and `reduce_window` is lax's. V
and T are left out where they are F.

`{64 2p-1..1 31}` says that of 64 elements along an axis position p of 31 reads those at 2p-1, 2p and 2p+1; a cotangent
goes from p to these. `#0..6 by 3` are the flat taps there, and `each of 3` that an element stands for 3 taps. `;`
is between phases, `x` between axes, `and` between what a sum reads of the pass before and of the one before that. `cut
1 30` is where regions begin.
"""

import itertools
import random
from pathlib import Path

import jax
import jax.numpy as jnp

from bench._jax_peer import jaxpool_op
from bench.cases import CASES, select
from bench.every_op import OPS, SHAPE
from jaxpool._api.plan_of import _kept
from jaxpool._arguments.errors import ArgumentError
from jaxpool._cli._plan import plans_of as plans_of_call
from jaxpool._geometry.window import make_window
from jaxpool._ops.equations import ops_in
from jaxpool._plan.max_pool import Pass, plan_max, plan_scatter, plan_ties, residual, scatters
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.stages import of_steps, of_sums
from jaxpool._plan.sum_pool import SumPass, plan_sum

PATH = Path(__file__).with_name("golden.txt")
DRAWN = Path(__file__).with_name("drawn.txt")
PROBLEMS = 250
NO_PLAN = ("train_step", "maximum", "minimum")


def lines():
    """All lines of golden.txt, sorted by the name of the case, and then of the op."""
    cases = [case for case in CASES if case.op not in NO_PLAN]
    found = [
        line
        for name in sorted(case.name for case in cases)
        for line in _lines(name, plans_of(name))
    ]
    return [*found, *_of_other_ops()]


def _lines(title, plans):
    """A title, and a line for each plan; platforms with the same plan share one."""
    shared = {}
    for on, words in plans.items():
        shared.setdefault(words, []).append(on)
    return [title, *(f"  {' '.join(on):11} {plan}" for plan, on in shared.items())]


def _of_other_ops():
    """The same of each op that no benchmark case has."""
    known = {
        type(each.op)
        for case in select(["small"])
        if case.op not in NO_PLAN
        for each in _ops(jaxpool_op(case), *case.inputs())
    }
    found = set()
    for function in OPS.values():
        for bound in _ops(function, jnp.zeros(SHAPE)):
            if bound.op.is_pool and type(bound.op) not in known:
                types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in bound.types]
                kept = _kept(bound.op, types, bound.outputs[0])
                plans = {on: _plan(kept, bound.op.plan(on, *types)) for on in PLATFORMS}
                title = (
                    f"{type(bound.op).__name__} of {_arrays(types)}, gives {_arrays(bound.outputs)}"
                )
                found.add(tuple(_lines(title, plans)))
    return [line for each in sorted(found) for line in each]


def _ops(function, *xs):
    return ops_in(jax.make_jaxpr(function)(*xs).jaxpr)


def _arrays(types):
    return " ".join(f"{each.dtype}{list(each.shape)}".replace(" ", "") for each in types)


def plans_of(call):
    """A line for each platform: what each pool of a call keeps, and its passes."""
    rows = plans_of_call(call)
    return {on: " || ".join(_plan(row.kept, row.passes[on]) for row in rows) for on in PLATFORMS}


def _plan(kept, plan):
    ways = {"V": plan.value, "F": plan.forward, "T": plan.tangent, "B": plan.backward}
    same = [way for way in "VT" if ways[way] in (None, ways["F"])]
    passes = [
        f"{way} {_passes(stages, back=way == 'B')}"
        for way, stages in ways.items()
        if way not in same
    ]
    return " | ".join([_arrays(kept) or "nothing", *passes, *plan.why])


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


def _reads(stage):
    """What a pass reads along each of its axes, and where it is cut."""
    read, words = stage.read, []
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
    """The phases of an axis; neighbours that read alike are told once."""
    groups = itertools.groupby(_access(each) for each in phases)
    counted = [(text, len([*same])) for text, same in groups]
    return "; ".join(text + f" (of {count})" * (count > 1) for text, count in counted)


def _access(access, *, taps=False):
    offsets, flat = ([each[which] for each in access.pairs] for which in (0, 1))
    numbers = f" #{_numbers(flat)}" * taps
    by = str(access.stride) * (access.stride != 1)
    return f"{access.size} {by}p{_numbers(offsets, sign='+')}{numbers} {access.out}"


def _numbers(numbers, sign=""):
    """Numbers in a row; equal steps as the first, the last and the step."""
    if not numbers:
        return " nothing"
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    first = f"{numbers[0]:{sign}}"
    if len(numbers) == 1 or len(steps) > 1:
        return ",".join([first, *map(str, numbers[1:])])
    (step,) = steps
    return f"{first}..{numbers[-1]}" + f" by {step}" * (step != 1)


def drawn_lines():
    """All lines of drawn.txt: what is planned for each problem, maxima and sums."""
    chance = random.Random(0)
    return [line for _ in range(PROBLEMS) for line in _drawn(*drawn_problem(chance))]


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


def _drawn(shape, window, strides, padding, options, dtype, sharded):
    geometry = make_window(shape, window, strides, padding, **options, empty="allow")
    words = [*map(str, (shape, window, strides, padding, *options.values())), dtype]
    title = " ".join([*words, *["sharded"] * sharded]).replace(", ", ",")
    found = {}  # what each platform does, by the way it is for
    for on in PLATFORMS:
        problem = Problem(geometry, shape, dtype, on, sharded)
        for way, said in [*_of_maxima(problem), *_of_sums(problem)]:
            found.setdefault(way, {})[on] = f"{way} {said}"
    return [title, *[line for plans in found.values() for line in _lines("", plans)[1:]]]


def _of_maxima(problem):
    """F, T and B as above; S where ties share a cotangent, unless it is B; R of a rank, unless it is S."""
    plan, ranked = plan_max(problem), plan_rank(problem)
    ways = {
        "F": _read(of_steps(plan.forward)),
        "T": _read(of_steps(plan.tangent[::-1])),
        "B": _read(of_steps(plan.backward, back=True), back=True),
        "S": _read(of_steps([plan_ties(problem)], back=True), back=True),
        "R": _read(of_steps(ranked.backward, back=True), back=True),
    }
    same = {"T": "F", "S": "B", "R": "S"}
    widened = dict.fromkeys(each.widen for each in (plan, ranked) if each.widen != "never")
    notes = [f"cotangents widened, {', '.join(widened)}"] if widened else []
    notes += ["NaN in a chain of its own"] * (plan.nan == "alone")
    notes += [f"values by reduce_window over {_groups(plan.value_by)}"] * bool(plan.value_by)
    if (
        scatters(problem)
        and residual(problem.window, split=False, platform=problem.platform) == "input"
    ):
        sent = plan_scatter(problem)
        notes += [f"sent by select_and_scatter over {_groups(sent.groups)}, {sent.compared}"]
        notes += [f"transposed by {sent.order}"] * bool(sent.order)
    said = [(way, text) for way, text in ways.items() if text != ways.get(same.get(way))]
    return [(f"max {way}", text) for way, text in said] + [("max:", ", ".join(notes))] * bool(notes)


def _of_sums(problem):
    for way, transposed in (("F", False), ("B", True)):
        yield (
            f"sum {way}",
            _read(of_sums(plan_sum(problem, transposed=transposed)), back=transposed),
        )


def _groups(groups):
    return ", then ".join(",".join(str(dim.axis) for dim in group) for group in groups)


def _passes(stages, *, back=False):
    return ", ".join(_pass(stage, back=back) for stage in stages)


def _read(stages, *, back=False):
    return ", ".join(_pass(stage, back=back) + _reads(stage) for stage in stages)


if __name__ == "__main__":
    DRAWN.write_text("\n".join([*drawn_lines(), ""]))
    PATH.write_text("\n".join([*lines(), ""]))
