"""Names of pools in other libraries, for the error of an attribute that jaxpool does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

WORDS_OF_OTHER_LIBRARIES = {
    "average": "avg",
    "pooling": "pool",
    "roipool": "roimaxpool",
    "multiscale": "multilevel",
}
# Patterns of the names in modules of `jaxpool.compat` that are a public name of jaxpool, written differently.
DROP_IN_NAMES = {
    "torch": r"(Adaptive|adaptive_)?(Max|Avg|max_|avg_)[Pp]ool[123]d|(LPPool|lp_pool|MaxUnpool|max_unpool)[123]d"
    r"|(FractionalMaxPool|fractional_max_pool)[23]d",
    "equinox": r"(Adaptive)?(Max|Avg)Pool[123]d",
    "haiku": r"(Max|Avg)Pool",
    "torchvision": r"(MultiScale)?RoIAlign|RoIPool|roi_pool",
}


def public_function_hint(name: str, public_names: Iterable[str]) -> str:
    """A hint for the name of a layer or function in another library, such as "MaxPool2d"; "" for other names."""
    plain_name = re.sub(r"[123]d$", "", name.lower()).replace("_", "")
    for word, our_word in WORDS_OF_OTHER_LIBRARIES.items():
        plain_name = plain_name.replace(word, our_word)
    functions = [each for each in public_names if each.replace("_", "") == plain_name]
    if not functions:
        return ""
    drop_ins = [
        f"jaxpool.compat.{module}.{name}"
        for module, pattern in DROP_IN_NAMES.items()
        if re.fullmatch(pattern, name)
    ]
    drop_in_text = f", or the drop-in {' or '.join(drop_ins)}" if drop_ins else ""
    return f": use jaxpool.{functions[0]}{drop_in_text}"
