"""PyTorch's pools with autograd, on contiguous (channels-first) or channels_last tensors, also by `torch.compile`."""

from __future__ import annotations

import functools
import importlib
import math
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
    outputs_of,
)
from bench.results import Row
from bench.run import Device, Prepared, Unsupported, Work
from bench.timing import burst, timed_calls


class TorchPeer:
    """PyTorch with one memory format. Tensors get their layout before timing starts."""

    def __init__(
        self,
        name: str,
        device: Device,
        threads: int,
        *,
        channels_last: bool,
        compiles: bool = False,
    ) -> None:
        self.name = name
        self._device = device
        self._threads = threads
        self._channels_last = channels_last
        self._compiles = compiles

    def prepare(self, work: Work) -> Prepared:
        torch = self._torch()
        case = work.case
        if self._channels_last and not _as_channels_first(case):
            raise Unsupported("elementwise and running: the memory format makes no difference")
        xs = [self._laid_out(torch, case, x) for x in work.xs]
        op = _op(torch, case, _as_images(case, self._channels_last))
        if self._compiles:
            # After eight programs of one lambda, PyTorch would run the others eagerly.
            torch.compiler.reset()
            op = torch.compile(op, dynamic=False)

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

        row = Row(**work.reference.check(*_samples(torch, case, *call())))
        if self._device == "cpu":
            return timed_calls(call), row
        return timed_calls(call, lambda result: torch.cuda.synchronize(), burst("gpu")), row

    def _torch(self) -> Any:
        try:
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise Unsupported("torch is not installed") from error
        if self._device == "gpu" and not torch.cuda.is_available():
            raise Unsupported("torch sees no GPU")
        if self._device == "tpu":
            raise Unsupported("torch does not run on a TPU")
        if self._compiles and self._device == "cpu":
            raise Unsupported("torch.compile is a peer on GPUs")
        torch.set_num_threads(self._threads)
        return torch

    def _laid_out(self, torch: Any, case: Case, array: np.ndarray) -> Any:
        x = _from_numpy(torch, array)
        if x.dtype == torch.int32:
            x = x.long()  # positions
        if _as_channels_first(case):
            x = x.permute(0, case.channel_axis, *case.axes)
        if _as_images(case, self._channels_last):
            x = x.unsqueeze(2)
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        memory_format = formats[x.ndim] if self._channels_last else torch.contiguous_format
        x = x.contiguous(memory_format=memory_format)
        return x.to("cuda") if self._device == "gpu" else x


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


def _op(torch: Any, case: Case, as_images: bool) -> Callable[..., Any]:
    functional = torch.nn.functional
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(torch, case.op), xs)
    if case.op == CUMMAX:
        return lambda x: torch.cummax(x, *case.axes).values
    if case.op == MAX:
        return lambda x: torch.amax(x, tuple(range(2, x.ndim)), keepdim=True)
    if case.op in ADAPTIVE:
        adaptive = getattr(functional, f"{case.op}{len(case.axes)}d")
        return lambda x: adaptive(x, case.output)
    if case.op == UNPOOL:
        unpool = getattr(functional, f"{case.op}{len(case.axes)}d")
        return lambda x, at: unpool(x, at, case.window, case.strides, output_size=case.output)
    if case.op not in (*AVERAGES, "max_pool", "min_pool", ARGMAX):
        raise Unsupported(f"no torch call is written for {case.op}")
    if case.op in AVERAGES and any(d > 1 for d in case.dilation):
        raise Unsupported("torch has no dilated average")
    pool = _pool(functional, case, as_images)
    return (lambda x: -pool(-x)) if case.op == "min_pool" else pool


def _pool(functional: Any, case: Case, as_images: bool) -> Callable[[Any], Any]:
    """One native call if it can express the padding, else a pad first.

    The output only depends on the low padding and the output size. Padding that is larger at the end,
    as "SAME" can be, is therefore symmetric padding with ceil_mode.
    """
    low = tuple(pad[0] for pad in case.pads)
    ceil = next((c for c in (False, True) if _native_shape(case, c) == case.output_shape), None)
    if ceil is not None:
        return _native(functional, case, as_images, low, ceil)
    if case.op == ARGMAX:
        raise Unsupported("torch's positions would count padding of this kind")
    fill = 0.0 if case.op in AVERAGES else -float("inf")
    pads = tuple(n for pair in reversed(case.pads) for n in pair)
    native = _native(functional, case, as_images, (0,) * len(low), False)
    return lambda x: native(functional.pad(x, pads, value=fill))


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
    functional: Any, case: Case, as_images: bool, padding: tuple[int, ...], ceil: bool
) -> Callable[[Any], Any]:
    window, strides, dilation = case.window, case.strides, case.dilation
    if as_images:
        window, strides, dilation = ((1, *sizes) for sizes in (window, strides, dilation))
        padding = (0, *padding)
    if case.op in AVERAGES:
        divisor = 1 if case.op == "sum_pool" else math.prod(window)
        average = getattr(functional, f"avg_pool{len(window)}d")
        return lambda x: average(x, window, strides, padding, ceil, divisor_override=divisor)
    largest = getattr(functional, f"max_pool{len(window)}d")
    return lambda x: largest(x, window, strides, padding, dilation, ceil, case.op == ARGMAX)


def _samples(torch: Any, case: Case, outputs: Any, dxs: Any) -> tuple[list[Any], list[Any]]:
    """Results in the axis order of the case, cut to the sample that the oracle checks."""

    def sample(t: Any) -> Any:
        if _as_channels_first(case):
            if t.ndim > len(case.shape):
                t = t.squeeze(2)
            t = t.permute(np.argsort((0, case.channel_axis, *case.axes)).tolist())
        return t.detach()[case.sample].to("cpu", torch.float64).numpy()

    return [sample(y) for y in outputs_of(outputs)], [sample(dx) for dx in dxs]
