"""The public contract: names, arguments, their order and defaults, and what a docstring must hold."""

import inspect
import re
import subprocess
import sys

import pytest

import jaxpool

GEOMETRY = 'x, window_shape, strides=None, padding="VALID"'
SHAPE = "window_dilation=None, ceil_mode=False, axes=None"
MAX = f'{GEOMETRY}, *, {SHAPE}, ties="first", autodiff="vjp"'
EXTREME = 'x, axis=None, *, keepdims=False, where=None, initial=None, ties="split", autodiff="vjp"'
CUMULATIVE = 'x, axis=-1, *, reverse=False, ties="first", autodiff="vjp"'
ADAPTIVE = 'x, output_shape, *, axes=None, ties="first", autodiff="vjp"'
SEGMENT = 'x, segment_ids, num_segments=None, *, indices_are_sorted=False, ties="split"'
KERNEL = (
    'x, kernel, strides=None, padding="VALID", *, window_dilation=None, axes=None, ties="first", '
    'autodiff="vjp"'
)
BLUR = 'x, window_shape, strides=None, padding="SAME"'
SIGNATURES = {
    "max_pool": MAX,
    "min_pool": MAX,
    "max_pool_with_argmax": MAX,
    "max_unpool": "y, indices, spatial_shape, *, axes=None",
    "avg_pool": f'{GEOMETRY}, count_include_pad=True, *, {SHAPE}, divisor=None, autodiff="vjp"',
    "sum_pool": f'{GEOMETRY}, *, {SHAPE}, autodiff="vjp"',
    "lp_pool": f"{GEOMETRY.replace('x, ', 'x, p, ')}, *, {SHAPE}",
    "logsumexp_pool": f"{GEOMETRY}, *, temperature=1.0, {SHAPE}",
    "softmax_pool": f"{GEOMETRY}, *, temperature=1.0, {SHAPE}",
    "gem_pool": f"{GEOMETRY.replace('x, ', 'x, p, ')}, *, eps=1e-6, {SHAPE}",
    "fractional_max_pool": "key, x, window_shape, output_shape, *, axes=None",
    "stochastic_pool": f"key, {GEOMETRY}, *, axes=None",
    "fractional_avg_pool": "key, x, window_shape, output_shape, *, axes=None",
    "median_pool": MAX,
    "rank_pool": MAX.replace("x, ", "x, rank, ", 1),
    "k_max_pool": "x, k, *, axis=-2",
    "dilate": KERNEL,
    "erode": KERNEL,
    "blur_pool": f"{BLUR}, *, axes=None",
    "max_blur_pool": 'x, window_shape, blur_shape, strides, padding="SAME", *, axes=None',
    "adaptive_max_pool": ADAPTIVE,
    "adaptive_max_pool_with_argmax": ADAPTIVE,
    "adaptive_avg_pool": 'x, output_shape, *, axes=None, autodiff="vjp"',
    "global_max_pool": 'x, *, axes=None, where=None, keepdims=False, ties="first"',
    "global_avg_pool": "x, *, axes=None, where=None, keepdims=False",
    "spatial_pyramid_pool": 'x, levels, *, kind="max", axes=None',
    "maximum": '*xs, ties="split", autodiff="vjp"',
    "minimum": '*xs, ties="split", autodiff="vjp"',
    "fmax": 'x, y, *, ties="split", autodiff="vjp"',
    "fmin": 'x, y, *, ties="split", autodiff="vjp"',
    "max": EXTREME,
    "min": EXTREME,
    "cummax": CUMULATIVE,
    "cummin": CUMULATIVE,
    "maxout": 'x, groups, *, axis=-1, ties="split"',
    "roi_align": "x, boxes, output_shape, *, batch_indices=None, spatial_scale=1.0, samples=2, "
    'aligned=True, kind="avg"',
    "roi_max_pool": "x, boxes, output_shape, *, batch_indices=None, spatial_scale=1.0, "
    'ties="first"',
    "segment_max": SEGMENT,
    "segment_min": SEGMENT,
    "segment_mean": SEGMENT.replace(', ties="split"', ""),
    "keep_memory": "",
    "accelerate": "fn, *, report=None",  # the report shows what was taken over
    "plan_of": "fn",
    "sharded": "pool, *, mesh=None, spec=None",
}


def contract(arguments: str) -> list[tuple[str, object, object]]:
    """Name, kind and default of each argument of `def f(arguments)`."""
    scope: dict[str, object] = {}
    exec(f"def f({arguments}): pass", scope)
    return shown(scope["f"])


def shown(function: object) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


def test_all_names_what_the_contract_names_and_no_more():
    assert sorted(jaxpool.__all__) == sorted(SIGNATURES)
    assert jaxpool.__all__ == sorted(jaxpool.__all__)


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_their_order_and_defaults(name):
    assert shown(getattr(jaxpool, name)) == contract(SIGNATURES[name])


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_argument_and_the_result_are_typed(name):
    signature = inspect.signature(getattr(jaxpool, name))
    untyped = [n for n, p in signature.parameters.items() if p.annotation is p.empty]
    assert untyped == []
    assert signature.return_annotation is not signature.empty


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_docstring_tells_arguments_result_errors_an_example_and_its_source(name):
    text = inspect.getdoc(getattr(jaxpool, name))
    sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
    expected = ["Args", "Returns", "Raises", "Example", "References"]
    assert [section for section in sections if section in expected] == expected
    assert re.search(rf">>> .*jaxpool\.{name}\(", text) or f"import {name}" in text
    if not SIGNATURES[name]:  # it computes nothing
        return
    assert re.search(r"Gradient", text)
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for parameter in inspect.signature(getattr(jaxpool, name)).parameters:
        assert re.search(rf"^\s+\*?{parameter}\b.*:", arguments, re.MULTILINE), parameter


def test_where_forward_mode_needs_an_argument_the_docstring_says_which():
    for name, arguments in SIGNATURES.items():
        if "autodiff" in arguments:
            text = inspect.getdoc(getattr(jaxpool, name))
            assert re.search(r'"jvp"', text), name


def test_import_needs_jax_and_numpy_alone():
    extras = "flax haiku equinox keras torch tensorflow matplotlib sklearn optax tqdm hypothesis"
    code = (
        "import sys, jaxpool\n"
        f"found = [name for name in {extras.split()} if name in sys.modules]\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_packages_below_are_found_without_an_import_of_their_own():
    names = "jaxpool.compat, jaxpool.testing"
    code = f"import jaxpool; print(*[each.__name__ for each in ({names})], sep=', ')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == names


def test_a_drop_in_is_an_attribute_before_anything_imported_it():
    names = ["flax", "scipy", "torch", "torchvision"]
    code = f"""if True:
        import jaxpool
        for name in {names}:
            assert name in dir(jaxpool.compat) and name not in vars(jaxpool.compat)
            assert getattr(jaxpool.compat, name).__name__ == f"jaxpool.compat.{{name}}"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(f"`{name}`" in jaxpool.compat.__doc__ for name in names)


def test_no_drop_in_is_made_up():
    with pytest.raises(AttributeError, match=r"'jaxpool\.compat' has no attribute 'nothing'"):
        jaxpool.compat.nothing  # noqa: B018


def test_help_needs_no_extra():
    code = (
        "import importlib.util, pydoc, sys; found = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name: None if name == 'hypothesis' else found(name); "
        "sys.modules['hypothesis'] = None; import jaxpool; pydoc.render_doc(jaxpool)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_lists_its_names_and_has_no_others():
    code = "import jaxpool; print(*dir(jaxpool))"
    fresh = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert {*jaxpool.__all__, "compat", "testing"} <= set(fresh)
    assert not {"Any", "TYPE_CHECKING", "importlib", "sys"} & set(fresh)
    with pytest.raises(AttributeError, match="'jaxpool' has no attribute 'nothing'"):
        jaxpool.nothing  # noqa: B018
