"""Golden files of plans, one line per platform, so that a changed choice shows in a diff.

    python -m tests.plan.golden     rewrites golden.txt and drawn.txt

golden.txt has the plans of calls, then those of ops from the calls of `bench.every_op`. Together with drawn.txt, which
`drawn.py` explains, they reach every branch of `jaxpool/_plan`. To add a plan, append its first line to golden.txt.

Each plan starts with the residual. V, F and B are the passes for the value alone, for the output with its residual and
for a cotangent, as `jaxpool.plan_of` reads them from the kernels. V is omitted if it equals F. `1,2: 9 slice` is a pass
along axes 1 and 2 with 9 terms. `[...]` has the number of passes in a loop or a branch, and the first of them. The
layouts of windowed passes are in drawn.txt.
"""

import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from bench.every_op import OPS, SHAPE
from jaxpool._api.kernel_passes import passes_of_op, residual_types
from jaxpool._cli._plan import trace_plans as plans_of_call
from jaxpool._ops.equations import find_op_equations
from jaxpool._plan.problem import PLATFORMS
from tests.plan import drawn

PATH = Path(__file__).with_name("golden.txt")
DIRECTIONS = ("value", "forward", "backward")


def lines():
    """Return all lines of golden.txt: its calls and ops, each with the plans."""
    titles = [line for line in PATH.read_text(encoding="utf-8").splitlines() if line[0] != " "]
    ops = _ops_by_title()
    return [line for title in titles for line in _title_lines(title, ops)]


def _title_lines(title, ops):
    """Return the lines of a call, or of all ops with a title."""
    if title not in ops:
        return [title, *drawn.by_platform(plans_of(title))]
    plans = {tuple(drawn.by_platform(_plans_of_op(*each))) for each in ops[title]}
    return [title, *itertools.chain(*sorted(plans))]


def _ops_by_title():
    """Map title to op and types, for the ops of the calls of `bench.every_op`."""
    found = {}
    for function in OPS.values():
        for each in find_op_equations(jax.make_jaxpr(function)(jnp.zeros(SHAPE)).jaxpr):
            title = f"{type(each.op).__name__} of {_format_types(each.arg_types)}, gives {_format_types(each.outputs)}"
            if each.op.is_pool:
                found.setdefault(title, {})[each.op, each.arg_types] = None
    return found


def _plans_of_op(op, types):
    kept = residual_types(op, types)
    return {
        each: _format_plan(kept, passes_of_op(each, op, types, DIRECTIONS)) for each in PLATFORMS
    }


def _format_types(types):
    return " ".join(f"{each.dtype}{list(each.shape)}".replace(" ", "") for each in types)


def plans_of(call):
    """Map each platform to one line with the residual and the passes of every pool of a call."""
    rows = plans_of_call(call)
    return {
        platform: " || ".join(_format_plan(row.kept, row.passes[platform]) for row in rows)
        for platform in PLATFORMS
    }


def _format_plan(kept, plan):
    ways = {way[0].upper(): _format_passes(getattr(plan, way)) for way in DIRECTIONS}
    told = [f"{way} {words}" for way, words in ways.items() if words]
    told = told[1:] if ways["V"] == ways["F"] else told
    return " | ".join([_format_types(kept) or "nothing", *told])


def _format_passes(passes):
    """Format passes. Passes in a row in the same outermost loop or branch appear once, with their number."""
    words = []
    for where, group in itertools.groupby(passes, lambda each: each.where.partition(", ")[0]):
        texts = [f"{','.join(map(str, one.axes))}: {one.terms} {one.how}" for one in group]
        words += [f"[{len(texts)} {where}: {texts[0]}]"] if where else texts
    return ", ".join(words)


if __name__ == "__main__":
    for module in (drawn, sys.modules[__name__]):
        module.PATH.write_text("\n".join([*module.lines(), ""]), encoding="utf-8")
