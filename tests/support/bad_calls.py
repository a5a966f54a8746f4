"""Malformed calls and their error messages, read from `tests/api/bad_calls.txt`.

`python -m tests.support.bad_calls CALL ...` prints rows for that table. Review them, and shorten the message to the
parts that state the rule.
"""

import collections
import importlib
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape
from jax.sharding import PartitionSpec

import jaxpool

ARROW = "  ->  "
TABLE = Path(__file__).parents[1] / "api" / "bad_calls.txt"
X = np.zeros((1, 4, 5, 2), np.float32)
NAMESPACE = {name: getattr(jaxpool, name) for name in jaxpool.__all__} | {
    "X": X,
    "IMAGES": np.zeros((1, 3, 8, 8), np.float32),
    "AT": np.zeros(X.shape, np.int32),
    "KEY": jax.random.key(0, impl="threefry2x32"),
    "MESH": jax.make_mesh((1,), ("rows",)),
    "P": PartitionSpec,
    "SYMBOLIC": [
        jax.ShapeDtypeStruct(symbolic_shape("2, 3, n"), dtype) for dtype in (np.float32, np.int32)
    ],
    "collections": collections,
    "jax": jax,
    "jnp": jnp,
    "np": np,
}
EXTRAS = {
    "torch": "jaxpool",
    "scipy": "jaxpool",
    "torchvision": "jaxpool",
    "flax": "flax",
    "haiku": "haiku",
    "equinox": "equinox",
}


def read(table=TABLE):
    """Return pairs of a call and the parts of its message, which `…` separates."""
    lines = [
        line for line in table.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"
    ]
    return [tuple(line.split(ARROW)) for line in lines]


def matches_parts(message, parts):
    """Return True if a message begins with the first of the parts and has the others, in their order."""
    pattern = ".*".join(map(re.escape, parts.split("…")))
    return re.match(pattern, message, re.DOTALL) is not None


def exception_text(call):
    """Return type and message of the exception of a call."""
    known = dict(NAMESPACE)
    for room in re.findall(rf"(?<![.\w])({'|'.join(EXTRAS)})\.", call):
        pytest.importorskip(EXTRAS[room])
        known[room] = importlib.import_module(f"jaxpool.compat.{room}")
    try:
        eval(call, known)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(f"{each}{ARROW}{exception_text(each)}")
