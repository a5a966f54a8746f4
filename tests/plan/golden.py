"""The plans of all benchmark cases, a line a case and platform: what is chosen, so that a change shows.

    python -m tests.plan.golden     writes golden.txt anew

F, T and B are the passes to the output, of a tangent and of a cotangent. `1,2: 9 bounded /4 kept` is a
pass along axes 1 and 2 of 9 terms, read in place, in 4 regions, whose result is kept; `x4` says that
there are 4 phases. T is left out where it is F.
"""

from pathlib import Path

from bench.cases import CASES
from jaxpool._cli._case import read_case
from jaxpool._cli._explain import explain
from jaxpool._plan.problem import PLATFORMS

PATH = Path(__file__).with_name("golden.txt")
NO_PLAN = ("train_step", "maximum", "minimum")


def lines():
    """All lines, sorted by the name of the case; platforms with the same plan share one."""
    found = []
    for name in sorted(case.name for case in CASES if case.op not in NO_PLAN):
        case, plans = read_case(name), {}
        for on in PLATFORMS:
            plans.setdefault(_plan(explain(case, on)), []).append(on)
        found.append(name)
        found += [f"  {' '.join(on):11} {plan}" for plan, on in plans.items()]
    return found


def _plan(found):
    ways = {"F": found.forward, "T": found.tangent, "B": found.backward}
    if ways["T"] == ways["F"]:
        del ways["T"]
    passes = [f"{way} {', '.join(map(_pass, stages))}" for way, stages in ways.items()]
    return " | ".join([found.keeps, *passes, *found.why])


def _pass(stage):
    words = [f"{','.join(map(str, stage.axes))}:", str(stage.terms)]
    words += [f"x{stage.phases}"] * (stage.phases > 1) + [stage.reading]
    words += [f"/{stage.regions}"] * (stage.regions > 1)
    return " ".join([*words, *[f"({note})" for note in stage.notes], *["kept"] * stage.kept])


if __name__ == "__main__":
    PATH.write_text("\n".join([*lines(), ""]))
