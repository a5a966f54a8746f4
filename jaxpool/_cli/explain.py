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
import re
from typing import Any

from jaxpool._cli import (
    UsageError,
    integer_between,
    option_error,
    output_path,
    quote_text,
    require_modules,
)
from jaxpool._cli._array import MAX_NUMBERS, read_array

DEFAULT_ARRAY = "1 3 4 2 5 2; 4 2 5 6 8 3; 5 3 7 8 9 3; 8 4 3 6 0 2; 7 10 3 6 3 5; 4 7 2 4 7 8"
OPS = (
    *("max", "min", "avg", "sum", "lp", "median", "rank", "unpool"),
    *("dilate", "erode", "adaptive_max", "adaptive_avg"),
)
OWN_OPTIONS = ("array", "op", "set", "cotangent", "png", "html", "json")


def _parse_sizes(text: str) -> tuple[int, int]:
    if not re.fullmatch("[0-9]{1,3}(x[0-9]{1,3})?", text):
        raise option_error("a positive integer or two, as in 2x3", text)
    sizes = [int(size) for size in text.split("x")]
    return sizes[0], sizes[-1]


def _parse_padding(text: str) -> Any:
    """The shortest form of a padding: a name, an integer for all sides, an integer per axis, or a pair per axis."""
    if text in ("VALID", "SAME", "SAME_LOWER"):
        return text
    axis = "[0-9]{1,3}(:[0-9]{1,3})?"
    if not re.fullmatch(f"{axis}(x{axis})?", text):
        rule = "VALID, SAME, SAME_LOWER, an integer of 0 or more, or one integer or low:high pair per axis, as in 0:1x2"
        raise option_error(rule, text)
    axes = [[int(size) for size in sizes.split(":")] for sizes in text.split("x")]
    pairs = [(sizes[0], sizes[-1]) for sizes in (axes[0], axes[-1])]
    if any(low != high for low, high in pairs):
        return tuple(pairs)
    rows, columns = (low for low, _ in pairs)
    return rows if rows == columns else (rows, columns)


def _parse_cotangent(text: str) -> Any:
    dy, _ = read_array(text)
    if not abs(dy).max() < float("inf"):
        raise option_error("finite numbers", text)
    return dy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `explain`."""
    rows: dict[str, Any] = {"metavar": "ROWS|FILE"}
    sizes: dict[str, Any] = {"type": _parse_sizes, "metavar": "N|NxM"}
    add = parser.add_argument
    array_help = (
        'rows separated by ";", as in "1 3; 4 2" (nan and -inf too), or a .npy, .csv or image file'
    )
    add("--array", type=read_array, default=DEFAULT_ARRAY, help=array_help, **rows)
    add("--op", default="max", help=f"{', '.join(OPS)}, or any public function (default: max)")
    # Each argument of the function is stored under its own name.
    window_help = "2, or 2x3 for rows x columns (default: 2)"
    add("--window", dest="window_shape", help=window_help, **sizes)
    add("--stride", dest="strides", help="like --window (default: 2)", **sizes)
    dilation_help = "distance between taps, like --window (default: 1)"
    add("--dilation", dest="window_dilation", help=dilation_help, **sizes)
    padding_help = (
        "VALID, SAME, SAME_LOWER, 1, 1x1 or low:high pairs as in 0:1x0:1 (default: VALID)"
    )
    add("--padding", type=_parse_padding, help=padding_help)
    add("--ceil-mode", action="store_true", default=None, help="round the output size up")
    ties_help = "who gets the cotangent (default: first)"
    add("--ties", choices=("first", "last", "split"), help=ties_help)
    count_help = "whether an average counts padding (default: it does)"
    add("--count-include-pad", action=argparse.BooleanOptionalAction, help=count_help)
    add("--divisor", type=float, help="what an average divides by in place of a count")
    add("--p", type=float, help="the norm of lp: a number above 0, or inf (default: 2)")
    rank_help = "0 is the smallest element of a window, -1 the largest (default: 0)"
    add("--rank", type=integer_between(-MAX_NUMBERS, MAX_NUMBERS - 1), help=rank_help)
    to_help = "output size of an adaptive pool (default: 2)"
    add("--to", dest="output_shape", help=to_help, **sizes)
    set_help = "another argument of the function, as in k=3 (any public function can be --op)"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=set_help)
    cotangent_help = "dy, of the size of the output, or one number for all of it (default: 1)"
    add("--cotangent", type=_parse_cotangent, help=cotangent_help, **rows)
    png_help = "also draw it, as a picture"
    add("--png", type=output_path(".png"), metavar="FILE", help=png_help)
    html_help = "also write a page to explore it in a browser, without network"
    add("--html", type=output_path(".html"), metavar="FILE", help=html_help)
    add("--json", action="store_true", help="print it for programs to read")


def run(args: argparse.Namespace) -> int:
    """Print the explanation. With --png and --html also write a picture and a page."""
    if args.png is not None:
        require_modules("demo", "matplotlib")

    from jaxpool._cli import _route_text
    from jaxpool._cli._function_call import make_call
    from jaxpool._cli._route import route_cotangents

    record = _find_record(args)
    array, notes = args.array
    settings = {
        name: value
        for name, value in vars(args).items()
        if name not in OWN_OPTIONS and value is not None
    }
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
        raise UsageError(f"`--op` must be {rule}; got {quote_text(args.op)}.")
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
