"""Text of passes in `golden.txt` and `drawn.txt`, with one line per distinct plan."""


def by_platform(plans):
    """Return one line per plan. Platforms with equal plans share a line."""
    shared = {}
    for platform, words in plans.items():
        shared.setdefault(words, []).append(platform)
    return [f"  {' '.join(platform):11} {plan}" for plan, platform in shared.items()]


def passes(stages, *, back=False):
    return ", ".join(a_pass(stage, back=back) for stage in stages)


def a_pass(stage, *, back):
    words = [f"{','.join(map(str, stage.axes))}:", str(stage.terms)]
    words += [f"x{stage.phases}"] * (stage.phases > 1) + [stage.how]
    words += [f"/{stage.regions}"] * (stage.regions > 1)
    notes = [stage.note] if stage.note else []
    layout = getattr(stage.read, "layout", None)
    if layout is not None and layout.minor_last and stage.phases > 1:
        notes.append("phases of the minor axis joined last")
    if layout is not None and _has_spare_turn(stage.read, back=back):
        notes.append("a turn of phases too many, cut off")
    return " ".join([*words, *[f"({note})" for note in notes], *["stored"] * stage.stored])


def _has_spare_turn(read, *, back):
    """Return True if a pass computes more positions of a phase than exist, and cuts off the rest."""
    step = getattr(read, "step", None)
    reads = read.sources[0] if step is None else step.transposed if back else step.phases
    ends = zip(read.layout.cuts, reads, strict=bool(read.layout.cuts))
    return any(cuts[-1].stop > max(access.out for access in along) for cuts, along in ends)
