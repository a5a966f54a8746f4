"""Error messages for calls that do not match a signature: missing, unknown, surplus or swapped arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np

from jaxpool._arguments.arrays import is_array, is_prng_key, key_source_hint
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_tuple_or_list

ARRAY_TYPES = (jax.Array, np.ndarray)
# Error messages show the shapes of some arguments, and the values of some other arguments.
ARGS_SHOWN_AS_SHAPE = ("x", "y", "input", "boxes", "kernel")
ARGS_SHOWN_AS_VALUE = ("window_shape", "output_shape", "spatial_shape", "levels")


def clearer_error(
    error: Exception, function: Callable[..., object], args: tuple, kwargs: dict[str, object]
) -> Exception | None:
    """The error that the user sees instead of `error`, raised by a call of `function`; None for `error` itself."""
    name = _public_name(function)
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        arguments, reason = {}, _invalid_call_reason(function, args, kwargs)
    else:
        reason = _swapped_arguments_reason(function, arguments)
    if reason:
        return TypeError(f"jaxpool.{name}: {reason}")
    if not isinstance(error, ArgumentError):
        return None
    shown_arguments = {}  # shapes of arrays and values of size arguments, by the names in the message
    for arg_name, value in arguments.items():
        if arg_name in ARGS_SHOWN_AS_SHAPE and isinstance(value, (*ARRAY_TYPES, np.generic)):
            shown_arguments[f"{arg_name}.shape"] = value.shape
        elif arg_name in ARGS_SHOWN_AS_VALUE:
            shown_arguments[arg_name] = value
    return error.error_for_function(name, shown_arguments)


class FunctionWrapper:
    """A callable like `fn`; pickled by name if it replaces `fn` in its module, else by the call `make_wrapper(fn)`."""

    def __init__(self, fn: Callable[..., object], make_wrapper: Callable[..., object]) -> None:
        functools.update_wrapper(self, fn)
        self._reduce_value = make_wrapper, (fn,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Callable[..., object], tuple[object, ...]]:
        name = getattr(self, "__qualname__", "")
        target: object = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            target = getattr(target, part, None)
        return name if target is self else self._reduce_value


def _public_name(function: Callable[..., object]) -> str:
    """The public name of a function without `jaxpool.`, such as "max_pool" or "compat.torch.max_pool2d"."""
    top_package, *submodules = function.__module__.split(".")[1:]
    # `compat.torch.max_pool2d` is defined in `compat/_torch_windowed.py`.
    if top_package == "compat":
        top_package += "." + submodules[0].removeprefix("_").partition("_")[0]
    is_private = top_package.startswith("_")
    return function.__name__ if is_private else f"{top_package}.{function.__name__}"


def _positional_names(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _invalid_call_reason(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> str:
    """The reason why a call does not match the signature of `function`; "" if no rule below applies."""
    parameters = inspect.signature(function).parameters
    positional, public_name = _positional_names(function), _public_name(function)
    order_hint = f"The order is {', '.join(positional)}."
    # A hint for users who pass a transformation the arguments of the function that the transformation returns.
    returned_function_hint = ""
    if positional in (["fn"], ["pool"]) and args and callable(args[0]):
        returned_function_hint = f"What it returns takes them: {public_name}({positional[0]})(...)."
    for name in kwargs:
        if name not in parameters:
            hint = unknown_argument_hint(public_name, name, parameters, returned_function_hint)
            return f"there is no argument `{name}`. {hint}"
        if name in positional[: len(args)]:
            return f"`{name}` must be given once; got it by its place and by its name. {order_hint}"
    for name, parameter in parameters.items():
        is_optional = parameter.default is not parameter.empty or name not in positional
        if is_optional or name in (*positional[: len(args)], *kwargs):
            continue
        if reason := _swapped_arguments_reason(function, dict(zip(positional, args, strict=False))):
            return reason
        if positional[0] == "key" and args and is_array(args[0]) and not is_prng_key(args[0]):
            return f"`key` must be given, a PRNG key, before `x`; got an array in its place. {order_hint}"
        return f"`{name}` must be given; it is missing. {order_hint}"
    if len(args) <= len(positional):
        return ""
    keyword_names = ", ".join(p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY)
    hint = "" if returned_function_hint else order_hint
    hint = f"Pass {keyword_names} by name." if keyword_names else hint
    if not positional:
        hint = CONTEXT_MANAGER_HINTS.get(public_name, hint) if callable(args[0]) else hint
        return f"no argument goes by its place; got {len(args)}. {hint}"
    rule = f"at most {len(positional)} arguments go by their place"
    return " ".join(filter(None, (f"{rule}; got {len(args)}.", returned_function_hint, hint)))


def _swapped_arguments_reason(function: Callable[..., object], arguments: dict[str, object]) -> str:
    """The reason why a call raised if two of its arguments are swapped; "" if no arguments are swapped."""
    for first, second in itertools.pairwise(arguments):
        if second in _arguments_swapped_with(first, arguments[first], arguments[second]):
            rule = f"`{first}` must come before `{second}`; got them the other way round"
            order_hint = f"The order is {', '.join(_positional_names(function))}."
            source_hint = key_source_hint(arguments[second]) if first == "key" else ""
            return " ".join(filter(None, (f"{rule}.", order_hint, source_hint)))
    return ""


def _arguments_swapped_with(arg_name: str, value: object, next_value: object) -> tuple[str, ...]:
    """Names of arguments that may be swapped with `arg_name`, judging by its `value` and the next argument's value."""
    if arg_name == "x" and not is_array(value) and is_array(next_value):
        has_axes = getattr(next_value, "ndim", 0) > 1
        return ("window_shape", "output_shape", "k", "p", "rank", "key") if has_axes else ()
    if arg_name == "indices" and is_tuple_or_list(value) and is_array(next_value):
        return ("spatial_shape",)
    if arg_name == "key" and not is_prng_key(value):
        is_source = is_array(value) and key_source_hint(next_value)
        return ("x",) if is_source or is_prng_key(next_value) else ()
    if arg_name in ("p", "rank") and is_tuple_or_list(value) and not is_tuple_or_list(next_value):
        return ("window_shape",)
    if arg_name == "x" and isinstance(value, ARRAY_TYPES) and isinstance(next_value, ARRAY_TYPES):
        is_next_float = next_value.dtype.name.startswith(("float", "bfloat"))
        if value.dtype.name.startswith(("int", "uint")) and is_next_float:
            return ("segment_ids",)
        has_boxes = value.ndim == 2 and value.shape[-1] == 4
        if has_boxes and next_value.ndim > 2 and next_value.shape[-1] != 4:
            return ("boxes",)
    return ()


# Groups of synonymous argument names: first the names in jaxpool, then names that only PyTorch, torchvision,
# torch_scatter, Keras, TensorFlow, Flax, Haiku, ONNX and NumPy use.
ARGUMENT_SYNONYMS = (
    (("window_shape", "kernel_size"), ("pool_size", "ksize", "kernel_shape", "window_dimensions")),
    (("window_shape", "kernel_size"), ("window", "window_size", "size", "kernel")),
    (("strides", "stride"), ("window_strides",)),
    (("padding",), ("pads", "pad")),
    (("window_dilation", "dilation"), ("dilations", "dilation_rate")),
    (("output_shape", "output_size"), ("target_shape", "crop_size", "pooled_shape")),
    (("output_shape", "output_ratio"), ()),
    (("samples", "sampling_ratio"), ("sample_num", "num_samples")),
    (("batch_indices",), ("box_indices", "box_ind", "batch_index")),
    (("boxes",), ("rois", "bboxes")),
    (("num_segments",), ("dim_size", "num_nodes")),
    (("segment_ids",), ("index", "batch", "ids")),
    (("indices_are_sorted",), ("is_sorted", "sorted")),
    (("divisor", "divisor_override"), ()),
    (("p", "norm_type"), ()),
    (("axes", "axis", "dim"), ("dims",)),
    (("axes",), ("channel_axis", "data_format", "channels_last", "channels_first")),
    (("keepdims", "keepdim"), ("keep_dims",)),
    (("ceil_mode",), ("ceil",)),
    (("count_include_pad",), ("count_pad", "count_include_padding")),
    (("where",), ("mask",)),
    (("x", "input"), ("inputs", "value", "operand", "src", "data")),
    (("key",), ("rng", "rng_key")),
)
# Known argument names, which are not treated as misspellings.
_KNOWN_NAMES = {word for ours, theirs in ARGUMENT_SYNONYMS for word in (*ours, *theirs)}
_KNOWN_NAMES |= {"ties", "autodiff", "reverse", "initial", "groups", "rank", "kind", "levels"}
_RETURN_INDICES_ARGUMENTS = ("return_indices", "return_argmax", "with_argmax")
_POOLS_WITH_ARGMAX_VARIANT = ("max_pool", "adaptive_max_pool")


# Hints for users who call a context manager with a function, like a decorator.
CONTEXT_MANAGER_HINTS = {
    "accelerated": "It takes no function: write `with jaxpool.accelerated():`, or `jaxpool.accelerate(fn)`."
}


def unknown_argument_hint(
    function_name: str, arg_name: str, accepted_names: Collection[str], default_hint: str = ""
) -> str:
    """A hint for an unknown argument: a similar accepted name, else `default_hint`, else the accepted names."""
    if arg_name in _RETURN_INDICES_ARGUMENTS and function_name in _POOLS_WITH_ARGMAX_VARIANT:
        return f"jaxpool.{function_name}_with_argmax gives the positions too."
    suggestions = [
        name
        for jaxpool_names, other_names in ARGUMENT_SYNONYMS
        if arg_name in (*jaxpool_names, *other_names)
        for name in jaxpool_names
        if name in accepted_names
    ]
    if not suggestions and arg_name not in _KNOWN_NAMES:
        suggestions = difflib.get_close_matches(arg_name, accepted_names, 1, 0.7)
    if suggestions:
        return f"Did you mean `{suggestions[0]}`?"
    return default_hint or f"It takes {', '.join(accepted_names)}."
