"""Compare cases of this library: the cost of channels first, 16-bit floats and large windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from bench._case import TRAIN_STEP, Case
from bench.results import CaseResult


@dataclasses.dataclass(frozen=True)
class Twin:
    """A case, its reference case, the ratio of their times, and the largest allowed ratio."""

    case: str
    other: str
    ratio: float
    limit: float


def twins(results: Sequence[CaseResult], peer: str) -> Iterator[Twin]:
    by_case = {_plain(result.case): result for result in results}
    for result in results:
        for other, limit in _others(result.case):
            reference = by_case.get(_plain(other))
            ours, base = result.median(peer), reference.median(peer) if reference else None
            if ours and base:
                yield Twin(result.case.name, other.name, ours / base, limit)


def _others(case: Case) -> Iterator[tuple[Case, float]]:
    if case.op == TRAIN_STEP:
        return
    if case.channels_first:
        shape = (case.shape[0], *case.shape[2:], case.shape[1])
        axes = tuple(axis - 1 for axis in case.axes)
        yield dataclasses.replace(case, shape=shape, axes=axes), 1.5
    if case.dtype in ("bfloat16", "float16"):
        yield dataclasses.replace(case, dtype="float32"), 1.0
    if "large_window" in case.tags and case.window[0] > 3:
        yield dataclasses.replace(case, window=(3,) * len(case.window)), 8.0


def _plain(case: Case) -> Case:
    return dataclasses.replace(case, tags=frozenset())
