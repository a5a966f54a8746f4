"""The HTML page of `explain`: one file without network access, assembled from the files in `page/`.

The page holds a route for each choice of its controls, which `page/page.js` and `page/marks.js` show.
"""

from __future__ import annotations

import base64
import importlib.resources
import itertools
import json
import zlib
from typing import Any

import numpy as np

from jaxpool._cli import UsageError
from jaxpool._cli._array import read_array
from jaxpool._cli._function_call import FunctionCall, find_record, make_call
from jaxpool._cli._route import CotangentRoute, route_cotangents
from jaxpool._cli.explain import OPS
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Axis

PAGE_FILES = {"style": "page.css", "marks": "marks.js", "script": "page.js"}
OTHER_ARRAYS = {
    "ties": "1 1 2 2; 1 1 2 2; 3 3 3 3; 3 3 3 3",
    "nan and -inf": "nan 1 -inf -inf; 2 nan -inf -inf; 3 -inf 0 4; -inf 5 4 0",
}
# Links between outputs and inputs, in each route but the first. More would make the page large.
MAX_LINKS = 4000
# The values that the page offers of each argument, in addition to the value of the call. The first is the default.
CHOICES: dict[str, tuple[Any, ...]] = {
    "window_shape": ((2, 2), (3, 3)),
    "strides": ((2, 2), (1, 1)),
    "padding": ("VALID", "SAME"),
    "window_dilation": ((1, 1), (2, 2)),
    "ceil_mode": (False, True),
    "output_shape": ((2, 2), (3, 3), (4, 4)),
    "p": (2.0, 1.0, float("inf")),
    "rank": (0, -1),
    "divisor": (None,),
    "count_include_pad": (True, False),
    "ties": ("first", "last", "split"),
}


def html_page(route: CotangentRoute, settings: dict[str, Any], set_options: list[str]) -> str:
    """The HTML page of `explain`, which shows the inputs that each cotangent of a call goes to.

    `settings` are the arguments of the call by name, and `set_options` the texts of `--set`. The page starts with the
    route, and has the routes of all other choices.
    """
    record = route.call.record
    records = {each.name: each for each in [*map(find_record, OPS), record]}
    arrays = {"the array": (route.call.pooling or route.call).array}
    arrays |= {name: read_array("--array", text)[0] for name, text in OTHER_ARRAYS.items()}
    start = _values_in_call(route.call, settings)
    choices = {name: _choices_of_function(each, start) for name, each in records.items()}
    routes = {}
    for name, array_name in itertools.product(records, arrays):
        own_options = set_options if name == record.name else []
        for values in itertools.product(*choices[name].values()):
            chosen = dict(zip(choices[name], values, strict=True))
            key = "|".join([name, array_name, *map(_text, values)])
            routes[key] = _route_or_refusal(records[name], arrays[array_name], chosen, own_options)
    start_texts = {"op": record.name, "array": "the array"}
    start_texts |= {name: _text(start[name]) for name in choices[record.name]}
    routes["|".join(start_texts.values())] = _route_as_dict(route)
    page_data = {
        "start": start_texts,
        "dy": _grid_as_dict(route.dy),
        "choices": {
            name: {argument: [*map(_text, values)] for argument, values in each.items()}
            for name, each in choices.items()
        },
        "arrays": [*arrays],
        "routes": base64.b64encode(zlib.compress(json.dumps(routes).encode())).decode(),
    }
    folder = importlib.resources.files("jaxpool._cli") / "page"
    html = (folder / "page.html").read_text(encoding="utf-8")
    for name, file_name in PAGE_FILES.items():
        html = html.replace(f"/*{{{name}}}*/", (folder / file_name).read_text(encoding="utf-8"))
    return html.replace("{start}", json.dumps(page_data).replace("<", "\\u003c"))


def _values_in_call(call: FunctionCall, settings: dict[str, Any]) -> dict[str, Any]:
    """The value of each argument in `CHOICES`: of the call, or a default."""
    call = call.pooling or call
    defaults = {name: parameter.default for name, parameter in call.record.parameters.items()}
    known = defaults | call.arguments | settings
    return {
        name: known[name]
        if isinstance(known.get(name), (bool, int, float, str, tuple))
        else values[0]
        for name, values in CHOICES.items()
    }


def _choices_of_function(record: Any, start: dict[str, Any]) -> dict[str, list[Any]]:
    """The values that the page offers of each argument of a function: of `CHOICES`, and the first value."""
    if record.name == "max_unpool":
        record = find_record("max_pool_with_argmax")
    choices: dict[str, list[Any]] = {}
    for name, values in CHOICES.items():
        if record.takes(name) or (name == "window_shape" and record.takes("kernel")):
            values = record.ties if name == "ties" else values
            choices[name] = [*dict.fromkeys((*values, start[name]))]
    return choices


def _text(value: Any) -> str:
    """The value of an argument as in an option, such as 2x3 or 0:1x2:2."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        sides = [
            ":".join(map(str, side)) if isinstance(side, tuple) else str(side) for side in value
        ]
        return "x".join(sides)
    return "count" if value is None else str(value).removesuffix(".0")


def _route_or_refusal(
    record: Any, array: np.ndarray, arguments: dict[str, Any], set_options: list[str]
) -> dict[str, Any]:
    """The route for `page.js`, or the message of an invalid call."""
    try:
        call = make_call(record, array, arguments, set_options)
        if arguments.get("rank", 0) not in (0, -1):
            call.check_arguments()  # the oracle accepts a rank that a window does not have
        route = route_cotangents(call)
        if route.input_masks.sum() > MAX_LINKS:
            return {"refusal": "The windows are too many and too large for this page."}
        return _route_as_dict(route)
    except (TypeError, ValueError, UsageError) as error:
        return {"refusal": str(error)}


def _route_as_dict(route: CotangentRoute) -> dict[str, Any]:
    """A route for `page.js`. `links` has the inputs of each output as [flat position, share of the cotangent]."""
    links = []
    for output in np.ndindex(route.y.shape):
        positions = np.flatnonzero(route.input_masks[output])
        shares = route.cotangent_shares[output].ravel()[positions]
        pairs = zip(positions.tolist(), map(_number, shares), strict=True)
        links.append([*map(list, pairs)])
    window = route.call.window
    return {
        "call": route.call.source_code(),
        "names": route.call.array_names,
        "selects": route.call.selects_elements,
        "input": _grid_as_dict(route.x),
        "output": _grid_as_dict(route.y),
        "links": links,
        "windows": None if window is None else [_windows_along_axis(dim) for dim in window.dims],
    }


def _windows_along_axis(dim: Axis) -> list[dict[str, Any]]:
    """The first and last position of each window, padding included, and its taps inside the array."""
    windows = []
    for start, positions in zip(dim.starts().tolist(), dim.tap_positions().tolist(), strict=True):
        taps = [position for position in positions if position < dim.size]
        last = taps[-1] if isinstance(dim, RaggedAxis) else start + dim.span - 1
        windows.append({"start": start, "last": last, "taps": taps})
    return windows


def _grid_as_dict(values: np.ndarray) -> dict[str, Any]:
    rows, cols = values.shape
    return {"rows": rows, "cols": cols, "values": [_number(value) for value in values.ravel()]}


def _number(value: Any) -> float | str:
    """A float32 with the fewest digits that identify it; NaN and infinities, which JSON lacks, as in JavaScript."""
    text = str(np.float32(value))
    return float(text) if np.isfinite(value) else text.replace("inf", "Infinity")
