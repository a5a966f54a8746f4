"""The `Route` of any public function of an array, from its Jacobian; for the functions that `_route` lacks.

The Jacobian shows the elements that each output depends on, so no function needs code of its own. Default arguments
are those of its record (`jaxpool.testing.pools`).
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import numpy as np

from jaxpool._cli import UsageError, shown
from jaxpool._cli._array import LARGEST
from jaxpool._cli._route import Route, cotangent_of

# The command-line option that sets each argument.
ARGUMENTS = {
    "window_shape": "window",
    "strides": "stride",
    "padding": "padding",
    "window_dilation": "dilation",
    "ceil_mode": "ceil_mode",
    "ties": "ties",
    "count_include_pad": "count_include_pad",
    "divisor": "divisor",
    "p": "p",
    "rank": "rank",
    "output_shape": "to",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Anything:
    """A call of a public function on one array, as an image (1, rows, columns, 1)."""

    pool: Any
    given: dict[str, Any]
    image: np.ndarray

    @property
    def op(self) -> str:
        """The name of the function."""
        return str(self.pool.name)

    @property
    def selects(self) -> bool:
        """Whether outputs are elements of the input rather than sums of them."""
        return not self.pool.rounds(self.given)

    @property
    def in_parts(self) -> bool:
        """Whether shares are printed as fractions, such as 1/3."""
        return not self.pool.tolerance

    @property
    def marks(self) -> bool:
        """Whether outputs are bools, which have no gradient."""
        return bool(self.pool.marks)

    windowed = False  # `members` comes from the Jacobian, not from a window

    def as_dict(self) -> dict[str, Any]:
        """The settings for `--json`."""
        return {"op": self.op} | {
            name: value
            if isinstance(value, (bool, int, float, str, tuple, type(None)))
            else _code(value, name)
            for name, value in self.given.items()
            if name not in self.pool.operands
        }

    def call(self, shape: tuple[int, ...]) -> str:
        """The call as Python source."""
        words = []
        for name, value in self.given.items():
            first = name == self.pool.operands[0]
            if name == "xs":
                words += ["x", *_others(value)]
            elif name == "features":
                words.append(f"[{', '.join([_image(value[0]), *_others(value)])}]")
            elif first:
                words.append(_image(value))
            else:
                default = self.pool.parameters[name].default
                needed = default is self.pool.parameters[name].empty
                if needed or value is not default:
                    words.append(_code(value, name) if needed else f"{name}={_code(value, name)}")
        return f"jaxpool.{self.op}({', '.join(words)})"


def _image(value: Any) -> str:
    """Source that reshapes x to the shape of images."""
    return "x[None, ..., None]" if np.ndim(value) == 4 else "x[..., None]"


def _others(values: Any) -> list[str]:
    """Source of all arrays but the first, which is x."""
    return [_code(each, f"x{n}") for n, each in enumerate(values[1:], 2)]


def _code(value: Any, name: str) -> str:
    """A value as Python source, with a large array as its name."""
    if hasattr(value, "dtype") and str(value.dtype).startswith("key"):
        return "jax.random.key(0)"
    if isinstance(value, np.ndarray):
        flat = value.squeeze() if value.ndim > 2 else value
        return f"jnp.array({flat.tolist()})" if value.size <= 24 else name
    return f'"{value}"' if isinstance(value, str) else repr(value)


def named(op: str) -> Any:
    """The record of the public function `op`, where the suffix "_pool" may be left out; None if there is none."""
    from jaxpool.testing import pools

    known = pools()
    return known.get(op) or known.get(f"{op}_pool")


def call_of(pool: Any, array: np.ndarray, settings: dict[str, Any], more: list[str]) -> Anything:
    """The call on an array; `more` holds the values of `--set`. Raises `UsageError` for unknown arguments."""
    for name in settings:
        if not pool.takes(name):
            raise UsageError(
                f"`--{ARGUMENTS[name].replace('_', '-')}` does not go with --op {pool.name}."
            )
    for text in more:
        name, _, value = text.partition("=")
        if not pool.takes(name) or name in pool.operands:
            takes = ", ".join(each for each in pool.parameters if each not in pool.operands)
            raise UsageError(
                f"`--set` must be of an argument of {pool.name}, {takes}; got {shown(text)}."
            )
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
        if isinstance(settings[name], list):
            settings[name] = np.array(settings[name])
    if pool.takes("window_shape", "strides"):
        settings.setdefault("strides", (2, 2))
    if pool.takes("axis"):
        settings.setdefault("axis", -3)
    if "segment_ids" in settings:  # the record's number of segments does not fit these ids
        settings.setdefault("num_segments", None)
    if "boxes" in settings:  # all boxes are in the only image
        count = np.shape(settings["boxes"])[:-1]
        settings.setdefault("batch_indices", np.zeros(count, np.int32))
    image = array[None, :, :, None]
    first = {} if pool.takes("segment_ids") or "x" not in pool.operands else {"x": image}
    return Anything(pool, pool.given(image, **settings | first), image)


def trace(call: Anything, array: np.ndarray, dy: np.ndarray | None = None) -> Route:
    """The value of the function on the array, and its Jacobian with one row per output."""
    import jax

    pool = call.pool
    (main, *_) = pool.operands

    def pooled(x: jax.Array) -> jax.Array:
        arguments = dict(call.given)
        value = arguments[main]
        arguments[main] = (
            (x.reshape(value[0].shape), *value[1:])
            if isinstance(value, tuple)
            else x.reshape(value.shape)
        )
        y = pool.run(arguments)
        y = y[0] if isinstance(y, tuple) else y
        sizes = [size for size in y.shape if size > 1] or [1]
        return y.reshape(sizes[0] if len(sizes) > 1 else 1, -1)

    def route(x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, pull_back = jax.vjp(pooled, x)
        return y, pull_back(dy)[0]

    out = jax.eval_shape(pooled, array).shape
    if out[0] * out[1] > LARGEST:
        raise UsageError(f"The output must have at most {LARGEST} numbers; got {out[0]}x{out[1]}.")
    sent = cotangent_of(dy, out)
    each = np.eye(sent.size, dtype=sent.dtype).reshape(-1, *out)
    dys = np.concatenate([sent[None], each])
    ys, dxs = jax.jit(jax.vmap(route, (None, 0)))(array, dys)
    shares = np.asarray(dxs[1:]).reshape(*out, *array.shape)
    members = np.isnan(shares) | (shares != 0)
    y, dx = np.asarray(ys[0]), np.asarray(dxs[0])
    return Route(call, array, y, sent, dx, shares, members, array, members)
