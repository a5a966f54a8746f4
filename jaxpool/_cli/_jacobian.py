"""The `CotangentRoute` of a public function that `_route` lacks, from the Jacobian of the function.

The Jacobian shows the elements that each output depends on, so no function needs code of its own. Default arguments
come from the record of the function (`jaxpool.testing.pools`).
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import numpy as np

from jaxpool._cli import UsageError, shorten_text
from jaxpool._cli._array import MAX_NUMBERS
from jaxpool._cli._route import CotangentRoute, broadcast_cotangent

# The command-line option that sets each argument.
OPTION_OF_ARGUMENT = {
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
class FunctionCall:
    """A call of a public function on one array, reshaped to an image (1, rows, columns, 1)."""

    record: Any
    arguments: dict[str, Any]
    image: np.ndarray

    @property
    def op(self) -> str:
        """The name of the function."""
        return str(self.record.name)

    @property
    def selects_elements(self) -> bool:
        """Whether outputs are elements of the input rather than sums of elements."""
        return not self.record.rounds(self.arguments)

    @property
    def prints_shares_as_fractions(self) -> bool:
        """Whether shares of a cotangent are printed as fractions, such as 1/3."""
        return not self.record.tolerance

    @property
    def returns_mask(self) -> bool:
        """Whether outputs are bools, which have no gradient."""
        return bool(self.record.marks)

    has_window = False  # `input_masks` comes from the Jacobian, not from a window

    def as_dict(self) -> dict[str, Any]:
        """The settings for `--json`."""
        return {"op": self.op} | {
            name: value
            if isinstance(value, (bool, int, float, str, tuple, type(None)))
            else _as_source_code(value, name)
            for name, value in self.arguments.items()
            if name not in self.record.operands
        }

    def source_code(self, shape: tuple[int, ...]) -> str:
        """The call as Python source."""
        arg_sources = []
        for name, value in self.arguments.items():
            is_first = name == self.record.operands[0]
            if name == "xs":
                arg_sources += ["x", *_other_arrays_source(value)]
            elif name == "features":
                arg_sources.append(
                    f"[{', '.join([_image_source(value[0]), *_other_arrays_source(value)])}]"
                )
            elif is_first:
                arg_sources.append(_image_source(value))
            else:
                default = self.record.parameters[name].default
                is_required = default is self.record.parameters[name].empty
                if is_required or value is not default:
                    arg_sources.append(
                        _as_source_code(value, name)
                        if is_required
                        else f"{name}={_as_source_code(value, name)}"
                    )
        return f"jaxpool.{self.op}({', '.join(arg_sources)})"


def _image_source(value: Any) -> str:
    """Python source that adds the channel axis, and the batch axis if `value` has one, to x."""
    return "x[None, ..., None]" if np.ndim(value) == 4 else "x[..., None]"


def _other_arrays_source(values: Any) -> list[str]:
    """Python source of all arrays except the first, which is x."""
    return [_as_source_code(array, f"x{n}") for n, array in enumerate(values[1:], 2)]


def _as_source_code(value: Any, name: str) -> str:
    """A value as Python source; a large array becomes `name`."""
    if hasattr(value, "dtype") and str(value.dtype).startswith("key"):
        return "jax.random.key(0)"
    if isinstance(value, np.ndarray):
        squeezed_array = value.squeeze() if value.ndim > 2 else value
        return f"jnp.array({squeezed_array.tolist()})" if value.size <= 24 else name
    return f'"{value}"' if isinstance(value, str) else repr(value)


def find_record(function_name: str) -> Any:
    """The record of a public function, whose suffix "_pool" may be left out; None if there is no such function."""
    from jaxpool.testing import pools

    records = pools()
    return records.get(function_name) or records.get(f"{function_name}_pool")


def make_call(
    record: Any, array: np.ndarray, settings: dict[str, Any], set_options: list[str]
) -> FunctionCall:
    """The `FunctionCall` on `array`; `set_options` has the values of `--set`. Unknown arguments raise `UsageError`."""
    for name in settings:
        if not record.takes(name):
            raise UsageError(
                f"`--{OPTION_OF_ARGUMENT[name].replace('_', '-')}` does not go with --op {record.name}."
            )
    for text in set_options:
        name, _, value = text.partition("=")
        if not record.takes(name) or name in record.operands:
            names = ", ".join(arg for arg in record.parameters if arg not in record.operands)
            raise UsageError(
                f"`--set` must be of an argument of {record.name}, {names}; got {shorten_text(text)}."
            )
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
        if isinstance(settings[name], list):
            settings[name] = np.array(settings[name])
    if record.takes("window_shape", "strides"):
        settings.setdefault("strides", (2, 2))
    if record.takes("axis"):
        settings.setdefault("axis", -3)
    if "segment_ids" in settings:  # the record's number of segments does not fit these ids
        settings.setdefault("num_segments", None)
    if "boxes" in settings:  # all boxes are in the only image
        leading_shape = np.shape(settings["boxes"])[:-1]
        settings.setdefault("batch_indices", np.zeros(leading_shape, np.int32))
    image = array[None, :, :, None]
    image_args = {} if record.takes("segment_ids") or "x" not in record.operands else {"x": image}
    return FunctionCall(record, record.given(image, **settings | image_args), image)


def cotangent_route_from_jacobian(
    call: FunctionCall, array: np.ndarray, dy: np.ndarray | None = None
) -> CotangentRoute:
    """The `CotangentRoute` of `call` on `array`; its shares are the Jacobian, with one row per output."""
    import jax

    record = call.record
    (main_operand, *_) = record.operands

    def first_output(x: jax.Array) -> jax.Array:
        arguments = dict(call.arguments)
        value = arguments[main_operand]
        arguments[main_operand] = (
            (x.reshape(value[0].shape), *value[1:])
            if isinstance(value, tuple)
            else x.reshape(value.shape)
        )
        y = record.run(arguments)
        y = y[0] if isinstance(y, tuple) else y
        sizes = [size for size in y.shape if size > 1] or [1]
        return y.reshape(sizes[0] if len(sizes) > 1 else 1, -1)

    def value_and_cotangent(x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, vjp_fn = jax.vjp(first_output, x)
        return y, vjp_fn(dy)[0]

    output_shape = jax.eval_shape(first_output, array).shape
    if output_shape[0] * output_shape[1] > MAX_NUMBERS:
        raise UsageError(
            f"The output must have at most {MAX_NUMBERS} numbers; got {output_shape[0]}x{output_shape[1]}."
        )
    full_dy = broadcast_cotangent(dy, output_shape)
    unit_dys = np.eye(full_dy.size, dtype=full_dy.dtype).reshape(-1, *output_shape)
    dys = np.concatenate([full_dy[None], unit_dys])
    ys, dxs = jax.jit(jax.vmap(value_and_cotangent, (None, 0)))(array, dys)
    shares = np.asarray(dxs[1:]).reshape(*output_shape, *array.shape)
    input_masks = np.isnan(shares) | (shares != 0)
    y, dx = np.asarray(ys[0]), np.asarray(dxs[0])
    return CotangentRoute(call, array, y, full_dy, dx, shares, input_masks, array, input_masks)
