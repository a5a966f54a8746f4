"""Synonyms of argument names in other libraries, and hints for unknown argument names."""

from __future__ import annotations

from collections.abc import Collection

# Groups of synonymous argument names: first the names in jaxpool, then names that only PyTorch, torchvision,
# torch_scatter, Keras, TensorFlow, Flax, Haiku, ONNX and NumPy use.
ARGUMENT_SYNONYMS = (
    (
        ("window_shape", "kernel_size"),
        (
            "pool_size",
            "ksize",
            "kernel_shape",
            "window_dimensions",
            "window",
            "window_size",
            "size",
            "kernel",
        ),
    ),
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
_KNOWN_ARGUMENT_NAMES = {word for ours, theirs in ARGUMENT_SYNONYMS for word in (*ours, *theirs)}
_KNOWN_ARGUMENT_NAMES |= {
    "ties",
    "autodiff",
    "reverse",
    "initial",
    "groups",
    "rank",
    "kind",
    "samples",
    "levels",
}
_RETURN_INDICES_ARGUMENTS = ("return_indices", "return_argmax", "with_argmax")
_POOLS_WITH_ARGMAX_VARIANT = ("max_pool", "adaptive_max_pool")


# Hints for users who call a context manager with a function, like a decorator.
CONTEXT_MANAGER_HINTS = {
    "accelerated": "It takes no function: write `with jaxpool.accelerated():`, or `jaxpool.accelerate(fn)`."
}


def unknown_argument_hint(
    function_name: str, arg_name: str, accepted_names: Collection[str], default_hint: str = ""
) -> str:
    """A hint for an unknown argument `arg_name` of function `function_name`, which accepts `accepted_names`.

    If no accepted name is similar, the hint is `default_hint`; if that is empty, a list of the accepted names.
    """
    module_path, _, base_name = function_name.rpartition(".")
    if (
        arg_name in _RETURN_INDICES_ARGUMENTS
        and base_name in _POOLS_WITH_ARGMAX_VARIANT
        and "compat" not in module_path
    ):
        return f"jaxpool.{function_name}_with_argmax gives the positions too."
    suggestions = [
        name
        for jaxpool_names, other_names in ARGUMENT_SYNONYMS
        if arg_name in (*jaxpool_names, *other_names)
        for name in jaxpool_names
        if name in accepted_names
    ]
    if not suggestions and arg_name not in _KNOWN_ARGUMENT_NAMES:
        suggestions = [name for name in accepted_names if _is_misspelling(arg_name, name)]
        suggestions = suggestions if len(suggestions) == 1 else []
    if suggestions:
        return f"Did you mean `{suggestions[0]}`?"
    return default_hint or f"It takes {', '.join(accepted_names)}."


def _is_misspelling(arg_name: str, known_name: str) -> bool:
    """Whether two names differ by one edit, or by two if a name has over five letters or the letters are the same."""
    if len(known_name) < 4:
        return False
    return _edit_distance(arg_name, known_name) <= (
        2
        if max(len(arg_name), len(known_name)) > 5 or sorted(arg_name) == sorted(known_name)
        else 1
    )


def _edit_distance(a: str, b: str) -> int:
    """Levenshtein (edit) distance of two strings."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other_letter in enumerate(b, 1):
            substitution_cost = diagonal + (letter != other_letter)
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, substitution_cost)
    return row[-1]
