"""What plans say, as data and in words, for `info`: of one case, and of every public function."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxpool._cli._case import read_case
from jaxpool._cli._explain import FAMILIES, deciding, explain
from jaxpool._cli._stage import Stage
from jaxpool._plan.problem import PLATFORMS, Platform, Shape

DIRECTIONS = ("forward", "tangent", "backward")
READINGS = {  # of each pass, how its terms are read, and why one reads so
    "padded": ("from a padded copy", "padded once, then each term is a plain slice"),
    "bounded": ("in place", "no copy, but bounds to test in the loop"),
    "tables": ("through tables", "one loop for all elements, each term looked up"),
    "reduced": ("as a reduction", "one window covers these axes"),
    "reduce_window": ("by lax.reduce_window", "one instruction of XLA reads the array once"),
    "blocks": ("as blocks of a grid", "windows of unequal length, one filled up beside the other"),
    "copied": ("laid side by side", "each window gets its own copy of its elements"),
    "walked": ("tap by tap", "a loop that the program holds once, however large the window"),
    "repeated": ("repeated", "each element lies in one window"),
    "gathered": ("gathered", "where each lies, a table or an index says"),
    "scattered": ("scattered", "where each goes, an index says"),
    "multiplied": ("as matrix products", "a matrix a box says how much each pixel weighs"),
    "compared": ("compared with positions", "each pixel adds up the cells that chose it"),
    "ordered": ("sorted", "which elements come first, all of them decide"),
    "sorted": ("sorted and added in pairs", "added in an order that the ids alone decide"),
    "folded": ("folded by halves", "joined by more than a maximum or a sum"),
    "running": ("stretch by stretch", "each pass sees so many times as far along the axis"),
    "elementwise": ("element by element", "only elements at one position meet"),
}
KEPT = {
    "nothing": "nothing: it is linear",
    "tap": "which tap each window chose, an integer an output",
    "bits": "a bit for each tap of each window, set where it ties",
    "arrays": "its input and output: less than a bit a tap",
    "rank": "which element was chosen, an integer an output",
    "element bits": "a bit for each element, set where it ties",
    "position": "the position of each chosen element, an integer an output",
    "operand": "which array was chosen, an integer an output",
    "operand bits": "a bit for each array, set where it ties",
    "counts": "how many rows each segment has, an integer each",
    "both": "its input and output",
    "input": "its input: all else is computed again, and jax differentiates it",
}
KEPT_BY = {
    "barrier": "behind an optimization barrier",
    "conditional": "in a branch of a conditional: XLA for CPU drops barriers before it fuses",
}
FORMS = {key: how for key, (how, _) in READINGS.items()} | {"regions": "in regions"}
SAMPLES = {
    name: [f"{name} {text}" for text in family.samples]
    for family in FAMILIES
    for name in family.functions
}
SAMPLES["maxout"] = SAMPLES["max"]
SAMPLES["max_blur_pool"] = [
    *[text for text in SAMPLES["max_pool"] if "ties" not in text],  # it takes the first
    *SAMPLES["blur_pool"],
]
SAMPLES["spatial_pyramid_pool"] = (
    SAMPLES["adaptive_max_pool"][:3] + SAMPLES["adaptive_avg_pool"][:3]
)


def of_case(text: str) -> dict[str, Any]:
    """The plans of the case that `text` names."""
    case = read_case(text)
    plans = {
        on: dataclasses.asdict(explain(case, on)) | {"decided_by": deciding(case, on)}
        for on in PLATFORMS
    }
    sizes = {"shape": case.shape, "output_shape": case.output_shape}
    return {"function": case.function, "dtype": case.dtype, **sizes, "plans": _together(plans)}


def of_function(name: str) -> dict[str, Any]:
    """What is kept for the derivative of a public function, and how its passes may read, as samples show.

    Nothing of a function that no family explains.
    """
    samples = [read_case(text) for text in SAMPLES.get(name, ())]
    found = [[explain(case, on) for case in samples] for on in PLATFORMS]
    plans = {
        on: {
            direction: _distinct(_forms(getattr(each, direction)) for each in explanations)
            for direction in DIRECTIONS
        }
        for on, explanations in zip(PLATFORMS, found, strict=True)
    }
    return {"keeps": _distinct([each.keeps] for each in found[0]), "plans": _together(plans)}


def _forms(stages: Sequence[Stage]) -> Iterator[str]:
    for stage in stages:
        yield stage.reading
        yield from ["regions"] * (stage.regions > 1)


def _distinct(groups: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(one for group in groups for one in group))


def _together(plans: dict[Platform, dict[str, Any]]) -> list[dict[str, Any]]:
    """Plans and their platforms, those that are the same once."""
    found: list[dict[str, Any]] = []
    for on, plan in plans.items():
        same = [other for other in found if other | plan == other]
        if same:
            same[0]["platforms"].append(on)
        else:
            found.append({"platforms": [on], **plan})
    return found


def case_in_words(found: dict[str, Any]) -> Iterator[str]:
    """The lines that say what `of_case` found."""
    shapes = [_by(found[key]) for key in ("shape", "output_shape")]
    yield f"{found['function']}, {found['dtype']}, {shapes[0]} to {shapes[1]}"
    for plan in found["plans"]:
        yield ""
        yield platforms(plan)
        yield _line("keeps", KEPT[plan["keeps"]])
        for direction in DIRECTIONS:
            said = [_pass(stage) for stage in plan[direction]] or ["differentiated by jax"]
            if direction == "tangent" and plan[direction] == plan["forward"]:
                said = ["as forward"]
            decided = [f"{field}={value}" for field, value in plan["decided_by"][direction].items()]
            if decided and said != ["as forward"]:
                said.append(f"decided by {', '.join(decided)}")
            for title, line in zip([direction, *[""] * len(said)], said, strict=False):
                yield _line(title, line)
        if any(stage["kept"] for direction in DIRECTIONS for stage in plan[direction]):
            yield _line("kept", KEPT_BY[plan["kept_by"]])
        for line in plan["why"]:
            yield _line("why", line)


def functions_in_words(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The lines that say what `of_function` found of each, those of functions that are alike once."""
    alike: dict[tuple[str, ...], list[str]] = {}
    kept = {key: re.split("[,:]", text)[0] for key, text in KEPT.items()}
    for name, said in found.items():
        lines = [_line("derivative", said["derivatives"])]
        lines += [_line("keeps", _or(said["keeps"], kept))] if said["keeps"] else []
        for plan in said["plans"]:
            ways = [
                f"{way} {_or(plan[way], FORMS)}" for way in ("forward", "backward") if plan[way]
            ]
            lines += [_line(platforms(plan), "; ".join(ways))] if ways else []
        alike.setdefault(tuple(lines), []).append(name)
    yield "functions: what is kept for the derivative, and how passes may read; see --plan CASE"
    for said_of_all, names in alike.items():
        yield f"  {', '.join(names)}"
        yield from (f"  {line}" for line in said_of_all)


def _or(keys: Sequence[str], words: dict[str, str]) -> str:
    return ", ".join(words[key] for key in keys)


def _by(shape: Shape) -> str:
    return "x".join("?" if size is None else str(size) for size in shape)


def platforms(plan: dict[str, Any]) -> str:
    """The platforms of a plan."""
    return (
        "everywhere"
        if len(plan["platforms"]) == len(PLATFORMS)
        else " and ".join(plan["platforms"])
    )


def _line(title: str, text: str) -> str:
    return f"  {title:12}{text}"


def _pass(stage: dict[str, Any]) -> str:
    how, because = READINGS[stage["reading"]]
    many = [(stage["terms"], "term"), (stage["phases"], "phase"), (stage["regions"], "region")]
    counts = [f"{n} {what}{'s' * (n > 1)}" for n, what in many if n > 1 or what == "term"]
    axes = f"axes {' '.join(map(str, stage['axes']))}: " if stage["axes"] else ""
    more = [*stage["notes"], *["kept"] * stage["kept"]]
    return f"{axes}{', '.join([*counts, how, *more])} ({because})"
