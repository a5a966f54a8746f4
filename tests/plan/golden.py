"""Golden files of plans, one line per platform, so that a changed choice shows in a diff.

    python -m tests.plan.golden     rewrites golden.txt and drawn.txt

golden.txt has the plans of calls, then those of ops from the calls of `bench.every_op`. Together with drawn.txt, which
`drawn.py` explains, they reach every branch of `jaxpool/_plan`. To add a plan, append its first line to golden.txt.

Each plan starts with the residual. V, F, T and B are the passes for the value alone, for the output with its residual,
for a tangent and for a cotangent. V and T are omitted if they equal F. `1,2: 9 bounded /4 stored` is a pass along axes
1 and 2 with 9 terms, in 4 regions, whose result is stored. Elements outside the array are filled in before reading
(`padded`) or term by term (`bounded`); with `tables`, index tables hold the position of each term. `x4` means 4 phases,
with at most that number of terms. `1: 1 repeated` is not a pass: windows along axis 1 are disjoint, and each element
receives one cotangent unchanged. `reduced` axes are covered by one window, and `reduce_window` is lax's.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from bench.every_op import OPS, SHAPE
from jaxpool._api.plan_of import _kept
from jaxpool._cli._plan import plans_of as plans_of_call
from jaxpool._ops.equations import ops_in
from jaxpool._plan.problem import PLATFORMS
from tests.plan import drawn
from tests.plan.words import by_platform, passes

PATH = Path(__file__).with_name("golden.txt")


def lines():
    """Return all lines of golden.txt: its calls and ops, each with the plans."""
    titles = [line for line in PATH.read_text().splitlines() if line[0] != " "]
    ops = _plans_of_ops()
    return [
        line
        for title in titles
        for plans in ([title], *sorted(ops.get(title) or [by_platform(plans_of(title))]))
        for line in plans
    ]


def _plans_of_ops():
    """Map each op of the calls of `bench.every_op`, with the types of its arrays, to its plans."""
    found = {}
    for function in OPS.values():
        for bound in _ops(function, jnp.zeros(SHAPE)):
            if bound.op.is_pool:
                types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in bound.types]
                title = (
                    f"{type(bound.op).__name__} of {_arrays(types)}, gives {_arrays(bound.outputs)}"
                )
                kept = _kept(bound.op, types, bound.outputs[0])
                plans = {
                    platform: _plan(kept, bound.op.plan(platform, *types)) for platform in PLATFORMS
                }
                found.setdefault(title, set()).add(tuple(by_platform(plans)))
    return found


def _ops(function, *xs):
    return ops_in(jax.make_jaxpr(function)(*xs).jaxpr)


def _arrays(types):
    return " ".join(f"{each.dtype}{list(each.shape)}".replace(" ", "") for each in types)


def plans_of(call):
    """Map each platform to one line with the residual and the passes of every pool of a call."""
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
