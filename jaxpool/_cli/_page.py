"""The page of `explain`: one file without network, joined from those in `page/`.

`page/arithmetic.js` does in JavaScript what the library does, `page/page.js` and
`page/marks.js` show it.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import Any

import numpy as np

from jaxpool._cli._route import Route, Settings

PARTS = {
    "style": "page.css",
    "arithmetic": "arithmetic.js",
    "marks": "marks.js",
    "script": "page.js",
}


MOST_LINKS = 4000  # of a first view that Python computed: more would be a large page


def page(route: Route, dy: np.ndarray | None = None) -> str:
    """HTML that begins with a route, as Python computed it, and the cotangent `dy`, ones where it is None.

    From the first change on `page/arithmetic.js` computes; of functions that it does not know the view is all.
    """
    settings = route.settings
    known = settings if isinstance(settings, Settings) else Settings(op=settings.op)
    start = {
        "settings": {name: _plain(value) for name, value in dataclasses.asdict(known).items()},
        "array": _rows(route.array),
        "cotangent": "1" if dy is None else _rows(dy),
        "first": _first(route),
    }
    folder = importlib.resources.files("jaxpool._cli") / "page"
    html = (folder / "page.html").read_text(encoding="utf-8")
    for name, file in PARTS.items():
        html = html.replace(f"/*{{{name}}}*/", (folder / file).read_text(encoding="utf-8"))
    return html.replace("{start}", json.dumps(start).replace("<", "\\u003c"))


def _first(route: Route) -> dict[str, Any] | None:
    """The numbers of the first view, and for each output what it looks at: [place, share of its cotangent]."""
    count = int(route.members.sum())
    if route.settings.windowed and count > MOST_LINKS:
        return None
    links = [
        [
            [int(np.ravel_multi_index(at, route.x.shape)), _number(route.shares[output][tuple(at)])]
            for at in np.argwhere(route.members[output])
        ]
        for output in np.ndindex(route.y.shape)
    ]
    return {
        "call": route.settings.call(route.array.shape),
        "selects": route.settings.selects,
        "windowed": route.settings.windowed,
        "links": links,
        **{name: _grid(getattr(route, name)) for name in ("y", "dx")},
    }


def _grid(values: np.ndarray) -> dict[str, Any]:
    rows, cols = values.shape
    return {"rows": rows, "cols": cols, "values": [_number(value) for value in values.ravel()]}


def _number(value: Any) -> float | str:
    """A number of JSON, which has none for NaN and infinities."""
    return float(value) if np.isfinite(value) else str(float(value))


def _plain(value: Any) -> Any:
    return repr(value).removesuffix(".0") if isinstance(value, float) else value


def _rows(array: np.ndarray) -> str:
    """The numbers in as few digits as tell a float32 from its neighbours, as NumPy writes them."""
    return "\n".join(" ".join(str(value).removesuffix(".0") for value in row) for row in array)
