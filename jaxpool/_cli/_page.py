"""The HTML page of `explain`: one file without network access, assembled from the files in `page/`.

`page/arithmetic.js` computes the pools in JavaScript. `page/page.js` and `page/marks.js` show them.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import Any

import numpy as np

from jaxpool._cli._route import CotangentRoute, PoolSettings

PAGE_FILES = {
    "style": "page.css",
    "arithmetic": "arithmetic.js",
    "marks": "marks.js",
    "script": "page.js",
}


MAX_INITIAL_LINKS = 4000  # links between outputs and inputs; more would make the page large


def html_page(route: CotangentRoute, dy: np.ndarray | None = None) -> str:
    """The HTML page of a route. The first view shows the route for the cotangent `dy`; None is 1 everywhere.

    After a change of a control, `page/arithmetic.js` computes the pool. Other functions have only the first view.
    """
    settings = route.settings
    controls = settings if isinstance(settings, PoolSettings) else PoolSettings(op=settings.op)
    initial_state = {
        "settings": {
            name: _setting_as_json(value) for name, value in dataclasses.asdict(controls).items()
        },
        "array": _rows_as_text(route.array),
        "cotangent": "1" if dy is None else _rows_as_text(dy),
        "first": _initial_view(route),
    }
    folder = importlib.resources.files("jaxpool._cli") / "page"
    html = (folder / "page.html").read_text(encoding="utf-8")
    for name, file_name in PAGE_FILES.items():
        html = html.replace(f"/*{{{name}}}*/", (folder / file_name).read_text(encoding="utf-8"))
    return html.replace("{start}", json.dumps(initial_state).replace("<", "\\u003c"))


def _initial_view(route: CotangentRoute) -> dict[str, Any] | None:
    """The first view: values, and the inputs of each output as [flat position, share of the cotangent].

    None if the page can compute the pool and there are more than `MAX_INITIAL_LINKS` such inputs.
    """
    num_links = int(route.input_masks.sum())
    if route.settings.has_window and num_links > MAX_INITIAL_LINKS:
        return None
    links = [
        [
            [
                int(np.ravel_multi_index(position, route.x.shape)),
                _number_as_json(route.cotangent_shares[output][tuple(position)]),
            ]
            for position in np.argwhere(route.input_masks[output])
        ]
        for output in np.ndindex(route.y.shape)
    ]
    return {
        "call": route.settings.source_code(route.array.shape),
        "selects": route.settings.selects_elements,
        "windowed": route.settings.has_window,
        "links": links,
        **{name: _grid_as_json(getattr(route, name)) for name in ("y", "dx")},
    }


def _grid_as_json(values: np.ndarray) -> dict[str, Any]:
    rows, cols = values.shape
    return {
        "rows": rows,
        "cols": cols,
        "values": [_number_as_json(value) for value in values.ravel()],
    }


def _number_as_json(value: Any) -> float | str:
    """A number for JSON; NaN and infinities, which JSON lacks, as strings."""
    return float(value) if np.isfinite(value) else str(float(value))


def _setting_as_json(value: Any) -> Any:
    return repr(value).removesuffix(".0") if isinstance(value, float) else value


def _rows_as_text(array: np.ndarray) -> str:
    """Rows of numbers as text, with the fewest digits that identify a float32, as NumPy prints them."""
    return "\n".join(" ".join(str(value).removesuffix(".0") for value in row) for row in array)
