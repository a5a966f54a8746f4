"""`python -m bench --against REVISION`: time the library of a git revision against the working tree.

Calls of both versions alternate in one process, so that noise of the machine affects both equally.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import report
from bench._case import TRAIN_STEP, Case, Mode
from bench._jax_peer import JaxPeer, jaxpool_op
from bench.run import Prepared, Work, run_cases

ROOT = Path(__file__).parents[1]

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


def compare(revision: str, cases: Sequence[Case], mode: Mode, device: Any, budget_s: float) -> int:
    """Print the costs of both versions for each case, and the speedups over the revision."""
    command = ["git", "archive", revision, "jaxpool"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        print(archive.stderr.decode().strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        libraries = {"new": library_at(ROOT), "old": library_at(Path(folder))}
        _compare(libraries, cases, mode, device, budget_s)
    return 0


def _compare(
    libraries: dict[str, Library], cases: Sequence[Case], mode: Mode, device: Any, budget_s: float
) -> None:
    """Train steps are also timed with the pools of lax under `jaxpool.accelerate`."""
    steps = [case for case in cases if case.op == TRAIN_STEP]
    for way, chosen in (("jaxpool", cases), ("accelerate", steps)):
        peers = [Version(name, library, way, device) for name, library in libraries.items()]
        results = run_cases(chosen, mode, peers, budget_s, device)
        if results:
            print(f"{mode}, {way}: {report.summary(results, 'old', 'new')}")
