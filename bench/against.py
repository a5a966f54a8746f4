"""`python -m bench --against REVISION`: time the library of a git revision against the working tree.

Calls of both versions alternate in one process, so that noise of the machine affects both equally.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bench._case import TRAIN_STEP, Case, Mode
from bench._jax_peer import JaxPeer, jaxpool_op
from bench.results import Row
from bench.run import Prepared, Work, run_case

ROOT = Path(__file__).parents[1]
SLOW = 0.9  # of the old speed: slower cases are listed at the end

Library = dict[str, ModuleType]


@contextlib.contextmanager
def _in_place(library: Library) -> Iterator[None]:
    """Context manager: inside, `import jaxpool` returns these modules."""
    before = _loaded()
    _swap(library)
    try:
        yield
    finally:
        _swap(before)


def _loaded() -> Library:
    return {name: m for name, m in sys.modules.items() if name.partition(".")[0] == "jaxpool"}


def _swap(library: Library) -> None:
    for name in _loaded():
        del sys.modules[name]
    sys.modules.update(library)


def library_at(folder: Path) -> Library:
    """Import the library in `folder`, separately from any other version."""
    with _in_place({}):
        sys.path.insert(0, str(folder))
        try:
            importlib.import_module("jaxpool")
        finally:
            sys.path.remove(str(folder))
        return _loaded()


class Version:
    """One version of the library, as a peer."""

    def __init__(self, name: str, library: Library, implementation: str, device: Any) -> None:
        self.name, self._library = name, library
        self._peer = JaxPeer(implementation, jaxpool_op, device)

    def prepare(self, work: Work) -> Prepared:
        with _in_place(self._library):
            return self._peer.prepare(work)


def compare(
    revision: str, cases: Sequence[Case], modes: Sequence[Mode], device: Any, budget_s: float
) -> int:
    """Print for each case the speedup over the revision, and the costs of both versions."""
    command = ["git", "archive", revision, "jaxpool"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        print(archive.stderr.decode().strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        libraries = {"old": library_at(Path(folder)), "new": library_at(ROOT)}
        for mode in modes:
            _compare(libraries, cases, mode, device, budget_s)
    return 0


def _compare(
    libraries: dict[str, Library], cases: Sequence[Case], mode: Mode, device: Any, budget_s: float
) -> None:
    print(f"{mode}: speed; old and new, each ms, s to compile, MB of results and temporaries")
    speeds, compiled = {}, []
    ways = {True: ("jaxpool", "accelerate"), False: ("jaxpool",)}
    jobs = [(c, way) for c in cases if mode in c.modes for way in ways[c.op == TRAIN_STEP]]
    for case, way in jobs:
        peers = [Version(name, library, way, device) for name, library in libraries.items()]
        old, new = run_case(case, mode, peers, budget_s).peers.values()
        name = case.name + f" ({way})" * (case.op == TRAIN_STEP)
        if not (old.timing and new.timing):
            print(f"    - {name}: {old.why_not or new.why_not}")
            continue
        speeds[name] = old.timing.median / new.timing.median
        compiled.append((old.compile_s or 0) / (new.compile_s or 1))
        wrong = " WRONG" * new.wrong
        print(f"{speeds[name]:5.2f} {_row(old)} {_row(new)}  {name}{wrong}", flush=True)
    if speeds:
        means = [statistics.geometric_mean(each) for each in (speeds.values(), compiled)]
        slow = [f"  {speed:.2f} {name}" for name, speed in speeds.items() if speed < SLOW]
        print(f"geometric mean {means[0]:.2f}, of compiling {means[1]:.2f}; below {SLOW}:")
        print(*slow or ["  none"], sep="\n")


def _row(row: Row) -> str:
    seconds = row.timing.median if row.timing else 0.0
    return f"{seconds * 1e3:9.2f} {row.compile_s or 0:5.2f} {(row.peak_bytes or 0) / 1e6:6.1f}"
