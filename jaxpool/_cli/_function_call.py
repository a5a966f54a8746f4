"""The call that `explain` shows: a public function and its arguments.

Default arguments come from the record of the function (`jaxpool.testing.pools`).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
import re
from typing import Any

import jax
import numpy as np

from jaxpool._arguments.errors import name_function_in_errors
from jaxpool._cli import UsageError, quote_text
from jaxpool._cli._array import MAX_NUMBERS
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import AdaptiveWindow, Window, make_window

# Functions that pool both axes of the array. Of the other functions, elementwise functions get the array as it is,
# functions of segments (rows, columns, 1), and the rest an image (1, rows, columns, 1), perhaps with other images.
WINDOWED_FUNCTIONS = (
    *("max_pool", "min_pool", "avg_pool", "sum_pool", "lp_pool", "median_pool", "rank_pool"),
    *("max_pool_with_argmax", "max_unpool", "dilate", "erode"),
    *("adaptive_max_pool", "adaptive_avg_pool"),
)
POSITIONAL_OPTIONS = ("strides", "padding")  # optional arguments written without their names
WINDOWED_DEFAULTS: dict[str, Any] = {
    "window_shape": (2, 2),
    "strides": (2, 2),
    "padding": "VALID",
    "p": 2.0,
    "rank": 0,
    "output_shape": (2, 2),
}


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of a public function. `array` is its first operand, perhaps with fewer axes.

    `window` is None for a function whose windows are not known. The first operand of `max_unpool` is the result of the
    call `pooling`.
    """

    record: Any
    array: np.ndarray
    arguments: dict[str, Any]
    window: Window | AdaptiveWindow | None = None
    pooling: FunctionCall | None = None

    @property
    def selects_elements(self) -> bool:
        """Whether outputs are elements of the input rather than sums of elements."""
        return not self.record.rounds(self.arguments)

    @property
    def returns_mask(self) -> bool:
        """Whether outputs are bools, which have no gradient."""
        return bool(self.record.marks)

    def check_arguments(self) -> None:
        """Raise the error of the function if arguments are invalid. The function is traced, not run."""
        operand = self.record.operands[0]
        outputs = jax.eval_shape(
            lambda value: self.record.run({**self.arguments, operand: value}),
            self.arguments[operand],
        )
        _check_output_size(jax.tree.leaves(outputs)[0].shape)

    def source_code(self) -> str:
        """The call as Python source. The first arguments are positional, `axes` is last."""
        if self.pooling is not None:
            unpooling = f"jaxpool.max_unpool(x, indices, {self.pooling.array.shape}, axes=(0, 1))"
            pooling = self.pooling.source_code().replace("(x", "(array", 1)  # x is the output
            return f"x, indices = {pooling}\n{unpooling}"
        sources, all_positional = [], True
        for name in sorted(self.record.parameters, key=lambda name: name == "axes"):
            default = self.record.parameters[name].default
            is_required = default is self.record.parameters[name].empty
            value = self.arguments.get(name, default)
            is_default = (
                value is default
                or (isinstance(value, (str, bool)) and value == default)
                or (name == "window_dilation" and value == (1, 1))
            )
            if name == self.record.operands[0]:
                sources.append(_operand_source(name, value))
            elif is_required or (all_positional and name in POSITIONAL_OPTIONS and not is_default):
                sources.append(_as_source_code(value, name))
            else:
                all_positional = False
                if not is_default:
                    sources.append(f"{name}={_as_source_code(value, name)}")
        return f"jaxpool.{self.record.name}({', '.join(sources)})"


def _operand_source(name: str, value: Any) -> str:
    """Python source of the first operand: x with more axes, or several arrays that begin with x."""
    if not isinstance(value, tuple):
        return {2: "x", 3: "x[..., None]", 4: "x[None, ..., None]"}[np.ndim(value)]
    others = [_as_source_code(array, f"x{n}") for n, array in enumerate(value[1:], 2)]
    sources = ", ".join([_operand_source("x", value[0]), *others])
    return sources if name == "xs" else f"[{sources}]"


def _as_source_code(value: Any, name: str) -> str:
    """A value as Python source; an array of more than 24 elements becomes `name`, which nothing defines."""
    if hasattr(value, "dtype") and str(value.dtype).startswith("key"):
        return "jax.random.key(0)"
    if name == "kernel" and not value.any():
        return f"jnp.zeros({value.shape})"
    if isinstance(value, np.ndarray):
        if value.size > 24:
            return name
        new_axes = ""
        if value.ndim == 4 and value.shape[0] == value.shape[3] == 1:
            value, new_axes = value[0, ..., 0], "[None, ..., None]"
        elif value.ndim == 3 and value.shape[2] == 1:
            value, new_axes = value[..., 0], "[..., None]"
        return f"jnp.array({_as_source_code(value.tolist(), name)}){new_axes}"
    if isinstance(value, list):
        return f"[{', '.join(_as_source_code(each, name) for each in value)}]"
    is_special = isinstance(value, float) and not math.isfinite(value)
    return f'float("{value}")' if is_special else repr(value)


def find_record(op: str) -> Any:
    """The record of a public function, whose suffix "_pool" may be left out; None if there is no such function."""
    from jaxpool.testing import pools

    records = pools()
    name = {"unpool": "max_unpool"}.get(op, op)
    return records.get(f"{name}_pool") or records.get(name)


def make_call(
    record: Any, array: np.ndarray, settings: dict[str, Any], set_options: list[str] | None = None
) -> FunctionCall:
    """The call of a function on `array`. `settings` has arguments by name, and `set_options` the values of `--set`."""
    if record.name == "max_unpool":
        pooling = make_call(find_record("max_pool_with_argmax"), array, settings, set_options)
        maxima = pooling.record.run(pooling.arguments, pooling.record.meaning)
        arguments = {"y": maxima.y, "indices": maxima.indices}
        arguments |= {"spatial_shape": array.shape, "axes": (0, 1)}
        return FunctionCall(record, maxima.y, arguments, pooling=pooling)
    for name in settings:
        is_kernel_shape = name == "window_shape" and record.takes("kernel")
        if not record.takes(name) and not is_kernel_shape:
            raise UsageError(f"{record.name} has no argument `{name}`.")
    if record.name in WINDOWED_FUNCTIONS:
        return _make_windowed_call(record, array, settings)
    settings = settings | _parse_set_options(record, set_options or [])
    if record.takes("window_shape", "strides"):
        settings.setdefault("strides", (2, 2))
    if record.takes("axis"):
        settings.setdefault("axis", -3)
    if "segment_ids" in settings:  # the record's number of segments does not fit these ids
        settings.setdefault("num_segments", None)
    if "boxes" in settings:  # all boxes are in the only image
        leading_shape = np.shape(settings["boxes"])[:-1]
        settings.setdefault("batch_indices", np.zeros(leading_shape, np.int32))
    image = array if record.topic == "elementwise" else array[None, :, :, None]
    image_args = {} if record.takes("segment_ids") or "x" not in record.operands else {"x": image}
    return FunctionCall(record, array, record.given(image, **settings | image_args))


def _parse_set_options(record: Any, set_options: list[str]) -> dict[str, Any]:
    """The arguments in the values of `--set`, such as k=3. A list may become an array, a size two sizes."""
    arguments: dict[str, Any] = {}
    for text in set_options:
        name, _, value = text.partition("=")
        if not record.takes(name) or name in record.operands:
            names = ", ".join(arg for arg in record.parameters if arg not in record.operands)
            raise UsageError(
                f"`--set` must be of an argument of {record.name}, {names}; got {quote_text(text)}."
            )
        arguments[name] = value
        with contextlib.suppress(Exception):  # its type depends on how the value is no literal
            literal = ast.literal_eval(value)
            if name.endswith("_shape") and type(literal) is int:
                literal = literal, literal
            takes_array = re.search("(Array|Mask)Argument", record.parameters[name].annotation)
            is_array = takes_array and isinstance(literal, list)
            arguments[name] = np.array(literal) if is_array else literal
    return arguments


def _make_windowed_call(record: Any, array: np.ndarray, settings: dict[str, Any]) -> FunctionCall:
    """The call of a function in `WINDOWED_FUNCTIONS`, with its windows. Raises the errors of the function."""
    settings = WINDOWED_DEFAULTS | settings
    window_shape = settings["window_shape"]
    if window_shape[0] * window_shape[1] > MAX_NUMBERS:
        got = f"got --window={'x'.join(map(str, window_shape))}"
        raise UsageError(f"`--window` must have at most {MAX_NUMBERS} numbers; {got}.")
    shapes = {"x.shape": array.shape}
    if record.takes("output_shape"):
        with name_function_in_errors(record.name, **shapes):
            window: Window | AdaptiveWindow = adaptive_window(
                array.shape, settings["output_shape"], (0, 1)
            )
    else:
        names = ("window_shape", "strides", "padding", "window_dilation", "ceil_mode")
        geometry = {name: settings[name] for name in names if name in settings}
        with name_function_in_errors(record.name, **shapes, window_shape=window_shape):
            window = make_window(array.shape, axes=(0, 1), **geometry)
    _check_output_size(window.output_shape)
    kernel = np.zeros(window_shape, np.float32)
    arguments = record.given(array, **settings | {"x": array, "kernel": kernel, "axes": (0, 1)})
    return FunctionCall(record, array, arguments, window)


def _check_output_size(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > MAX_NUMBERS:
        got = f"got {'x'.join(map(str, shape))}. Use larger strides or less padding"
        raise UsageError(f"The output must have at most {MAX_NUMBERS} numbers; {got}.")
