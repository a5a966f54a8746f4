"""The filters of `scipy.ndimage`: values on random cases, gradients against finite differences, and refusals."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.compat import scipy as ours
from tests.support.junk import Wrapper

ndimage = pytest.importorskip("scipy.ndimage")

FILTERS_1D = ["maximum_filter1d", "minimum_filter1d", "uniform_filter1d"]
GREY_FILTERS = ["grey_dilation", "grey_erosion", "grey_opening", "grey_closing"]
RANK_FILTERS = ["median_filter", "rank_filter", "percentile_filter"]
TOP_HATS = ["white_tophat", "black_tophat"]
COMPOSED_FILTERS = [*TOP_HATS, "morphological_gradient", "morphological_laplace"]
NAMES = [*FILTERS_1D, *GREY_FILTERS, *RANK_FILTERS, *COMPOSED_FILTERS]
NAMES += ["maximum_filter", "minimum_filter", "uniform_filter"]
BORDER_MODES = ("reflect", "nearest", "mirror", "wrap", "constant", "grid-wrap", "grid-mirror")
SHAPES = ((6, 5), (7,), (3, 4, 5), (1, 5))


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    got, wanted = (inspect.signature(getattr(of, name)).parameters for of in (ours, ndimage))
    assert [str(p) for p in got.values()] == [str(p) for p in wanted.values()]
    assert getattr(ours, name).__name__ == name


def random_case(name, seed, shapes):
    """An array and arguments as SciPy takes them, except cases in which SciPy is wrong.

    SciPy's rank filters ignore a footprint along a single axis. Integer sums with a structure wrap around, except for
    the first element of a window.
    """
    rng = np.random.default_rng([seed, NAMES.index(name)])
    shape = shapes[rng.integers(len(shapes))]
    dtype = rng.choice([np.float32, np.int32, np.uint8])
    x = rng.integers(0, rng.choice([4, 200]), shape).astype(dtype)
    arguments = {"mode": str(rng.choice(BORDER_MODES)), "cval": float(rng.integers(0, 5))}
    count = 1 if name in FILTERS_1D else rng.integers(1, len(shape) + 1)
    axes = tuple(int(a) for a in np.sort(rng.permutation(len(shape))[:count]))
    size = tuple(int(n) for n in rng.integers(1, 5, count))
    origin = tuple(int(rng.integers(-(n // 2), (n - 1) // 2 + 1)) for n in size)
    if name in FILTERS_1D:
        return x, {**arguments, "size": size[0], "origin": origin[0], "axis": axes[0]}
    arguments |= {"axes": axes, "origin": origin}
    footprint, taken = rng.random(size) < 0.7, {"size": size}
    single = len(shape) == 1 and name in RANK_FILTERS
    if footprint.any() and name != "uniform_filter" and not single and rng.random() < 0.5:
        taken = {"footprint": footprint}
    if name in (*GREY_FILTERS, *COMPOSED_FILTERS) and dtype != np.uint8 and rng.random() < 0.5:
        taken["structure"] = rng.integers(0, 3, size).astype(dtype)
    elements = int(np.count_nonzero(taken.get("footprint", np.ones(size))))
    if name == "rank_filter":
        arguments["rank"] = int(rng.integers(-elements, elements))
    if name == "percentile_filter":
        arguments["percentile"] = float(rng.choice([0, 20, 50, 77.7, 100, -30]))
    return x, arguments | taken


def assert_same_as_scipy(name, x, rtol=0, **given):
    """Assert that ours and SciPy's return arrays of the same dtype, equal within `rtol`."""
    want = getattr(ndimage, name)(x, **given)
    got = np.asarray(getattr(ours, name)(jnp.asarray(x), **given))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=f"{name} {given}")


MANY = pytest.param(range(300), SHAPES, marks=pytest.mark.slow)


@pytest.mark.parametrize(("seeds", "shapes"), [(range(3), SHAPES[:1]), MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_random_cases(name, seeds, shapes):
    for seed in seeds:
        x, arguments = random_case(name, seed, shapes)
        rtol = 1e-6 if "uniform" in name and x.dtype == np.float32 else 0
        assert_same_as_scipy(name, x, rtol, **arguments)


@pytest.mark.parametrize("name", ["median_filter", "grey_closing", "uniform_filter"])
@pytest.mark.parametrize("mode", ["reflect", "mirror", "wrap"])
def test_gradients_match_finite_differences(name, mode):
    """Differences of SciPy's function, which is linear here because no two elements are close."""
    x = np.random.default_rng(0).permutation(20).reshape(4, 5).astype(np.float32)
    weights = np.cos(np.arange(20)).reshape(4, 5)
    steps = np.eye(20).reshape(20, 4, 5) / 4
    f = functools.partial(getattr(ndimage, name), size=(3, 2), mode=mode)
    slopes = [((f(x + s) - f(x - s)) * weights).sum() / 0.5 for s in steps.astype(np.float32)]

    @jax.jit
    def derivatives(x):
        def loss(x):
            return (getattr(ours, name)(x, size=(3, 2), mode=mode) * weights).sum()

        return jax.grad(loss)(x), jax.jvp(loss, (x,), (jnp.asarray(steps.sum(0), x.dtype),))[1]

    dx, dy = derivatives(x)
    np.testing.assert_allclose(np.ravel(dx), slopes, atol=1e-4)
    np.testing.assert_allclose(dy, np.sum(slopes) / 4, atol=1e-4)


def test_median_filter_border_differs_from_rank_pool():
    """SciPy extends the array. A pool ranks real elements: the second of two."""
    x = jnp.array([[3.0, 9.0, 1.0, 5.0]])
    np.testing.assert_array_equal(ours.median_filter(x, (1, 3))[0], [3, 3, 5, 5])
    pooled = jaxpool.rank_pool(x, 1, (1, 3), padding="SAME", axes=(0, 1))
    np.testing.assert_array_equal(pooled[0], [9, 3, 5, 5])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32])
def test_means_of_integers_do_not_wrap(dtype):
    ends = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(ends.min, ends.max, (6, 7), dtype, endpoint=True)
    drawn = [(3, None, "reflect"), ((1, 4), np.uint32, "constant"), (2, None, "wrap")]
    for size, output, mode in drawn:
        for each in (x, np.full_like(x, ends.max), (x % 5).astype(dtype)):
            given = {"size": size, "mode": mode, "output": output, "cval": 3}
            assert_same_as_scipy("uniform_filter", each, **given)


def test_integer_means_in_64_bits():
    x = np.arange(2**52, 2**52 + 20)
    with jax.enable_x64():
        for each in (x, -x, x - x[-1]):
            assert_same_as_scipy("uniform_filter", each, size=4)
        x = np.array([2**30, 1, 1, 1], np.int32)
        assert_same_as_scipy("uniform_filter", x, size=3, output=np.float64)


@pytest.mark.parametrize("dtype", [np.int16, np.int8])
def test_int8_and_int16_means_over_long_windows(dtype):
    x = np.full(1024, np.iinfo(dtype).max, dtype)
    x[::3] = -7
    assert_same_as_scipy("uniform_filter", x, size=46341)


def test_mode_as_array():
    got = ours.uniform_filter(jnp.eye(3), 3, mode=np.array(["wrap", "nearest"]))
    np.testing.assert_allclose(got, ndimage.uniform_filter(np.eye(3), 3, mode=["wrap", "nearest"]))


@pytest.mark.parametrize("name", GREY_FILTERS)
def test_integer_sums_with_structure_wrap(name):
    x = np.arange(1, 10).astype(np.uint8).reshape(3, 3)
    centre = np.zeros((3, 3))
    centre[1, 1] = 9
    structures = centre.astype(np.uint8), centre + 0.7, [[250, 1.5], [0, -3.25]], -centre
    for structure in structures:
        for dtype in (np.uint8, np.int8, np.int32):
            assert_same_as_scipy(name, x.astype(dtype), structure=structure)
    assert_same_as_scipy(
        name, x, structure=centre, footprint=[[0, 1, 1], [1, 1, 0], [0, 1, 1]], output=np.int32
    )


@pytest.mark.parametrize(
    "name", ["maximum_filter", "uniform_filter", "grey_dilation", "grey_erosion"]
)
def test_origin_along_size_one_windows_is_ignored(name):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1]
    for size, origin in ((1, 1), (1, -1), ((1, 2), (1, 0)), ((1, 2), (5, -1))):
        assert_same_as_scipy(name, x, size=size, origin=origin)
    if name != "uniform_filter":
        assert_same_as_scipy(name, x, footprint=np.ones((1, 3)), origin=(5, 0))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("median_filter", {"size": (1, 3), "origin": (1, 0)}),
        ("maximum_filter", {"footprint": [[1, 0, 1]], "origin": (1, 0)}),
        ("grey_erosion", {"structure": [[1, 0, 1]], "origin": (1, 0)}),
        ("rank_filter", {"rank": 0, "size": (1, 3), "origin": (1, 0)}),
    ],
)
def test_origin_along_size_one_windows_raises_like_scipy(name, given):
    with pytest.raises(ValueError, match="invalid origin"):
        getattr(ndimage, name)(np.eye(3), **given)
    with pytest.raises(ValueError, match=r"`origin` must be from 0 to 0.*got origin=\(1, 0\)"):
        getattr(ours, name)(jnp.eye(3), **given)


def test_error_shows_passed_origin():
    for name in GREY_FILTERS:
        with pytest.raises(ValueError, match=r"`origin` must be from -1 to 1, .*; got origin=-2 "):
            getattr(ours, name)(jnp.zeros((4, 5)), 3, origin=-2)
        with pytest.raises(ValueError, match=r"`origin` must be from -1 to 0, .*; got origin=1 "):
            getattr(ours, name)(jnp.zeros((4, 5)), 2, origin=1)


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_0d_arrays(name):
    more = {"rank_filter": {"rank": 0}, "percentile_filter": {"percentile": 20}}.get(name, {})
    for shape in ((0,), (0, 3), (3, 0)):
        assert_same_as_scipy(name, np.zeros(shape, np.float32), size=3, **more)
    if name in FILTERS_1D:
        return
    assert_same_as_scipy(name, np.full((), 5, np.float32), size=3, **more)
    assert_same_as_scipy(name, np.arange(6, dtype=np.int32).reshape(2, 3), size=3, axes=(), **more)
    if name != "uniform_filter":
        assert_same_as_scipy(name, np.ones((), np.int32), footprint=np.array(True), **more)
    if name in GREY_FILTERS:
        assert_same_as_scipy(name, np.ones((), np.int32), structure=np.array(2.0))
    with pytest.raises(ValueError, match=r"`origin` must be from -1 to 1"):
        getattr(ours, name)(jnp.zeros((0, 3)), size=3, origin=5, **more)


def test_footprint_in_a_holder():
    x = jnp.arange(20.0).reshape(4, 5)
    footprint = np.array([[1, 0, 1], [0, 1, 1]])
    got = ours.maximum_filter(x, footprint=Wrapper(jnp.array(footprint)))
    np.testing.assert_array_equal(got, ndimage.maximum_filter(np.asarray(x), footprint=footprint))
    with pytest.raises(TypeError, match="got footprint=traced int"):
        jax.jit(lambda mask: ours.maximum_filter(x, footprint=Wrapper(mask)))(footprint)


def test_footprint_follows_order_of_axes():
    x = np.random.default_rng(0).permutation(60).reshape(3, 4, 5).astype(np.int32)
    footprint = np.array([[1, 0, 1], [0, 1, 1]])
    for name in ("maximum_filter", "median_filter", "grey_erosion"):
        for axes in ((2, 0), (0, 2), (2, 1)):
            assert_same_as_scipy(name, x, footprint=footprint, axes=axes, origin=(0, -1))
        assert_same_as_scipy(name, x[0], footprint=footprint, axes=(1, 0), origin=(-1, 1))
        assert_same_as_scipy(name, x[0], size=(1, 3), axes=(1, 0))
    assert_same_as_scipy("grey_dilation", x[0], structure=footprint, axes=(1, 0))
    assert_same_as_scipy("maximum_filter", x[0], footprint=np.ones((1, 3)), axes=(1, 0))


@pytest.mark.parametrize(
    "name", ["minimum_filter", "maximum_filter", "uniform_filter", "median_filter"]
)
def test_floats_wrap_in_integer_output(name):
    x = np.array([-4, 5.5, 300, -1, -70], np.float32)
    assert_same_as_scipy(name, x, size=2, output=np.uint8)
    assert_same_as_scipy(name, x, size=2, output=np.int8)
    x = np.float32([[-1, -2.5, 3e9], [-2e9, 7.5, -0.5]])
    assert_same_as_scipy(name, x, size=1, output=np.uint32)


@pytest.mark.parametrize("name", [*GREY_FILTERS, "maximum_filter", "minimum_filter"])
@pytest.mark.parametrize("output", [np.uint8, np.int8, np.uint16, np.uint32, bool])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int16])
def test_cast_to_narrower_output_after_each_axis(name, output, dtype):
    x = np.random.default_rng(3).integers(-700, 700, (7, 9, 3))
    x = (x / 3 if dtype == np.float32 else x).astype(dtype)
    assert_same_as_scipy(name, x, size=(3, 2, 1), output=output)
    assert_same_as_scipy(name, x, size=(2, 3), axes=(2, 0), output=output, mode="constant", cval=1)


STRUCTURES = ([[0, 1, 0], [2, -1, 1], [0, 3, 0]], [[0.5, 1, 0], [2, -1.7, 1], [0, 3, -0.2]])


@pytest.mark.parametrize("name", GREY_FILTERS)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("output", [None, np.uint8, np.int32])
def test_bool_input_with_structure(name, structure, output):
    x = np.random.default_rng(4).integers(0, 2, (6, 7)).astype(bool)
    assert_same_as_scipy(name, x, structure=np.array(structure), output=output)


@pytest.mark.parametrize("name", TOP_HATS)
def test_top_hats_of_bool_and_other_output_dtypes(name):
    x = np.random.default_rng(0).integers(0, 9, (6, 7))
    assert_same_as_scipy(name, x > 4, size=(2, 3))
    assert_same_as_scipy(name, x.astype(np.int32), size=(2, 3), output=np.float32)
    assert_same_as_scipy(name, x.astype(np.uint8), size=(2, 3), output=np.int32)


@pytest.mark.parametrize("module", [ours, ndimage])
def test_dtypes_without_differences_raise(module):
    for name in TOP_HATS:
        with pytest.raises(TypeError, match="cast"):
            getattr(module, name)(np.ones((3, 3), np.float32), 3, output=np.int32)
    for name in ("morphological_gradient", "morphological_laplace"):
        with pytest.raises(TypeError):
            getattr(module, name)(np.ones((3, 3), bool), 2)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_without_zero_raises(name):
    """Differences of elements have no value in this dtype, which SciPy refuses as well."""
    x = jnp.ones((3, 3), jnp.float8_e8m0fnu)
    arguments = {"rank": 0} if name == "rank_filter" else {"percentile": 50}
    arguments = arguments if name in RANK_FILTERS[1:] else {}
    with pytest.raises(TypeError, match=rf"{name}: `input` must be of a dtype with a zero .*Pass"):
        getattr(ours, name)(x, size=3, **arguments)
    with pytest.raises((RuntimeError, TypeError)):
        getattr(ndimage, name)(np.asarray(x), size=3, **arguments)


def test_top_hat_gradient():
    x = jnp.array([4.0, 1.0, 7.0, 2.0, 8.0])
    dx = jax.grad(lambda x: (ours.white_tophat(x, 2) * jnp.arange(5.0)).sum())(x)
    np.testing.assert_array_equal(dx, [0, 0, 2, -6, 4])
