"""PyTorch's pools with autograd, on contiguous (channels-first) or channels_last tensors."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from bench._case import (
    ADAPTIVE,
    ARGMAX,
    AVERAGES,
    CUMMAX,
    ELEMENTWISE,
    MAX,
    UNPOOL,
    Case,
)
from bench.run import Device, Prepared, Unsupported, Work
from bench.timing import timed_calls


class TorchPeer:
    """PyTorch with one memory format. Tensors get their layout before timing starts."""

    def __init__(self, name: str, device: Device, threads: int, *, channels_last: bool) -> None:
        self.name = name
        self._device = device
        self._threads = threads
        self._channels_last = channels_last

    def prepare(self, work: Work) -> Prepared:
        torch = self._torch()
        case = work.case
        self._refuse(case)
        xs = [self._laid_out(torch, case, x) for x in work.xs]
        op = _op(torch, case)

        if work.dy is None:

            def call() -> Any:
                with torch.no_grad():
                    return op(*xs), ()
        else:
            dy = self._laid_out(torch, case, work.dy)
            floats = xs[: case.arity]
            for x in floats:
                x.requires_grad_()

            def call() -> Any:
                outputs = op(*xs)
                y = outputs[0] if case.op == ARGMAX else outputs
                return outputs, torch.autograd.grad(y, floats, dy)

        difference = work.reference.difference(*_samples(torch, case, *call()))
        return Prepared(
            timed_calls(call, self._wait(torch), burst=1 if self._device == "cpu" else 10),
            difference=difference,
        )

    def _torch(self) -> Any:
        try:
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise Unsupported("torch is not installed") from error
        if self._device == "gpu" and not torch.cuda.is_available():
            raise Unsupported("torch sees no GPU")
        if self._device == "tpu":
            raise Unsupported("torch does not run on a TPU")
        torch.set_num_threads(self._threads)
        return torch

    def _refuse(self, case: Case) -> None:
        if not _as_channels_first(case) and self._channels_last:
            raise Unsupported("elementwise and running: the memory format makes no difference")
        if case.op in AVERAGES and any(d > 1 for d in case.dilation):
            raise Unsupported("torch has no dilated average")

    def _laid_out(self, torch: Any, case: Case, array: np.ndarray) -> Any:
        x = _from_numpy(torch, array)
        if x.dtype == torch.int32:
            x = x.long()  # positions
        if _as_channels_first(case):
            x = x.permute(0, case.channel_axis, *case.axes)
            if x.ndim == 3 and _as_images(case, self._channels_last):
                x = x.unsqueeze(2)
        if self._channels_last:
            formats = {4: torch.channels_last, 5: torch.channels_last_3d}
            x = x.contiguous(memory_format=formats[x.ndim])
        else:
            x = x.contiguous()
        return x.to("cuda") if self._device == "gpu" else x

    def _wait(self, torch: Any) -> Callable[[Any], Any]:
        if self._device == "cpu":
            return lambda result: result

        def wait(result: Any) -> Any:
            torch.cuda.synchronize()
            return result

        return wait


def _from_numpy(torch: Any, array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _as_channels_first(case: Case) -> bool:
    """Whether the channels precede the pooled axes in PyTorch's tensors."""
    return bool(case.axes) and case.op != CUMMAX


def _as_images(case: Case, channels_last: bool) -> bool:
    """Whether a 1-D case becomes an image of height 1, as channels_last and a divisor require."""
    return len(case.window) == 1 and (channels_last or case.op in AVERAGES)


def _op(torch: Any, case: Case) -> Callable[..., Any]:
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(torch, case.op), xs)
    if case.op == CUMMAX:
        return lambda x: torch.cummax(x, *case.axes).values
    if case.op == MAX:
        return lambda x: torch.amax(x, tuple(range(2, x.ndim)), keepdim=True)
    if case.op in (*ADAPTIVE, UNPOOL):
        function = getattr(torch.nn.functional, f"{case.op}{len(case.axes)}d")
        if case.op == UNPOOL:
            return lambda x, positions: function(
                x, positions, case.window, case.strides, output_size=case.output
            )
        return lambda x: function(x, case.output)
    if case.op not in (*AVERAGES, "max_pool", "min_pool", ARGMAX):
        raise Unsupported(f"no torch call is written for {case.op}")
    if case.op == "min_pool":
        largest = _pool(torch, case)
        return lambda x: -largest(-x)
    return _pool(torch, case)


def _pool(torch: Any, case: Case) -> Callable[[Any], Any]:
    """One native call if it can express the padding, else a pad first.

    The output only depends on the low padding and the output size. Padding that is larger at the end,
    as "SAME" can be, is therefore symmetric padding with ceil_mode.
    """
    functional = torch.nn.functional
    rank = len(case.window)
    low = tuple(pad[0] for pad in case.pads)
    ceil = next((c for c in (False, True) if _native_shape(case, c) == case.output_shape), None)
    if ceil is None:
        if case.op == ARGMAX:
            raise Unsupported("torch's positions would count padding of this kind")
        fill = 0.0 if case.op in AVERAGES else -float("inf")
        pads = tuple(n for pair in reversed(case.pads) for n in pair)
        native = _native(functional, case, rank, (0,) * rank, False)
        return lambda x: native(functional.pad(x, pads, value=fill))
    return _native(functional, case, rank, low, ceil)


def _native_shape(case: Case, ceil: bool) -> tuple[int, ...] | None:
    """PyTorch's output shape with the low padding on both sides, or None if PyTorch refuses it."""
    shape = list(case.shape)
    geometry = zip(case.axes, case.pads, case.window, case.extents, case.strides, strict=True)
    for axis, (low, _), window, extent, stride in geometry:
        if low > window // 2:
            return None
        span = shape[axis] + 2 * low - extent + (stride - 1 if ceil else 0)
        count = span // stride + 1
        if ceil and (count - 1) * stride >= shape[axis] + low:
            count -= 1
        shape[axis] = count
    return tuple(shape)


def _native(
    functional: Any, case: Case, rank: int, padding: tuple[int, ...], ceil: bool
) -> Callable[[Any], Any]:
    window, strides, dilation = case.window, case.strides, case.dilation

    def one_more(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (value, *values) if rank == 1 else values

    if case.op in AVERAGES:
        divisor = 1 if case.op == "sum_pool" else int(np.prod(window))
        average = functional.avg_pool3d if rank == 3 else functional.avg_pool2d
        return lambda x: average(
            x,
            one_more(window, 1),
            one_more(strides, 1),
            one_more(padding, 0),
            ceil,
            divisor_override=divisor,
        )
    positions = case.op == ARGMAX
    by_rank = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}

    def largest(x: Any) -> Any:
        if rank == 1 and x.ndim == 4:
            sizes = (one_more(window, 1), one_more(strides, 1), one_more(padding, 0))
            return functional.max_pool2d(x, *sizes, one_more(dilation, 1), ceil, positions)
        return by_rank[rank](x, window, strides, padding, dilation, ceil, positions)

    return largest


def _samples(torch: Any, case: Case, outputs: Any, dxs: Any) -> tuple[list[Any], list[Any]]:
    """Results in the axis order of the case, cut to the sample that the oracle checks."""

    def sample(t: Any) -> Any:
        if _as_channels_first(case):
            if t.ndim > len(case.shape):
                t = t.squeeze(2)
            t = t.permute(np.argsort((0, case.channel_axis, *case.axes)).tolist())
        return t.detach()[case.sample].to("cpu", torch.float64).numpy()

    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [sample(y) for y in outputs], [sample(dx) for dx in dxs]
