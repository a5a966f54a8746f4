"""Alternating timing: a noisy minute affects every framework equally."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Calls n times, waits for each result, and returns the seconds of each call.
TimedCalls = Callable[[int], Sequence[float]]

TURN_S = 0.1
LONG_S = 0.25  # longer calls need no untimed call first
PAUSE_S = 0.002
MAX_CALLS_A_TURN = 25
MIN_SAMPLES = 5
MAX_SAMPLES = 400


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds per call."""

    median: float
    least: float
    most: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def timed_calls(
    call: Callable[[], Any],
    wait: Callable[[Any], Any] = lambda result: result,
    burst: int = 1,
) -> TimedCalls:
    """Time `wait(call())`. A result is freed before the next call, outside the timed region.

    With `burst` above 1, a sample is the mean of `burst` calls followed by one wait.
    """

    def calls(count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            for _ in range(burst - 1):
                call()
            result = wait(call())
            seconds.append((time.perf_counter() - start) / burst)
            del result
        return seconds

    return calls


def take_turns(contenders: Mapping[str, TimedCalls], budget_s: float) -> dict[str, Timing]:
    """Time every contender in rounds until each has used its share of the budget.

    In a round, a contender first pauses, so that threads of the previous framework stop spinning. One untimed
    call brings its data into the cache. Timed calls follow for `TURN_S` seconds. A contender stops after
    `MIN_SAMPLES` samples if its share is used up, and earlier if it has used twice its share.
    """
    share = budget_s / max(len(contenders), 1)
    # The first calls may still allocate or choose an algorithm, so the estimate is the minimum of three calls.
    estimates = {name: _warm_up(calls, share) for name, calls in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    spent = dict.fromkeys(contenders, 0.0)
    collecting = gc.isenabled()
    gc.disable()
    try:
        waiting = list(contenders)
        while waiting:
            for name in waiting:
                start = time.perf_counter()
                _turn(contenders[name], estimates[name], samples[name])
                spent[name] += time.perf_counter() - start
            waiting = [n for n in waiting if not _enough(len(samples[n]), spent[n], share)]
    finally:
        if collecting:
            gc.enable()
    return {name: Timing.of(seconds) for name, seconds in samples.items()}


def _warm_up(calls: TimedCalls, share: float) -> float:
    first = calls(1)[0]
    return first if first > share else min(first, *calls(2))


def _turn(calls: TimedCalls, estimate: float, samples: list[float]) -> None:
    time.sleep(PAUSE_S)
    if estimate < LONG_S:
        calls(1)
    count = min(max(int(TURN_S / max(estimate, 1e-9)), 1), MAX_CALLS_A_TURN)
    samples.extend(calls(count))


def _enough(samples: int, spent: float, share: float) -> bool:
    if samples >= MAX_SAMPLES:
        return True
    return spent >= (share if samples >= MIN_SAMPLES else 2 * share)
