"""The peers of a run: this library, its rivals, and lower bounds on the time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench._case import TRAIN_STEP
from bench._jax_peer import AddOnePeer, JaxPeer, accelerate_op, add_one_calls, jaxpool_op, lax_op
from bench._tf_peer import TensorFlowPeer
from bench._torch_peer import TorchPeer
from bench.results import COPY, OURS, TORCH_COMPILE, Row
from bench.run import Device, Peer, Prepared, Unsupported, Work
from bench.timing import timed_calls


def peers(
    rivals: Sequence[str], *, device: Device, threads: int, tensorflow_python: str | None = None
) -> tuple[Peer, ...]:
    """This library, then the named rivals, then the lower bounds."""
    made: tuple[Peer, ...] = (
        JaxPeer("lax", lax_op, device),
        JaxPeer("accelerate", accelerate_op, device),
        TorchPeer("torch", device, threads, channels_last=False),
        TorchPeer("torch-channels-last", device, threads, channels_last=True),
        TorchPeer(TORCH_COMPILE, device, threads, channels_last=False, compiles=True),
        TensorFlowPeer(device, threads, tensorflow_python),
    )
    named = [peer for peer in made if peer.name in rivals]
    return (
        JaxPeer(OURS, jaxpool_op, device),
        *named,
        AddOnePeer(device),
        CopyPeer(device, threads),
    )


class CopyPeer:
    """A copy of the least number of bytes that the case must move: half read, half written.

    On the CPU, NumPy copies between existing arrays, which causes no page faults. Each thread copies a part.
    On an accelerator, the copy is an XLA program on an array of half the bytes.
    """

    name = COPY
    _SERIAL_BYTES = 1 << 20

    def __init__(self, device: Device, threads: int) -> None:
        self._device = device
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def prepare(self, work: Work) -> Prepared:
        if work.case.op == TRAIN_STEP:
            raise Unsupported("a whole step has no floor")
        size = max(work.case.floor_bytes(work.mode) // 2, 1)
        if self._device != "cpu":
            import jax

            device = jax.devices(self._device)[0]
            words = jax.device_put(np.zeros(-(-size // 4), np.float32), device)
            return add_one_calls(words, self._device), Row()
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        if size <= self._SERIAL_BYTES or self._threads == 1:
            return timed_calls(lambda: np.copyto(target, source)), Row()
        targets = np.array_split(target, self._threads)
        sources = np.array_split(source, self._threads)
        return timed_calls(lambda: list(self._pool.map(np.copyto, targets, sources))), Row()
