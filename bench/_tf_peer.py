"""The TensorFlow peer, which runs in a virtual environment and process of its own.

The processes exchange lines of JSON over pipes, one answer per request. `bench._tf_worker` answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench._peer import Device, Prepared, Unsupported, Work

PYTHON_VARIABLE = "JAXPOOL_BENCH_TF_PYTHON"
_ROOT = Path(__file__).resolve().parent.parent


class TensorFlowPeer:
    name = "tensorflow"

    def __init__(self, device: Device, threads: int, python: str | None) -> None:
        self._device = device
        self._threads = threads
        self._python = python or os.environ.get(PYTHON_VARIABLE)
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None

    def version(self) -> str | None:
        try:
            return str(self._ask("version")["version"])
        except (Unsupported, RuntimeError):
            return None

    def prepare(self, work: Work) -> Prepared:
        request = {"case": work.case.to_json(), "mode": work.mode}
        answer = self._ask("prepare", **request)
        compile_s = answer.pop("compile_s")
        return Prepared(self._calls, compile_s, work.reference.difference(**answer))

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # the worker ends with its input
            self._process.wait(timeout=30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._errors.close()
            self._process = None

    def _calls(self, count: int) -> Sequence[float]:
        return list(self._ask("time", calls=count)["seconds"])

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the TensorFlow process ended: {self._last_words()}")
        answer = json.loads(line)
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return dict(answer)

    def _running(self) -> subprocess.Popen[str]:
        if self._device != "cpu":
            raise Unsupported("TensorFlow takes part on the CPU only")
        if not self._python:
            raise Unsupported(f"no TensorFlow: set {PYTHON_VARIABLE} to a Python that has it")
        if self._process is None or self._process.poll() is not None:
            self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open while it runs
            # Cases prepared by a process that ended are prepared again.
            self._process = subprocess.Popen(
                [self._python, "-m", "bench._tf_worker", str(self._threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=_ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
        return self._process

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1][:200] if lines else "no message"
