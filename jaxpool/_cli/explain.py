"""Show the elements that each window of a pool selects, and the route of its cotangent.

Without options, explain a 2x2 max pool with strides 2 over a built-in 6x6
array.

A cotangent is the derivative of a loss with respect to an array. The backward
pass of a pool takes dy, the cotangent of its output, and returns dx, the
cotangent of its input. A maximum sends dy to the input that it selected, an
average spreads it over its window.

  python -m jaxpool explain --op avg --window 3 --stride 1 --padding 1
  python -m jaxpool explain --array "nan 5 2" --window 1x3 --ties last
  python -m jaxpool explain --array photograph.png --html pool.html
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from jaxpool._cli import (
    UsageError,
    option_error,
    output_path,
    parse_integer,
    require_modules,
    shorten_text,
)
from jaxpool._cli._array import MAX_NUMBERS, read_array

DEFAULT_ARRAY = "1 3 4 2 5 2; 4 2 5 6 8 3; 5 3 7 8 9 3; 8 4 3 6 0 2; 7 10 3 6 3 5; 4 7 2 4 7 8"
OPS = (
    *("max", "min", "avg", "sum", "lp", "median", "rank", "unpool"),
    *("dilate", "erode", "adaptive_max", "adaptive_avg"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `explain`. Each argument of the function is stored under its own name."""

    def add(
        option: str, parse: Callable[[str, str], Any], description: str, **settings: Any
    ) -> None:
        parse_option = functools.partial(parse, option)
        parser.add_argument(option, type=parse_option, help=description, **settings)

    rows, pair = {"metavar": "ROWS|FILE"}, {"metavar": "N|NxM"}
    array_help = (
        'rows separated by ";", as in "1 3; 4 2" (nan and -inf too), or a .npy, .csv or image file'
    )
    add("--array", read_array, array_help, default=DEFAULT_ARRAY, **rows)
    op_help = f"{', '.join(OPS)}, or any public function (default: max)"
    parser.add_argument("--op", default="max", help=op_help)
    size_help = "2, or 2x3 for rows x columns (default: 2)"
    add("--window", _parse_sizes, size_help, dest="window_shape", **pair)
    add("--stride", _parse_sizes, "like --window (default: 2)", dest="strides", **pair)
    dilation_help = "distance between taps, like --window (default: 1)"
    add("--dilation", _parse_sizes, dilation_help, dest="window_dilation", **pair)
    padding_help = (
        "VALID, SAME, SAME_LOWER, 1, 1x1 or low:high pairs as in 0:1x0:1 (default: VALID)"
    )
    add("--padding", _parse_padding, padding_help)
    parser.add_argument(
        "--ceil-mode", action="store_true", default=None, help="round the output size up"
    )
    add("--ties", _parse_ties, "first, last or split: who gets the cotangent (default: first)")
    parser.add_argument(
        "--count-include-pad",
        action=argparse.BooleanOptionalAction,
        help="whether an average counts padding (default: it does)",
    )
    divisor_help = "what an average divides by in place of a count"
    add("--divisor", _parse_number, divisor_help, metavar="NUMBER")
    p_help = "the norm of lp: a number above 0, or inf (default: 2)"
    add("--p", _parse_number, p_help, metavar="NUMBER")
    rank_help = "0 is the smallest element of a window, -1 the largest (default: 0)"
    parse_rank = functools.partial(parse_integer, minimum=-MAX_NUMBERS, maximum=MAX_NUMBERS)
    add("--rank", parse_rank, rank_help, metavar="N")
    to_help = "output size of an adaptive pool (default: 2)"
    add("--to", _parse_sizes, to_help, dest="output_shape", **pair)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another argument of the function, as in k=3 (any public function can be --op)",
    )
    cotangent_help = "dy, of the size of the output, or one number for all of it (default: 1)"
    add("--cotangent", _parse_cotangent, cotangent_help, **rows)
    file = {"metavar": "FILE"}
    add(
        "--png", functools.partial(output_path, suffix=".png"), "also draw it, as a picture", **file
    )
    html_help = "also write a page to explore it in a browser, without network"
    add("--html", functools.partial(output_path, suffix=".html"), html_help, **file)
    parser.add_argument("--json", action="store_true", help="print it for programs to read")


def run(args: argparse.Namespace) -> int:
    """Print the explanation. With --png and --html also write a picture and a page."""
    if args.png is not None:
        require_modules("demo", "matplotlib")

    from jaxpool._cli import _route_text
    from jaxpool._cli._function_call import OPTION_OF_ARGUMENT, make_call
    from jaxpool._cli._route import route_cotangents

    record = _find_record(args)
    array, notes = args.array
    settings = {name: vars(args)[name] for name in OPTION_OF_ARGUMENT}
    settings = {name: value for name, value in settings.items() if value is not None}
    try:
        call = make_call(record, array, settings, args.set)
        call.check_arguments()
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    route = route_cotangents(call, args.cotangent)
    show = _route_text.route_as_json if args.json else _route_text.route_as_text
    print(show(route, notes))
    try:
        if args.png is not None:
            from jaxpool._cli._route_picture import draw_figure

            draw_figure(route).savefig(args.png, dpi=150)
        if args.html is not None:
            from jaxpool._cli._page import html_page

            args.html.write_text(html_page(route, settings, args.set), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"nothing could be written: {error}.") from None
    for label, path in (("Picture", args.png), ("Page", args.html)):
        if path is not None and not args.json:
            print(f"\n{label}: {path}")
    return 0


def _find_record(args: argparse.Namespace) -> Any:
    """The record of the public function that `--op` names."""
    from jaxpool._cli._function_call import WINDOWED_FUNCTIONS, find_record

    record = find_record(args.op.replace("-", "_"))
    if record is None:
        rule = f"one of {', '.join(OPS)}, or another public function of an array"
        raise option_error("--op", rule, shorten_text(args.op))
    if args.set and record.name in WINDOWED_FUNCTIONS:
        raise UsageError(
            f"`--set` goes with the functions that no option is for; got --op={args.op}."
        )
    for option, value in (("--html", args.html), ("--cotangent", args.cotangent)):
        if record.marks and value is not None:
            raise UsageError(
                f"`{option}` does not go with --op {record.name}, whose boolean result has no gradient."
            )
    return record


def _parse_sizes(option: str, text: str) -> tuple[int, int]:
    sizes = [int(size) if _is_digits(size) else 0 for size in text.split("x")]
    if len(sizes) not in (1, 2) or min(sizes) < 1:
        raise option_error(option, "a positive integer or two, as in 2x3", shorten_text(text))
    if max(sizes) > MAX_NUMBERS:
        raise option_error(option, f"at most {MAX_NUMBERS}", text)
    return sizes[0], sizes[-1]


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _parse_padding(option: str, text: str) -> str | tuple[tuple[int, int], tuple[int, int]]:
    if text in ("VALID", "SAME", "SAME_LOWER"):
        return text
    axes = [axis.split(":") for axis in text.split("x")]
    sizes = [[int(size) for size in axis] for axis in axes if all(map(_is_digits, axis))]
    if len(axes) > 2 or len(sizes) < len(axes) or any(len(axis) > 2 for axis in sizes):
        rule = "VALID, SAME, SAME_LOWER, an integer of 0 or more, or one integer or low:high pair per axis, as in 0:1x2"
        raise option_error(option, rule, shorten_text(text))
    if max(map(max, sizes)) > MAX_NUMBERS:
        raise option_error(option, f"at most {MAX_NUMBERS}", text)
    pairs = [(axis[0], axis[-1]) for axis in sizes]
    return pairs[0], pairs[-1]


def _parse_ties(option: str, text: str) -> str:
    if text not in ("first", "last", "split"):
        raise option_error(option, "first, last or split", shorten_text(text))
    return text


def _parse_number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if option == "--p" and not value > 0:
        raise option_error(option, "a number above 0, or inf", shorten_text(text))
    if option == "--divisor" and not (value != 0 and abs(value) < float("inf")):
        raise option_error(option, "a number other than 0", shorten_text(text))
    return value


def _parse_cotangent(option: str, text: str) -> Any:
    dy, _ = read_array(option, text)
    if not abs(dy).max() < float("inf"):
        raise UsageError(f"`{option}` must be finite numbers; it holds a nan or an inf.")
    return dy
