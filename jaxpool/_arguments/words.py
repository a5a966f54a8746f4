"""Synonyms of argument names in other libraries, and hints for unknown argument names."""

from __future__ import annotations

from collections.abc import Collection

# Groups of synonyms: first the names that jaxpool uses for an argument, then names that only PyTorch, torchvision,
# torch_scatter, Keras, TensorFlow, Flax, Haiku, ONNX and NumPy use.
MEANINGS = (
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
_KNOWN = {word for ours, theirs in MEANINGS for word in (*ours, *theirs)}
_KNOWN |= {"ties", "autodiff", "reverse", "initial", "groups", "rank", "kind", "samples", "levels"}
_POSITIONS = ("return_indices", "return_argmax", "with_argmax")
_WITH_ARGMAX = ("max_pool", "adaptive_max_pool")


# Hints for a context manager that is called with a function, like a decorator.
WITHOUT_FUNCTION = {
    "accelerated": "It takes no function: write `with jaxpool.accelerated():`, or `jaxpool.accelerate(fn)`."
}


def advice(function: str, name: str, accepted: Collection[str], otherwise: str = "") -> str:
    """A hint for an unknown argument `name` of `function`, whose arguments are `accepted`.

    If no accepted argument is similar, the hint is `otherwise`, or else the list of accepted arguments.
    """
    room, _, short = function.rpartition(".")
    if name in _POSITIONS and short in _WITH_ARGMAX and "compat" not in room:
        return f"jaxpool.{function}_with_argmax gives the positions too."
    close = [
        word
        for ours, theirs in MEANINGS
        if name in (*ours, *theirs)
        for word in ours
        if word in accepted
    ]
    if not close and name not in _KNOWN:
        close = [word for word in accepted if _misspelt(name, word)]
        close = close if len(close) == 1 else []
    if close:
        return f"Did you mean `{close[0]}`?"
    return otherwise or f"It takes {', '.join(accepted)}."


def _misspelt(name: str, word: str) -> bool:
    """Whether `name` is `word` up to one edit, or two for names over five letters and for permuted letters."""
    if len(word) < 4:
        return False
    return _edits(name, word) <= (
        2 if max(len(name), len(word)) > 5 or sorted(name) == sorted(word) else 1
    )


def _edits(a: str, b: str) -> int:
    """Levenshtein distance of two strings."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            change = before + (letter != other)
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, change)
    return row[-1]
