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


def burst(device: str) -> int:
    """Calls per wait. One wait covers several calls on accelerators, to hide the launch time."""
    return 1 if device == "cpu" else 10


def timed_calls(
    call: Callable[[], Any],
    wait: Callable[[Any], Any] = lambda result: None,
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
            result = call()
            wait(result)
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
    # The first call may still allocate or choose an algorithm.
    least = {name: calls(1)[0] for name, calls in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    spent = dict.fromkeys(contenders, 0.0)
    waiting = list(contenders)
    gc.disable()
    try:
        while waiting:
            for name in waiting:
                start = time.perf_counter()
                time.sleep(PAUSE_S)
                if least[name] < LONG_S:
                    contenders[name](1)
                count = min(max(int(TURN_S / max(least[name], 1e-9)), 1), MAX_CALLS_A_TURN)
                samples[name] += contenders[name](count)
                least[name] = min(samples[name])
                spent[name] += time.perf_counter() - start
            waiting = [name for name in waiting if not _enough(samples[name], spent[name], share)]
    finally:
        gc.enable()
    return {name: Timing.of(seconds) for name, seconds in samples.items()}


def _enough(samples: Sequence[float], spent: float, share: float) -> bool:
    if len(samples) >= MAX_SAMPLES:
        return True
    return spent >= (share if len(samples) >= MIN_SAMPLES else 2 * share)
