"""The benchmark cases: calls with tags. The name of a case is the call that a user would write.

The cases cover functions that other libraries have too. A new function needs a row or a loop here, and a branch in
each peer. `python -m bench --plain` times every public function against the equivalent jax.numpy code.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from bench._case import ADAPTIVE, ARGMAX, CUMMAX, MAX, TRAIN_STEP, UNPOOL, Case


def pool(
    op: str,
    shape: tuple[int, ...],
    window: int | tuple[int, ...],
    strides: int | tuple[int, ...] = 1,
    padding: str | int = "VALID",
    *tags: str,
    dilation: int = 1,
    channels_first: bool = False,
    dtype: str = "float32",
) -> Case:
    """A windowed case from short arguments. An int applies to every spatial axis of `shape`."""
    rank = len(shape) - 2
    first = 2 if channels_first else 1
    return Case(
        op=op,
        shape=shape,
        window=_repeat(window, rank),
        strides=_repeat(strides, rank),
        padding=((padding, padding),) * rank if isinstance(padding, int) else padding,
        dilation=(dilation,) * rank,
        axes=tuple(range(first, first + rank)),
        dtype=dtype,
        tags=frozenset(tags),
    )


def adaptive(op: str, shape: tuple[int, ...], output: int, *tags: str) -> Case:
    """An adaptive case: `output` windows along every spatial axis of `shape`."""
    rank = len(shape) - 2
    axes = tuple(range(1, 1 + rank))
    return Case(op, shape, axes=axes, output=(output,) * rank, tags=frozenset((*tags, "adaptive")))


def unpool(shape: tuple[int, ...], window: int, *tags: str) -> Case:
    """An unpool with the positions of a max pool with disjoint windows."""
    case = pool(UNPOOL, shape, window, window, "VALID", *tags, "argmax")
    output = tuple(size * window for size in case.spatial_shape)
    return dataclasses.replace(case, output=output)


def over(op: str, shape: tuple[int, ...], axes: tuple[int, ...], *tags: str) -> Case:
    """A maximum over whole axes, or a running maximum along one axis."""
    return Case(op, shape, axes=axes, tags=frozenset((*tags, "whole axes")))


def _repeat(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else value


# The cases of the project's performance goals.
_TABLE = (
    pool("max_pool", (32, 112, 112, 64), 2, 2, "VALID", "table"),
    pool("max_pool", (32, 112, 112, 64), 3, 2, 1, "table"),
    pool("max_pool", (32, 56, 56, 64), 3, 1, 1, "table"),
    pool("max_pool", (8, 40, 40, 128), 13, 1, "SAME", "table"),
    pool("max_pool", (4, 128, 128, 32), 31, 1, "SAME", "table", "slow"),
    pool("avg_pool", (32, 112, 112, 64), 2, 2, "VALID", "table"),
    pool("avg_pool", (32, 112, 112, 64), 3, 2, 1, "table"),
    pool("avg_pool", (32, 56, 56, 64), 3, 1, 1, "table"),
    pool("max_pool", (16, 128, 128, 32), 2, 2, "VALID", "table"),
    pool("max_pool", (16, 112, 112, 64), 3, 2, 1, "table"),
    pool("max_pool", (8, 64, 64, 64), 3, 1, "SAME", "table"),
    pool("max_pool", (8, 40, 40, 128), 5, 1, "SAME", "table"),
    pool("max_pool", (4, 40, 40, 128), 13, 1, "SAME", "table"),
    pool("avg_pool", (16, 128, 128, 32), 2, 2, "VALID", "table"),
    pool("avg_pool", (8, 64, 64, 64), 3, 1, "SAME", "table"),
    pool("avg_pool", (64, 7, 7, 512), 7, 1, "VALID", "table", "global"),
    pool("max_pool", (16, 128, 128, 32), 2, 2, "VALID", "table", dtype="bfloat16"),
    pool("max_pool", (16, 64, 112, 112), 3, 2, "VALID", "table", channels_first=True),
    pool("max_pool", (64, 4096, 32), 3, 2, "VALID", "table"),
    pool("max_pool", (4, 32, 64, 64, 16), 2, 2, "VALID", "table"),
    Case("maximum", (16, 128, 128, 32), arity=2, tags=frozenset({"table", "elementwise"})),
)


def _sweep() -> Iterator[Case]:
    """Every window, stride and padding, on arrays that fit the cache. Arrays are smaller if lax is slow."""
    for op, window in itertools.product(("max_pool", "avg_pool", "min_pool"), (2, 3, 5, 7, 13, 31)):
        if op == "min_pool" and window not in (2, 3, 31):
            continue
        shape = (4, 64, 64, 32) if window <= 7 else (1, 64, 64, 32)
        for stride, padding in itertools.product(sorted({1, 2, window}), ("VALID", "SAME")):
            yield pool(op, shape, window, stride, padding, "sweep")


def _layouts() -> Iterator[Case]:
    """Ranks, channels-first twins of channels-last cases, and few or many channels."""
    for op in ("max_pool", "avg_pool"):
        yield pool(op, (64, 4096, 32), 2, 2, "VALID", "rank")
        yield pool(op, (16, 4096, 32), 3, 1, "SAME", "rank")
        yield pool(op, (4, 16, 32, 32, 32), 3, 1, "SAME", "rank")
        yield pool(op, (4, 16, 64, 64, 16), 3, 2, "SAME", "rank")
        for size, window, stride in ((112, 2, 2), (112, 3, 2), (112, 3, 1), (40, 13, 1)):
            last, first = (4, size, size, 64), (4, 64, size, size)
            yield pool(op, last, window, stride, "SAME", "layout")
            yield pool(op, first, window, stride, "SAME", "layout", channels_first=True)
        yield pool(op, (16, 32, 4096), 3, 2, "SAME", "layout", channels_first=True)
        yield pool(op, (4, 16, 16, 64, 64), 2, 2, "VALID", "layout", channels_first=True)
        for shape in ((16, 256, 256, 1), (16, 224, 224, 3), (16, 56, 56, 512)):
            yield pool(op, shape, 2, 2, "VALID", "channels")
            yield pool(op, shape, 3, 2, "SAME", "channels")
            yield pool(op, shape, 3, 1, "SAME", "channels")


def _dtypes() -> Iterator[Case]:
    dtypes = ("bfloat16", "float16", "float64", "int8")
    for op, dtype in itertools.product(("max_pool", "avg_pool"), dtypes):
        if (op, dtype) == ("avg_pool", "int8"):
            continue  # an average of integers is float32
        if (op, dtype) != ("max_pool", "bfloat16"):  # in _TABLE
            yield pool(op, (16, 128, 128, 32), 2, 2, "VALID", "dtype", dtype=dtype)
        yield pool(op, (8, 64, 64, 64), 3, 1, "SAME", "dtype", dtype=dtype)
        yield pool(op, (16, 112, 112, 64), 3, 2, "SAME", "dtype", dtype=dtype)
        yield pool(op, (4, 40, 40, 128), 13, 1, "SAME", "dtype", dtype=dtype)


def _special() -> Iterator[Case]:
    yield pool("avg_pool", (32, 56, 56, 256), 56, 1, "VALID", "global")
    yield pool("max_pool", (32, 56, 56, 256), 56, 1, "VALID", "global")
    yield pool("max_pool", (64, 7, 7, 512), 7, 1, "VALID", "global")
    yield pool("sum_pool", (16, 128, 128, 32), 2, 2, "VALID")
    # Odd sizes and remainders, as in AlexNet: strided loops may fail to vectorise.
    for size, window, stride in ((55, 3, 2), (112, 3, 2), (112, 3, 3), (56, 4, 2)):
        yield pool("max_pool", (16, size, size, 96), window, stride, "VALID", "remainder")
    yield pool("max_pool", (16, 112, 112, 64), 5, 2, "SAME", "steps")
    yield pool("sum_pool", (8, 64, 64, 64), 3, 1, "SAME")
    for op, padding in itertools.product(("max_pool", "avg_pool"), ("VALID", "SAME")):
        yield pool(op, (8, 64, 64, 32), 3, 1, padding, "dilation", dilation=2)
        yield pool(op, (8, 64, 64, 32), 3, 2, padding, "dilation", dilation=2)
    for op in ("max_pool", "avg_pool"):  # long overlapping windows
        for window, stride in ((20, 10), (31, 16), (63, 2)):
            yield pool(op, (4, 128, 128, 32), window, stride, "SAME")
        yield pool(op, (64, 4096, 32), 64, 32, "VALID")
    for window, stride in ((4, 3), (5, 3), (13, 6), (20, 2), (4, 1)):
        yield pool("max_pool", (8, 64, 64, 64), window, stride, "SAME")
    # Three axes and short rows: the slow cases of a scan over geometries.
    for op in ("max_pool", "avg_pool"):
        yield pool(op, (4, 25, 25, 25, 16), 3, 1, "SAME")
        yield pool(op, (4, 25, 25, 25, 16), 3, 1, "VALID")
        yield pool(op, (4, 21, 21, 21, 32), 3, 2, "SAME")
        yield pool(op, (4, 64, 64, 64, 1), 3, 1, "VALID")
        yield pool(op, (4, 180, 180, 8), 13, 1, "SAME")
        yield pool(op, (4, 140, 140, 12), 4, 1, "SAME", dtype="float16")
    # One shape, to compare large windows with small ones.
    for window in (3, 31, 63):
        yield pool("max_pool", (1, 128, 128, 16), window, 1, "SAME", "large_window", "slow")
        yield pool("avg_pool", (1, 128, 128, 16), window, 1, "SAME", "large_window", "slow")
    elementwise = frozenset({"elementwise"})
    yield Case("maximum", (16, 128, 128, 32), arity=4, tags=elementwise)
    yield Case("minimum", (16, 128, 128, 32), arity=2, tags=elementwise)
    yield Case("maximum", (16, 128, 128, 32), arity=2, dtype="bfloat16", tags=elementwise)
    for op in ADAPTIVE:
        yield adaptive(op, (16, 56, 56, 64), 7)
        yield adaptive(op, (8, 64, 64, 64), 5)  # 64 / 5: windows of 13 and 14 that overlap
        yield adaptive(op, (16, 56, 56, 64), 1, "global")
    yield pool(ARGMAX, (16, 128, 128, 32), 2, 2, "VALID", "argmax")
    yield unpool((16, 64, 64, 32), 2)
    yield over(CUMMAX, (8, 4096, 64), (1,))
    yield over(MAX, (32, 56, 56, 64), (1, 2))


def _train_steps() -> Iterator[Case]:
    shapes = {
        "LeNet": (256, 28, 28, 1),
        "ResNetStem": (16, 224, 224, 3),
        "Inception": (16, 96, 96, 3),
        "SpatialPyramid": (16, 128, 128, 3),
        "UNet": (8, 128, 128, 3),
    }
    for net, shape in shapes.items():
        size = 16 if net == "SpatialPyramid" else 8
        small = (2, size, size, shape[-1])
        tags = {"train", "gpu"} if net in ("ResNetStem", "UNet") else {"train"}
        yield Case(TRAIN_STEP, shape, net=net, tags=frozenset(tags))
        yield Case(TRAIN_STEP, small, net=net, tags=frozenset({"train", "small"}))


def _gpu() -> Iterator[Case]:
    """Arrays of some hundred MB: smaller ones take a GPU less time than a launch."""
    for dtype in ("float32", "bfloat16"):
        for op in ("max_pool", "avg_pool"):
            yield pool(op, (64, 112, 112, 64), 2, 2, "VALID", "gpu", dtype=dtype)
            yield pool(op, (64, 112, 112, 64), 3, 2, 1, "gpu", dtype=dtype)
            yield pool(op, (64, 56, 56, 128), 3, 1, "SAME", "gpu", dtype=dtype)
    for op in ("max_pool", "avg_pool"):
        yield pool(op, (64, 64, 112, 112), 3, 2, 1, "gpu", channels_first=True)
        yield pool(op, (8, 64, 64, 64, 16), 2, 2, "VALID", "gpu")
        yield pool(op, (8, 32, 64, 64, 16), 3, 1, "SAME", "gpu")
        for window in (5, 7, 13, 31):
            yield pool(op, (64, 40, 40, 128), window, 1, "SAME", "gpu")
        yield pool(op, (32, 16384, 64), 3, 2, "VALID", "gpu")
        yield adaptive(f"adaptive_{op}", (64, 56, 56, 128), 7, "gpu")
        yield pool(op, (64, 112, 112, 64), 3, 2, 1, "gpu", dtype="float16")
        yield pool(op, (64, 64, 112, 112), 3, 2, 1, "gpu", dtype="bfloat16", channels_first=True)
        for channels in (1, 3):
            yield pool(op, (64, 672, 672, channels), 3, 2, 1, "gpu")
    yield pool("max_pool", (64, 64, 112, 112), 2, 2, "VALID", "gpu", channels_first=True)
    yield pool(ARGMAX, (64, 112, 112, 64), 2, 2, "VALID", "gpu", "argmax")
    yield unpool((64, 56, 56, 64), 2, "gpu")
    yield over(CUMMAX, (16, 4096, 512), (1,), "gpu")
    yield over(MAX, (64, 56, 56, 128), (1, 2), "gpu")
    yield Case("maximum", (64, 56, 56, 128), arity=2, tags=frozenset({"gpu", "elementwise"}))


# One tiny case per feature, for tests and for a quick run of the benchmark.
_SMALL = (
    pool("max_pool", (2, 8, 8, 3), 2, 2, "VALID", "small"),
    pool("max_pool", (2, 9, 8, 3), 3, 2, 1, "small"),
    pool("max_pool", (2, 9, 8, 3), 3, 2, "SAME", "small"),
    pool("max_pool", (2, 9, 8, 3), (2, 3), (1, 2), "SAME", "small"),
    pool("max_pool", (2, 9, 8, 3), 3, 1, "SAME", "small", dilation=2),
    pool("max_pool", (2, 3, 9, 8), 3, 2, "SAME", "small", channels_first=True),
    pool("max_pool", (2, 8, 8, 3), 2, 2, "VALID", "small", dtype="bfloat16"),
    pool("max_pool", (2, 8, 8, 3), 2, 2, "VALID", "small", dtype="int8"),
    pool("max_pool", (2, 8, 8, 3), 2, 2, "VALID", "small", dtype="float64"),
    pool("max_pool", (2, 17, 3), 3, 2, "SAME", "small"),
    pool("max_pool", (2, 5, 6, 7, 3), 2, 2, "VALID", "small"),
    pool("min_pool", (2, 9, 8, 3), 3, 2, "SAME", "small"),
    pool("avg_pool", (2, 8, 8, 3), 2, 2, "VALID", "small"),
    pool("avg_pool", (2, 9, 8, 3), 3, 2, 1, "small"),
    pool("avg_pool", (2, 9, 8, 3), 3, 1, "SAME", "small"),
    pool("avg_pool", (2, 3, 9, 8), 3, 2, "SAME", "small", channels_first=True),
    pool("avg_pool", (2, 8, 8, 3), 2, 2, "VALID", "small", dtype="float16"),
    pool("avg_pool", (2, 17, 3), 3, 2, "SAME", "small"),
    pool("avg_pool", (2, 5, 6, 7, 3), 2, 1, "SAME", "small"),
    pool("sum_pool", (2, 8, 8, 3), 3, 1, "SAME", "small"),
    Case("maximum", (2, 4, 3), arity=2, tags=frozenset({"small", "elementwise"})),
    Case("maximum", (2, 4, 3), arity=4, tags=frozenset({"small", "elementwise"})),
    Case("minimum", (2, 4, 3), arity=2, tags=frozenset({"small", "elementwise"})),
    adaptive("adaptive_max_pool", (2, 9, 8, 3), 5, "small"),
    adaptive("adaptive_avg_pool", (2, 9, 8, 3), 5, "small"),
    pool(ARGMAX, (2, 8, 6, 3), 2, 2, "VALID", "small", "argmax"),
    pool(ARGMAX, (2, 9, 8, 3), 3, 2, "SAME", "small", "argmax"),
    unpool((2, 4, 3, 3), 2, "small"),
    over(CUMMAX, (2, 9, 3), (1,), "small"),
    over(MAX, (2, 5, 6, 3), (1, 2), "small"),
)

_GROUPS = (_TABLE, _sweep(), _layouts(), _dtypes(), _special(), _gpu(), _SMALL, _train_steps())
CASES: tuple[Case, ...] = tuple(itertools.chain(*_GROUPS))


def matches(text: str, filters: Sequence[str]) -> bool:
    """Whether every filter is a substring of the text, or matches it as a regular expression."""
    return all(wanted in text or _searched(wanted, text) for wanted in filters)


def _searched(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # a substring with an open bracket, such as the start of a name
        return False


def select(filters: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases whose name and tags match every filter, in the order of the table.

    A filter is a regular expression or a substring, so the name of a case works despite its brackets.
    Cases with the tag "small" or "gpu" are only selected if a filter contains that word.
    """
    left_out = {tag for tag in ("small", "gpu") if not any(tag in f for f in filters)}
    return tuple(
        case
        for case in CASES
        if matches(f"{case.name} [{' '.join(sorted(case.tags))}]", filters)
        and not left_out & case.tags
    )
