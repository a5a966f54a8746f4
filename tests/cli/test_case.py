"""Cases in words: those of the benchmark, and what else one may write."""

import pytest

from bench.cases import CASES
from jaxpool._arguments.errors import ArgumentError
from jaxpool._cli._case import read_case

OPS = [case for case in CASES if case.op != "train_step"]


@pytest.mark.parametrize("case", OPS, ids=lambda case: case.name)
def test_every_name_of_the_benchmark_says_its_case(case):
    read = read_case(case.name)
    assert read.function == case.op
    assert (read.shape, read.dtype, read.output_shape) == (
        case.shape,
        case.dtype,
        case.output_shape,
    )
    if case.window and case.op != "max_unpool":
        dims = read.window.dims
        assert read.window.axes == case.axes
        assert tuple(dim.window for dim in dims) == case.window
        assert tuple(dim.stride for dim in dims) == case.strides
        assert tuple(dim.dilation for dim in dims) == case.dilation
        assert tuple((dim.low, dim.high) for dim in dims) == case.pads


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("max_pool 3x3 stride 1x2 SAME 2x9x8x3", "max 3x3 SAME stride 1x2, 2x9x8x3 float32"),
        ("adaptive max to 5x5 2x9x8x3", "adaptive_max_pool to 5x5, 2x9x8x3"),
        ("max with argmax 2x2 2x9x8x3", "max_pool_with_argmax 2x2 stride 1 VALID, 2x9x8x3"),
        ("unpool to 8x6 2x4x3x3", "max_unpool 2x2 stride 2 to 8x6, 2x4x3x3"),
        ("global max 2x5x6x3", "global_max_pool over 1 and 2 2x5x6x3"),
        ("global max channels-first 2x3x9x8", "global max over 2 and 3 2x3x9x8"),
        ("avg 3 pad 1 int8 2x17x3", "avg 3 pad 1:1 2x17x3"),
        ("max 3x3 channels-first 2x3x9x8", "max 3x3 over 2 and 3 2x3x9x8"),
    ],
)
def test_other_words_for_a_case(words, same):
    assert read_case(words) == read_case(same)


def test_a_size_may_be_symbolic_but_not_of_a_pooled_axis():
    read = read_case("max 2x2 stride 2 ?x8x8x?")
    assert (read.shape, read.output_shape) == ((None, 8, 8, None), (None, 4, 4, None))
    with pytest.raises(ArgumentError):
        read_case("max 2x2 stride 2 1x?x8x1")


WINDOWS = [" stride", " strid 2", " stride ?", " pad one", " ties none", " 2x2", " over 1"]
NO_CASES = [
    *(f"max 3x3{words} 4x9x9x3" for words in WINDOWS),
    *(
        "",
        "max",
        "max 3x3",
        "max 3x? 4x9x9x3",
        "max 10x10 4x9x9x3",
        "max 3x3 9x9",
        "max over 5 4x4",
    ),
    *("avg 2x2 x4x4", "train step LeNet, 256x28x28x1", "maximum 4x4", "maximum of 0 4x4"),
    *(
        "k max to 5 over 1 2x4x3",
        "k max to 2x2 over 1 2x4x3",
        "roi max to 3x?x2 1x9x9x3",
        "unpool to ? 4x4",
    ),
    *("fractional max 5x5 to 1x1 1x4x4x1", "fractional max 2x2 to 4x4 1x4x4x1"),
    *(f"max {'9' * 5000} 4x4", "maximum of 99999 4x4"),
    *("cummax 4x4", "cummax over 0 and 1 4x4", "adaptive max 1x4x4x1"),
]


@pytest.mark.parametrize("words", NO_CASES)
def test_what_is_no_case(words):
    with pytest.raises(ArgumentError):
        read_case(words)


@pytest.mark.parametrize(
    ("words", "ties"),
    [
        ("segment max to 9 99x8", "split"),
        ("max over 1 and 2 2x5x6x3", "split"),
        ("fmin of 2 16x8", "split"),
        ("fmin of 2 ties last 16x8", "last"),
        ("roi max to 5x7x7 1x9x9x2", "first"),
        ("avg 3x3 2x9x8x3", "first"),
    ],
)
def test_ties_are_those_of_the_function(words, ties):
    assert read_case(words).ties == ties
