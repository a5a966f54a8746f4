"""The HTML page of `explain`: `page.html` with a route for each choice of its controls. It needs no network."""

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
from jaxpool._cli._function_call import find_record, make_call
from jaxpool._cli._route import CotangentRoute, route_cotangents
from jaxpool._cli._route_text import receivers_text
from jaxpool._cli.explain import OPS

OTHER_ARRAYS = {
    "ties": "1 1 2 2; 1 1 2 2; 3 3 3 3; 3 3 3 3",
    "nan and -inf": "nan 1 -inf -inf; 2 nan -inf -inf; 3 -inf 0 4; -inf 5 4 0",
}
# Links between outputs and inputs, in each route but the first. More would make the page large.
MAX_LINKS = 4000
# The values that the page offers of each argument, in addition to the value of the call.
CHOICES: dict[str, tuple[Any, ...]] = {
    "window_shape": ((2, 2), (3, 3)),
    "strides": ((2, 2), (1, 1)),
    "padding": ("VALID", "SAME"),
    "window_dilation": ((1, 1), (2, 2)),
    "ceil_mode": (False, True),
    "output_shape": ((2, 2), (3, 3), (4, 4)),
    "p": (2.0, 1.0, float("inf")),
    "rank": (0, -1),
    "count_include_pad": (True, False),
    "ties": ("first", "last", "split"),
}


def html_page(route: CotangentRoute, settings: dict[str, Any], set_options: list[str]) -> str:
    """The HTML page of `explain`, which shows the inputs that each cotangent of a call goes to.

    `settings` are the arguments of the call by name, and `set_options` the texts of `--set`. The first choice of each
    control is the value in the call.
    """
    call = route.call.pooling or route.call
    defaults = {name: parameter.default for name, parameter in call.record.parameters.items()}
    call_arguments = defaults | call.arguments | settings
    records = {each.name: each for each in [route.call.record, *map(find_record, OPS)]}
    arrays = {"the array": call.array}
    arrays |= {name: read_array(text)[0] for name, text in OTHER_ARRAYS.items()}
    choices = {name: _choices_of_function(each, call_arguments) for name, each in records.items()}
    routes = {}
    for name, array_name in itertools.product(records, arrays):
        is_called_function = name == route.call.record.name
        for values in itertools.product(*choices[name].values()):
            chosen = dict(zip(choices[name], values, strict=True))
            arguments = settings | chosen if is_called_function else chosen
            key = "|".join([name, array_name, *map(_text, values)])
            options = set_options if is_called_function else []
            routes[key] = _route_or_refusal(records[name], arrays[array_name], arguments, options)
    routes[next(iter(routes))] = _route_as_dict(route)
    page_data = {
        "dy": _grid_as_dict(route.dy)["values"],
        "choices": {
            name: {argument: [*map(_text, values)] for argument, values in each.items()}
            for name, each in choices.items()
        },
        "arrays": [*arrays],
        "routes": base64.b64encode(zlib.compress(json.dumps(routes).encode())).decode(),
    }
    template = (importlib.resources.files("jaxpool._cli") / "page.html").read_text("utf-8")
    return template.replace("{data}", json.dumps(page_data).replace("<", "\\u003c"))


def _choices_of_function(record: Any, call_arguments: dict[str, Any]) -> dict[str, list[Any]]:
    """The values that the page offers for each argument of a function.

    The value in `call_arguments` is the first, if it is a number, a text or a tuple.
    """
    if record.name == "max_unpool":
        record = find_record("max_pool_with_argmax")
    choices: dict[str, list[Any]] = {}
    for name, values in CHOICES.items():
        if record.takes(name) or (name == "window_shape" and record.takes("kernel")):
            values = record.ties if name == "ties" else values
            first = call_arguments.get(name)
            has_text = isinstance(first, (bool, int, float, str, tuple))
            choices[name] = [*dict.fromkeys((first if has_text else values[0], *values))]
    return choices


def _text(value: Any) -> str:
    """The value of an argument as in an option, such as 2x3 or 0:1x2:2."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "x".join(
            ":".join(map(str, side)) if isinstance(side, tuple) else str(side) for side in value
        )
    return str(value).removesuffix(".0")


def _route_or_refusal(
    record: Any, array: np.ndarray, arguments: dict[str, Any], set_options: list[str]
) -> dict[str, Any]:
    """The route for `page.html`, or the message of an invalid call."""
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
    """A route for `page.html`. `links` has the inputs of each output as [flat position, share of the cotangent]."""
    links = []
    for output in np.ndindex(route.y.shape):
        positions = np.flatnonzero(route.input_masks[output])
        shares = route.cotangent_shares[output].ravel()[positions]
        links.append([*zip(positions.tolist(), map(_number, shares), strict=True)])
    return {
        "call": route.call.source_code(),
        "x": _grid_as_dict(route.x),
        "y": _grid_as_dict(route.y),
        "links": links,
        "receivers": [receivers_text(route, output) for output in np.ndindex(route.y.shape)],
    }


def _grid_as_dict(values: np.ndarray) -> dict[str, Any]:
    return {"cols": values.shape[1], "values": [_number(value) for value in values.ravel()]}


def _number(value: Any) -> float | str:
    """A float32 with the fewest digits that identify it; NaN and infinities, which JSON lacks, as in JavaScript."""
    text = str(np.float32(value))
    return float(text) if np.isfinite(value) else text.replace("inf", "Infinity")
