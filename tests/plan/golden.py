"""What is planned, a line for each platform: what is chosen, so that a change shows.

    python -m tests.plan.golden     writes golden.txt and drawn.txt anew

golden.txt has the benchmark cases, and after them, by the name of the op, what is planned for ops that no case has,
where `bench.every_op` calls a public function that uses them. `drawn.py` explains drawn.txt.

V, F, T and B are the passes to a value alone, to the output and what is kept for its derivative, of a tangent and of
a cotangent. V and T are left out where they are F. `1,2: 9 bounded /4 stored` is a pass along axes 1 and 2 of 9
terms, in 4 regions, whose result is stored. What is missing around an array is filled in before it is read if
`padded`, term by term if `bounded`; `tables` say where each term is. `x4` says that there are 4 phases, of at most so
many terms. `1: 1 repeated` is no pass: windows do not meet along axis 1, so each element takes its one cotangent as
it is. `reduced` are axes that one window covers, and `reduce_window` is lax's.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from bench._jax_peer import jaxpool_op
from bench.cases import CASES, select
from bench.every_op import OPS, SHAPE
from jaxpool._api.plan_of import _kept
from jaxpool._cli._plan import plans_of as plans_of_call
from jaxpool._ops.equations import ops_in
from jaxpool._plan.problem import PLATFORMS
from tests.plan import drawn
from tests.plan.words import by_platform, passes

PATH = Path(__file__).with_name("golden.txt")
NO_PLAN = ("train_step", "maximum", "minimum")


def lines():
    """All lines of golden.txt, sorted by the name of the case, and then of the op."""
    cases = [case for case in CASES if case.op not in NO_PLAN]
    found = [
        line
        for name in sorted(case.name for case in cases)
        for line in [name, *by_platform(plans_of(name))]
    ]
    return [*found, *_of_other_ops()]


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
                plans = {
                    platform: _plan(kept, bound.op.plan(platform, *types)) for platform in PLATFORMS
                }
                title = (
                    f"{type(bound.op).__name__} of {_arrays(types)}, gives {_arrays(bound.outputs)}"
                )
                found.add((title, *by_platform(plans)))
    return [line for each in sorted(found) for line in each]


def _ops(function, *xs):
    return ops_in(jax.make_jaxpr(function)(*xs).jaxpr)


def _arrays(types):
    return " ".join(f"{each.dtype}{list(each.shape)}".replace(" ", "") for each in types)


def plans_of(call):
    """A line for each platform: what each pool of a call keeps, and its passes."""
    rows = plans_of_call(call)
    return {
        platform: " || ".join(_plan(row.kept, row.passes[platform]) for row in rows)
        for platform in PLATFORMS
    }


def _plan(kept, plan):
    ways = {"V": plan.value, "F": plan.forward, "T": plan.tangent, "B": plan.backward}
    same = [way for way in "VT" if ways[way] in (None, ways["F"])]
    told = [
        f"{way} {passes(stages, back=way == 'B')}"
        for way, stages in ways.items()
        if way not in same
    ]
    return " | ".join([_arrays(kept) or "nothing", *told, *plan.why])


if __name__ == "__main__":
    for module in (drawn, sys.modules[__name__]):
        module.PATH.write_text("\n".join([*module.lines(), ""]))
