"""Text of the passes of windowed plans in `drawn.txt`, with one line per distinct plan."""

import math

from jaxpool._geometry.access import max_elements_per_position
from jaxpool._geometry.window import Window


def by_platform(plans):
    """Return one line per plan. Platforms with equal plans share a line."""
    shared = {}
    for platform, words in plans.items():
        shared.setdefault(words, []).append(platform)
    return [f"  {' '.join(platform):11} {plan}" for plan, platform in shared.items()]


def of_steps(passes, *, back=False):
    """Return text and plan of each pass of a selection, or with `back` of its transpose."""
    return [
        (
            _of_layout(
                one.step.axes, [one.step.transposed if back else one.step.phases], one, passes
            ),
            one,
        )
        for one in passes
    ]


def of_sums(plan):
    """Return text and plan of each pass of a sum or of its transpose."""
    found = []
    if plan.whole:
        whole = Window(plan.whole)
        found.append(
            _words(whole.axes, 1, "repeated")
            if plan.transposed
            else _words(whole.axes, whole.size, "reduced")
        )
    found += [
        _words(group.axes, group.size, "reduce_window") for group in map(Window, plan.reduced)
    ]
    found += [_words([dim.axis], 1, "repeated") for dim in plan.separate]
    passes = [(_of_layout(one.axes, one.sources, one, plan.passes), one) for one in plan.passes]
    return [*((words, None) for words in found), *passes]


def _words(axes, count, how):
    return f"{','.join(map(str, axes))}: {count} {how}"


def _of_layout(axes, sources, one, passes):
    layout, phases = one.layout, math.prod(map(len, sources[0]))
    count = sum(math.prod(map(max_elements_per_position, source)) for source in sources)
    words = [_words(axes, f"{count} x{phases}" if phases > 1 else count, layout.reading)]
    words += [f"/{layout.regions}"] * (layout.regions > 1)
    words += ["(phases of the minor axis joined last)"] * (layout.minor_last and phases > 1)
    words += ["(a turn of phases too many, cut off)"] * _has_spare_turn(layout, sources[0])
    words += ["stored"] * (one is not passes[-1] or layout.reading == "tables")
    return " ".join(words)


def _has_spare_turn(layout, reads):
    """Return True if a pass computes more positions of a phase than exist, and cuts off the rest."""
    ends = zip(layout.cuts, reads, strict=bool(layout.cuts))
    return any(cuts[-1].stop > max(access.out for access in along) for cuts, along in ends)
