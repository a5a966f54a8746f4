"""Text of the passes of windowed plans in `drawn.txt`, with one line per distinct plan."""

import math

from jaxpool._geometry.window import Window, max_elements_per_position


def by_platform(plans):
    """Return one line per plan. Platforms with equal plans share a line."""
    shared = {}
    for platform, words in plans.items():
        shared.setdefault(words, []).append(platform)
    return [f"  {' '.join(platform):11} {plan}" for plan, platform in shared.items()]


def format_steps(passes, *, back=False):
    """Return text and plan of each pass of a selection, or with `back` of its transpose."""
    return [
        (
            _format_layout(
                one.step.axes,
                [one.step.transposed_phases if back else one.step.phases],
                one,
                passes,
            ),
            one,
        )
        for one in passes
    ]


def format_sums(plan):
    """Return text and plan of each pass of a sum or of its transpose."""
    found = []
    if plan.global_dims:
        whole = Window(plan.global_dims)
        found.append(
            _format_terms(whole.axes, 1, "repeated")
            if plan.is_transposed
            else _format_terms(whole.axes, whole.size, "reduced")
        )
    found += [
        _format_terms(group.axes, group.size, "reduce_window")
        for group in map(Window, plan.reduce_window_groups)
    ]
    found += [_format_terms([dim.axis], 1, "repeated") for dim in plan.disjoint_dims]
    passes = [(_format_layout(one.axes, one.sources, one, plan.passes), one) for one in plan.passes]
    return [*((words, None) for words in found), *passes]


def _format_terms(axes, count, how):
    return f"{','.join(map(str, axes))}: {count} {how}"


def _format_layout(axes, sources, one, passes):
    layout, phases = one.layout, math.prod(map(len, sources[0]))
    count = sum(math.prod(map(max_elements_per_position, source)) for source in sources)
    words = [_format_terms(axes, f"{count} x{phases}" if phases > 1 else count, layout.read_mode)]
    words += [f"/{layout.num_regions}"] * (layout.num_regions > 1)
    words += ["(strided slices)"] * layout.splits_last_axis
    joins_last = layout.minor_axis_last and not layout.splits_last_axis
    words += ["(phases of the minor axis joined last)"] * (joins_last and phases > 1)
    words += ["(a turn of phases too many, cut off)"] * _has_extra_position(layout, sources[0])
    words += ["stored"] * (one is not passes[-1] or layout.read_mode == "tables")
    return " ".join(words)


def _has_extra_position(layout, reads):
    """Return True if a pass computes more positions of a phase than exist, and cuts off the rest."""
    ends = zip(layout.axis_regions, reads, strict=bool(layout.axis_regions))
    return any(cuts[-1].stop > max(access.out for access in along) for cuts, along in ends)
