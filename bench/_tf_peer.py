"""The TensorFlow peer, which runs in a virtual environment and process of its own: `bench._tf_worker`."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.results import Row
from bench.run import Device, Prepared, Unsupported, Work

PYTHON_VARIABLE = "JAXPOOL_BENCH_TF_PYTHON"

_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Pools of arrays with channels first need oneDNN, which TensorFlow does not use by default on older CPUs.
    "TF_ENABLE_ONEDNN_OPTS": "1",
}


class TensorFlowPeer:
    name = "tensorflow"

    def __init__(self, device: Device, threads: int, python: str | None) -> None:
        self._device = device
        self._threads = threads
        self._python = python or os.environ.get(PYTHON_VARIABLE)
        self._process: subprocess.Popen[bytes] | None = None

    def version(self) -> str | None:
        try:
            return str(self._ask("version"))
        except (Unsupported, RuntimeError):
            return None

    def prepare(self, work: Work) -> Prepared:
        compile_s, *results, counts = self._ask("prepare", work.case, work.xs, work.dy)
        checked = work.reference.check(*results, count_include_pad=counts)
        return lambda count: self._ask("time", count), Row(compile_s=compile_s, **checked)

    def _ask(self, *request: Any) -> Any:
        if self._device != "cpu":
            raise Unsupported("TensorFlow takes part on the CPU only")
        if not self._python:
            raise Unsupported(f"no TensorFlow: set {PYTHON_VARIABLE} to a Python that has it")
        if self._process is None:
            self._start()
        try:
            self._connection.send(request)
            answer = self._connection.recv()
        except (OSError, EOFError) as error:
            process, self._process = self._process, None  # the next case starts another
            raise RuntimeError(f"the TensorFlow process ended with {process.wait()}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> None:
        """Start the process. It ends when this end of the connection closes."""
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [self._python, "-m", "bench._tf_worker", str(theirs.fileno()), str(self._threads)],
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[1],
                env={**os.environ, **_ENVIRONMENT},
            )
        weakref.finalize(self, _end, self._connection, self._process)


def _end(connection: Connection, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    process.wait()
