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

from jaxpool._cli._route import Settings

PARTS = {
    "style": "page.css",
    "arithmetic": "arithmetic.js",
    "marks": "marks.js",
    "script": "page.js",
}


def page(settings: Settings, array: np.ndarray, dy: np.ndarray | None = None) -> str:
    """HTML that begins with a pool of `array` and the cotangent `dy`, ones where it is None."""
    start = {
        "settings": {name: _plain(value) for name, value in dataclasses.asdict(settings).items()},
        "array": _rows(array),
        "cotangent": "1" if dy is None else _rows(dy),
    }
    folder = importlib.resources.files("jaxpool._cli") / "page"
    html = (folder / "page.html").read_text(encoding="utf-8")
    for name, file in PARTS.items():
        html = html.replace(f"/*{{{name}}}*/", (folder / file).read_text(encoding="utf-8"))
    return html.replace("{start}", json.dumps(start).replace("<", "\\u003c"))


def _plain(value: Any) -> Any:
    return repr(value).removesuffix(".0") if isinstance(value, float) else value


def _rows(array: np.ndarray) -> str:
    """The numbers in as few digits as tell a float32 from its neighbours, as NumPy writes them."""
    return "\n".join(" ".join(str(value).removesuffix(".0") for value in row) for row in array)
