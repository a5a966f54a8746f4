"""Names of pools in other libraries, for the error of an attribute that jaxpool does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Patterns in names of PyTorch, torchvision, PyTorch Scatter, Keras, TensorFlow, ONNX, scikit-image and SciPy, and their
# replacements in jaxpool. The names are in lower case, without "_" and without an ending such as "2d" or "v2".
REPLACEMENTS = {
    "average|^mean(?=pool)": "avg",
    "pooling": "pool",
    "maxroipool|^roipool": "roimaxpool",
    "^cropandresize": "roialign",
    "multiscale": "multilevel",
    "withindices": "withargmax",
    "^fractionalmaxpoolwithargmax": "fractionalmaxpool",
    "^globallppool": "lppool",
    "^softpool": "softmaxpool",
    "^(gem|generali[sz]edmeanpool)$": "gempool",
    "^(lse|logsumexp)(pool)?$": "logsumexppool",
    "^(a|reduce)(?=(max|min)$)": "",
    "^(unsortedsegment|scatter)": "segment",
    "^segmentadd": "segmentsum",
    "^maximumfilter": "maxpool",
    "^minimumfilter": "minpool",
    "^uniformfilter": "avgpool",
    "^medianfilter": "medianpool",
    "^(percentile|rank)filter": "rankpool",
    "^(grey|gray|binary)?dilation": "dilate",
    "^(grey|gray|binary)?erosion": "erode",
    "^peaklocalmax": "localmaxima",
}
# Patterns of all names in modules of `jaxpool.compat` that are no public name of jaxpool.
DROP_IN_NAMES = {
    "torch": r"((Adaptive)?(Max|Avg)P|(adaptive_)?(max|avg)_p)ool[123]d|(LPPool|lp_pool|MaxUnpool|max_unpool)[123]d"
    r"|(FractionalMaxPool|fractional_max_pool)[23]d|amax|amin|aminmax|logcumsumexp|(nan)?median",
    "equinox": r"(Adaptive)?(Max|Avg)Pool[123]d|(Adaptive)?Pool",
    "flax": r"pool",
    "haiku": r"(Max|Avg)Pool",
    "torchvision": r"(MultiScale|PS)?RoIAlign|(PS)?RoIPool|roi_pool|ps_roi_(align|pool)",
    "scipy": r"(maximum|minimum|uniform)_filter(1d)?|(median|rank|percentile)_filter"
    r"|grey_(dilation|erosion|opening|closing)|(white|black)_tophat|morphological_(gradient|laplace)",
}


def public_function_hint(name: str, public_names: Iterable[str]) -> str:
    """A hint for the name of a layer or function in another library, such as "MaxPool2d"; "" for other names."""
    plain_name = re.sub(r"([123]d|v[23])(?=_|$)", "", name.lower()).replace("_", "")
    for pattern, replacement in REPLACEMENTS.items():
        plain_name = re.sub(pattern, replacement, plain_name)
    hints = [f"jaxpool.{each}" for each in public_names if each.replace("_", "") == plain_name]
    drop_in_name = re.sub("(?<=Max|Avg)pool", "Pool", name)
    drop_ins = [
        f"jaxpool.compat.{module}.{drop_in_name}"
        for module, pattern in DROP_IN_NAMES.items()
        if re.fullmatch(pattern, drop_in_name)
    ]
    hints += [f"the drop-in {' or '.join(drop_ins)}"] if drop_ins else []
    return f": use {', or '.join(hints)}" if hints else ""
