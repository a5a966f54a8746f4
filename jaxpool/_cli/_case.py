"""A case in words, as `python -m jaxpool info --plan` takes it and the benchmark names its own.

    max 3x3 stride 2 SAME channels-first, 16x64x112x112 bfloat16

First the op, then in any order how its windows lie, and sizes: of the window, if there is one, and
of the array, with a `?` where a size is symbolic.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import jaxpool
from jaxpool._api.random import fractional_op
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import PADDINGS, known_sizes, normalise_axes
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Axis, Window, make_window, resized
from jaxpool._plan.problem import Shape

SELECTIONS = ("max_pool", "min_pool", "max_pool_with_argmax")
SUMS = ("avg_pool", "sum_pool")
SCALED = ("lp_pool", "gem_pool", "logsumexp_pool", "softmax_pool")
STOCHASTIC = ("stochastic_pool",)
ADAPTIVE = ("adaptive_max_pool", "adaptive_avg_pool", "adaptive_max_pool_with_argmax")
WHOLE = ("max", "min", "global_max_pool", "global_avg_pool")
RUNNING = ("cummax", "cummin")
ELEMENTWISE = ("maximum", "minimum", "fmax", "fmin")
UNPOOL = ("max_unpool",)
FRACTIONAL = ("fractional_max_pool", "fractional_avg_pool")
RANKED = ("median_pool", "rank_pool")
MORPHOLOGY = ("dilate", "erode")
BLURRED = ("blur_pool",)
LARGEST = ("k_max_pool",)
REGIONS = ("roi_align", "roi_max_pool")  # to 512x7x7: boxes, and cells of each
SEGMENTS = ("segment_max", "segment_min", "segment_mean")  # to 100: segments
WINDOWED = SELECTIONS + SUMS + SCALED + STOCHASTIC + FRACTIONAL + RANKED + MORPHOLOGY + BLURRED
FUNCTIONS = (
    WINDOWED + ADAPTIVE + WHOLE + RUNNING + ELEMENTWISE + UNPOOL + REGIONS + SEGMENTS + LARGEST
)

FLOATS = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
TIES = ("first", "last", "split")
FOLLOWED = ("stride", "dilation", "pad", "to", "of", "over", "ties")
NEEDED = {
    "to": ADAPTIVE + UNPOOL + FRACTIONAL + REGIONS + SEGMENTS + LARGEST,
    "over": (*RUNNING, *LARGEST, "max", "min"),
    "of": ELEMENTWISE,
}
DIGITS = r"\d{1,18}"  # of a size that an array can have
NO_WINDOW = Window(())
EXAMPLE = 'Write it as in "max 3x3 stride 2 SAME 16x112x112x64 bfloat16".'


@dataclasses.dataclass(frozen=True)
class Case:
    """A public function of an array of `shape`.

    `window` is empty where it has none, `to` what becomes of the sizes along `axes`, `operands` how
    many arrays an elementwise function takes. A symbolic size is None.
    """

    function: str
    shape: Shape
    dtype: str
    axes: tuple[int, ...]
    to: tuple[int, ...]
    window: Window = NO_WINDOW
    ties: str = "first"  # or what the function takes unless it is told
    operands: int = 1

    @property
    def output_shape(self) -> Shape:
        """The shape of what it gives; axes that are reduced have size 1."""
        return resized(self.shape, self.axes, self.to)


OF_REGIONS = "a case such as roi_align to 512x7x7 2x50x50x256, segment_max to 9 99x8"


class _Unread(Exception):
    """What a case must be that this one is not."""


def read_case(text: str) -> Case:
    """The case that `text` names. Raises `ArgumentError`, also where the function itself would."""
    words = text.replace(",", " ").split()
    try:
        function = _function(words)
        return _case(function, *_given(words))
    except _Unread as rule:
        raise ArgumentError("--plan", str(rule), text, EXAMPLE) from None


def _function(words: list[str]) -> str:
    """The public function that a case begins with; its words are taken away."""
    for count in (4, 3, 2, 1):
        name = "_".join(words[:count])
        wanted = (name, f"{name}_pool", f"max_{name}", name.replace("max_with", "max_pool_with"))
        for function in FUNCTIONS:
            if function in wanted:
                del words[:count]
                return function
    names = dict.fromkeys(name.removesuffix("_pool").replace("_", " ") for name in FUNCTIONS)
    raise _Unread(f"a case that begins with one of {', '.join(names)}")


def _given(words: list[str]) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """The sizes that stand alone, and what else is said."""
    sizes, given = [], {}
    while words:
        word = words.pop(0)
        if word in FOLLOWED:
            value = words.pop(0) if words else "nothing"
            while words[:1] == ["and"]:  # over 1 and 2
                value += "x" + "".join(words[1:2])
                del words[:2]
            given[word] = READERS.get(word, _sizes)(value)
        elif word in PADDINGS:
            given["pad"] = word
        elif word in FLOATS + INTEGERS:
            given["dtype"] = word
        elif word == "channels-first":
            given["first"] = True
        else:
            sizes.append(_sizes(word))
    return sizes, given


def _sizes(word: str, size: str = rf"({DIGITS}|\?)") -> tuple[Any, ...]:
    if not re.fullmatch(f"{size}(x{size})*", word):
        known = "sizes such as 3x3, a dtype, channels-first"
        raise _Unread(f"a case of {', '.join(FOLLOWED + PADDINGS)}, {known}, not {word!r}")
    return tuple(None if size == "?" else int(size) for size in word.split("x"))


def _ints(word: str) -> Any:
    sizes = _sizes(word, DIGITS)
    return sizes if len(sizes) > 1 else sizes[0]


def _count(word: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", word):
        raise _Unread(f"a case of a number of arrays, not {word!r}")
    return int(word)


def _pads(word: str) -> Any:
    if not re.fullmatch("A(:A)?(xA(:A)?)*".replace("A", DIGITS), word):
        raise _Unread(f"a case with padding such as 1 or 0:1x0:1, not {word!r}")
    pairs = [[int(side) for side in axis.split(":")] for axis in word.split("x")]
    return pairs[0][0] if pairs == [pairs[0][:1]] else [(pair[0], pair[-1]) for pair in pairs]


def _ties(word: str) -> str:
    if word not in TIES:
        raise _Unread(f"a case with ties {', '.join(TIES)}, not {word!r}")
    return word


READERS = {"pad": _pads, "ties": _ties, "stride": _ints, "dilation": _ints, "of": _count}


def _case(function: str, sizes: list[tuple[Any, ...]], given: dict[str, Any]) -> Case:
    if function in ("max_pool", "min_pool") and "over" in given and len(sizes) == 1:
        function = function.removesuffix("_pool")
    if function in REGIONS + SEGMENTS and ("to" not in given or len(sizes) != 1):
        raise _Unread(OF_REGIONS)
    *windows, shape = sizes or [()]
    if not shape or len(windows) not in ((0, 1) if function in UNPOOL else (function in WINDOWED,)):
        rule = "sizes of a window and of an array" if function in WINDOWED else "sizes of an array"
        raise _Unread(f"a case with {rule} for {function}")
    for word, functions in NEEDED.items():
        if function in functions and word not in given:
            raise _Unread(f"a case with {word!r} and sizes for {function}")
    dtype = given.get("dtype", "float32")
    if "avg" in function and dtype in INTEGERS:
        dtype = "float32"  # in which they are averaged
    axes, to, window = _geometry(function, windows, shape, given)
    usual = inspect.signature(getattr(jaxpool, function)).parameters.get("ties")
    more = {
        "ties": given.get("ties", usual.default if usual else "first"),
        "operands": given.get("of", 1),
    }
    return Case(function, shape, dtype, axes, to, window, **more)


def _geometry(
    function: str, windows: list[tuple[Any, ...]], shape: Shape, given: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], Window]:
    """The axes that are pooled, their sizes after it, and the windows."""
    axes, to = given.get("over"), given.get("to", ())
    count = len(windows[0] if windows else to)
    if axes is None and given.get("first") and (count or function in WHOLE):
        axes = tuple(range(len(shape) - count if count else 2, len(shape)))
    if function in ELEMENTWISE:
        return (), (), NO_WINDOW
    if function in LARGEST:
        axes = normalise_axes(axes, len(shape), 1)
        (size,) = known_sizes(shape, axes)
        if len(to) != 1 or not 1 <= (to[0] or 0) <= size:
            raise _Unread(f"a case with 'to' and a number from 1 to {size} for {function}")
        return axes, to, NO_WINDOW
    if function in REGIONS + SEGMENTS:
        rank = 3 if function in REGIONS else 1
        if len(to) != rank or (rank == 3 and len(shape) != 4) or None in to[1:]:
            raise _Unread(OF_REGIONS)
        return tuple(range(rank)), to, NO_WINDOW
    if function in WHOLE and axes is None:
        axes = tuple(range(1, len(shape) - 1))
    if function in UNPOOL:
        if None in to:
            raise _Unread("a case with known sizes after 'to' for max_unpool")
        return normalise_axes(axes, len(shape), len(to)), to, NO_WINDOW
    if function in WHOLE + RUNNING:
        axes = normalise_axes(axes, len(shape), 1 if function in RUNNING else None)
        to = tuple(1 if function in WHOLE else shape[axis] for axis in axes)
        return axes, to, NO_WINDOW
    if function in ADAPTIVE:
        window = adaptive_window(shape, to, axes)
    elif function in FRACTIONAL:  # as if the windows lay side by side
        placed = fractional_op(shape, windows[0], to, axes).dims
        dims = [(dim.axis, dim.width, dim.out) for dim in placed]
        window = Window(tuple(Axis(axis, n * w, w, w, 1, 0, 0, n) for axis, w, n in dims))
    else:
        window = make_window(
            shape,
            windows[0],
            given.get("stride", 1),
            given.get("pad", "VALID"),
            window_dilation=given.get("dilation", 1),
            axes=axes,
        )
    return window.axes, window.output_shape, window
