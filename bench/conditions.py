"""The conditions of a run: huge pages, threads, machine and versions. Imports no framework."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path
from typing import Any

_TUNABLES = "GLIBC_TUNABLES"
_KEPT = {  # huge pages, and memory that is freed stays with the process: hardly a page fault is left
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.arena_max": "1",  # other arenas than the main one hand out no more than 64 MB
    "glibc.malloc.mmap_max": "0",
    "glibc.malloc.trim_threshold": "68719476736",
    "glibc.malloc.top_pad": "268435456",
}
_CPU = Path("/sys/devices/system/cpu/cpu0/cache")


def huge_pages() -> bool:
    """Whether this process was started with glibc asking for huge pages and keeping what is freed."""
    return {f"{k}={v}" for k, v in _KEPT.items()} <= set(_tunables())


def restart_with_huge_pages(wanted: bool) -> None:
    """Starts this very command again in its place if the setting differs: glibc reads it once."""
    if wanted == huge_pages():
        return
    tunables = [t for t in _tunables() if t.partition("=")[0] not in _KEPT]
    if wanted:
        tunables += [f"{k}={v}" for k, v in _KEPT.items()]
    os.execve(
        sys.executable,
        [sys.executable, *sys.orig_argv[1:]],
        {**os.environ, _TUNABLES: ":".join(tunables)},
    )


def _tunables() -> list[str]:
    return [t for t in os.environ.get(_TUNABLES, "").split(":") if t]


def limit_cores(threads: int) -> None:
    """Keeps the process and its children on as many cores as a framework may use threads.

    XLA has no setting for the number of its threads, but looks at the cores it may run on.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def describe(device: str, threads: int, budget_s: float) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "threads": threads,
        "huge_pages": huge_pages(),
        "budget_s": budget_s,
        "load": _load(),
        "machine": {
            "system": platform.system(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "cache_bytes": last_level_cache_bytes(),
            "transparent_huge_pages": _transparent_huge_pages(),
        },
        "versions": {"python": platform.python_version()},
    }


def last_level_cache_bytes() -> int | None:
    sizes = [path.read_text().strip() for path in _CPU.glob("index*/size")]
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size), default=None)


def _load() -> float | None:
    """How many processes wanted a core in the last minute: near 0 on a quiet machine."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _transparent_huge_pages() -> str | None:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0]
