"""The conditions of a run: memory, threads, machine and versions. Imports no framework."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import runpy
import sys
from pathlib import Path
from typing import Any

# glibc's defaults, after keep_memory(), or with GLIBC_TUNABLES: the last two reuse freed memory without page faults.
MEMORY = ("default", "kept", "environment")
_TUNABLES = "GLIBC_TUNABLES"
# Huge pages, and freed memory stays with the process: almost no page faults are left.
_KEPT = {
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.arena_max": "1",  # arenas other than the main one are limited to 64 MB
    "glibc.malloc.mmap_max": "0",
    "glibc.malloc.trim_threshold": "68719476736",
    "glibc.malloc.top_pad": "268435456",
}
_CALLED = "JAXPOOL_BENCH_KEEP_MEMORY"


def memory() -> str:
    """The member of `MEMORY` under which this process was started."""
    if {f"{k}={v}" for k, v in _KEPT.items()} <= set(_tunables()):
        return "environment"
    return "kept" if _CALLED in os.environ else "default"


def settle_memory(wanted: str) -> None:
    """Restart this command if the environment differs. glibc reads the environment only at start."""
    if wanted == memory():
        return
    tunables = [t for t in _tunables() if t.partition("=")[0] not in _KEPT]
    if wanted == "environment":
        tunables += [f"{k}={v}" for k, v in _KEPT.items()]
    environment = {k: v for k, v in os.environ.items() if k not in (_CALLED, _TUNABLES)}
    if tunables:
        environment[_TUNABLES] = ":".join(tunables)
    if wanted == "kept":
        environment[_CALLED] = "1"
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def keep_memory() -> None:
    """Call `jaxpool.keep_memory` if `memory()` is "kept". Imports no jax: the TensorFlow process has none."""
    if memory() != "kept":
        return
    source = Path(__file__).parents[1] / "jaxpool" / "_api" / "memory.py"
    if not runpy.run_path(str(source))["keep_memory"]():
        sys.exit("memory cannot be kept here: see the docstring of jaxpool.keep_memory")


def _tunables() -> list[str]:
    return [t for t in os.environ.get(_TUNABLES, "").split(":") if t]


def limit_cores(threads: int) -> None:
    """Restrict the process and its children to one core per thread.

    XLA has no setting for its number of threads: it counts the cores that the process may run on.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def describe(device: str, threads: int, budget_s: float) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "threads": threads,
        "memory": memory(),
        "budget_s": budget_s,
        "load": round(os.getloadavg()[0], 1),  # of the last minute: near 0 on a quiet machine
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "transparent_huge_pages": _transparent_huge_pages(),
        },
        "versions": {"python": platform.python_version()} | _installed(),
    }


def _installed() -> dict[str, str]:
    """The versions of the libraries that take part, as far as they are installed."""
    versions = {}
    for name in ("jaxpool", "jax", "torch", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _transparent_huge_pages() -> str | None:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return None
    return path.read_text(encoding="utf-8").partition("[")[2].partition("]")[0]
