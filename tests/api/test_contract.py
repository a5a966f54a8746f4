"""The public contract: names, sections of docstrings, and what an import loads. `tests/docs` has the signatures."""

import inspect
import pickle
import re
import subprocess
import sys

import pytest

import jaxpool
from jaxpool._arguments.other_names import DROP_IN_NAMES, public_function_hint
from tests.support.junk import DROP_INS as DROP_IN_FUNCTIONS

NAMES = sorted(jaxpool.__all__)


def test_function_name_module_and_pickling():
    assert jaxpool.__all__ == NAMES
    for name in set(jaxpool.__all__) - {"keep_memory"}:
        function = getattr(jaxpool, name)
        assert function.__name__ == name
        assert re.match(r"jaxpool\._(api|accelerate)\.", function.__module__)
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("name", NAMES)
def test_docstring_sections(name):
    text = inspect.getdoc(getattr(jaxpool, name))
    sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
    expected = ["Args", "Returns", "Raises", "Example", "References"]
    assert [section for section in sections if section in expected] == expected
    assert re.search(rf">>> .*jaxpool\.{name}\(", text) or f"import {name}" in text
    # Functions without arguments have no gradient.
    if not inspect.signature(getattr(jaxpool, name)).parameters:
        return
    assert re.search(r"(?i)gradient", text)
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for parameter in inspect.signature(getattr(jaxpool, name)).parameters:
        assert re.search(rf"^\s+\*?{parameter}\b.*:", arguments, re.MULTILINE), parameter


EXTRAS = "flax haiku equinox keras torch tensorflow matplotlib sklearn optax tqdm hypothesis"
DROP_INS = ["flax", "scipy", "torch", "torchvision"]
PROGRAMS = {
    "no optional package is loaded": f"""
        import sys, jaxpool
        assert not set({EXTRAS.split()}) & set(sys.modules)
    """,
    "subpackages are attributes": """
        import jaxpool
        names = [each.__name__ for each in (jaxpool.compat, jaxpool.testing)]
        assert names == ["jaxpool.compat", "jaxpool.testing"]
    """,
    "drop-ins are lazy attributes": f"""
        import jaxpool
        for name in {DROP_INS}:
            assert name in dir(jaxpool.compat) and name not in vars(jaxpool.compat)
            assert getattr(jaxpool.compat, name).__name__ == f"jaxpool.compat.{{name}}"
    """,
    "help needs no optional package": """
        import importlib.util, pydoc, sys
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "hypothesis" else found(name)
        sys.modules["hypothesis"] = None
        import jaxpool
        pydoc.render_doc(jaxpool)
    """,
    "dir lists public names alone": """
        import jaxpool
        assert {*jaxpool.__all__, "compat", "testing"} <= set(dir(jaxpool))
        assert not {"Any", "TYPE_CHECKING", "importlib", "sys"} & set(dir(jaxpool))
    """,
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_import_in_a_new_process(what):
    subprocess.run([sys.executable, "-c", "if True:" + PROGRAMS[what]], check=True)


@pytest.mark.parametrize("module", [jaxpool, jaxpool.compat])
def test_unknown_attribute(module):
    with pytest.raises(AttributeError, match=rf"'{module.__name__}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


SCIPY = "the drop-in jaxpool.compat.scipy"
TORCH = "the drop-in jaxpool.compat.torch"
# Names in PyTorch, PyTorch Scatter, torchvision, Keras, TensorFlow, ONNX, scikit-image and SciPy.
OTHER_NAMES = {
    "max_pool": ("MaxPoolV2", "max_pool_v2", "MaxPool3D"),
    f"max_pool, or {SCIPY}.maximum_filter": ("maximum_filter",),
    f"min_pool, or {SCIPY}.minimum_filter": ("minimum_filter",),
    f"avg_pool, or {SCIPY}.uniform_filter1d": ("uniform_filter1d",),
    f"median_pool, or {SCIPY}.median_filter": ("median_filter",),
    f"rank_pool, or {SCIPY}.percentile_filter": ("percentile_filter",),
    f"dilate, or {SCIPY}.grey_dilation": ("grey_dilation",),
    f"erode, or {SCIPY}.grey_erosion": ("grey_erosion",),
    "dilate": ("dilation2d", "Dilation2D", "dilation"),
    "erode": ("erosion2d", "erosion"),
    "max_pool_with_argmax": (
        "max_pool2d_with_indices",
        "MaxPoolWithArgmax",
        "max_pool_with_argmax_v2",
    ),
    "adaptive_max_pool_with_argmax": ("adaptive_max_pool3d_with_indices",),
    "fractional_max_pool": ("fractional_max_pool2d_with_indices", "fractional_max_pool_v2"),
    "global_max_pool": ("GlobalMaxPool2D", "GlobalMaxPooling1D"),
    "global_avg_pool": ("GlobalAveragePool", "GlobalAvgPool3D"),
    "adaptive_avg_pool": ("AdaptiveAveragePooling2D",),
    "spatial_pyramid_pool": ("SpatialPyramidPooling",),
    "softmax_pool": ("SoftPool", "SoftPool2d", "soft_pool2d"),
    "gem_pool": ("GeM", "GeMPool2d", "GeneralizedMeanPooling"),
    "lp_pool": ("LpPool", "GlobalLpPool"),
    "logsumexp_pool": ("LSEPool",),
    "k_max_pool": ("KMaxPooling",),
    "roi_max_pool": ("MaxRoiPool",),
    "roi_align": ("RoiAlign", "crop_and_resize"),
    "segment_max": ("unsorted_segment_max", "scatter_max"),
    "segment_mean": ("scatter_mean",),
    "segment_sum": ("scatter_add", "unsorted_segment_sum"),
    "segment_softmax": ("scatter_softmax",),
    "local_maxima": ("peak_local_max",),
    "max": ("reduce_max", "ReduceMax"),
    "min": ("ReduceMin",),
    f"max, or {TORCH}.amax": ("amax",),
    f"min, or {TORCH}.amin": ("amin",),
    f"max_unpool, or {TORCH}.MaxUnpool2d": ("MaxUnpool2d",),
    f"lp_pool, or {TORCH}.LPPool2d": ("LPPool2d",),
    "adaptive_max_pool, or the drop-in jaxpool.compat.torch.AdaptiveMaxPool2d or "
    "jaxpool.compat.equinox.AdaptiveMaxPool2d": ("AdaptiveMaxPool2d",),
    "jaxpool.compat.torchvision.PSRoIAlign": ("PSRoIAlign",),
    "jaxpool.compat.torch.median": ("median",),
}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "MaxPool2d",
            "max_pool, or the drop-in jaxpool.compat.torch.MaxPool2d or jaxpool.compat.equinox.MaxPool2d",
        ),
        (
            "AvgPool1d",
            "avg_pool, or the drop-in jaxpool.compat.torch.AvgPool1d or jaxpool.compat.equinox.AvgPool1d",
        ),
        (
            "Maxpool2d",
            "max_pool, or the drop-in jaxpool.compat.torch.MaxPool2d or jaxpool.compat.equinox.MaxPool2d",
        ),
        (
            "AdaptiveAvgpool2d",
            "adaptive_avg_pool, or the drop-in jaxpool.compat.torch.AdaptiveAvgPool2d or "
            "jaxpool.compat.equinox.AdaptiveAvgPool2d",
        ),
        ("max_Pool2d", "max_pool"),
        ("max_pool2d", "max_pool, or the drop-in jaxpool.compat.torch.max_pool2d"),
        ("MaxPool", "max_pool, or the drop-in jaxpool.compat.haiku.MaxPool"),
        ("roi_pool", "roi_max_pool, or the drop-in jaxpool.compat.torchvision.roi_pool"),
        ("MaxPool1D", "max_pool"),
        ("MaxPooling2D", "max_pool"),
        ("AveragePooling3D", "avg_pool"),
        ("GlobalAveragePooling2D", "global_avg_pool"),
        ("fractional_max_pool1d", "fractional_max_pool"),
        *[(name, function) for function, names in OTHER_NAMES.items() for name in names],
    ],
)
def test_attributes_with_names_of_other_libraries(name, hint):
    assert not hasattr(jaxpool, name)
    assert name not in dir(jaxpool)
    with pytest.raises(AttributeError) as caught:
        getattr(jaxpool, name)
    start = f"module 'jaxpool' has no attribute '{name}': use "
    names_function = hint.split(",")[0] in NAMES
    assert str(caught.value) == start + ("jaxpool." if names_function else "the drop-in ") + hint
    with pytest.raises(AttributeError, match=f"'jaxpool.compat' .*{re.escape(hint)}$"):
        getattr(jaxpool.compat, name)


@pytest.mark.parametrize("library", DROP_IN_NAMES)
def test_hints_name_each_drop_in(library):
    """A drop-in that the hint of its name does not show has the name of a public function."""
    module = pytest.importorskip(f"jaxpool.compat.{library}")
    for name in getattr(module, "__all__", DROP_IN_FUNCTIONS["scipy"]):
        hint = public_function_hint(name, jaxpool.__all__)
        assert f"jaxpool.compat.{library}.{name}" in hint or name in NAMES


def test_documentation_names_drop_ins():
    assert all(f"`{name}`" in jaxpool.compat.__doc__ for name in DROP_INS)
