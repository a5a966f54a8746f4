"""The arguments of the drop-ins for PyTorch: signatures, names, unusual values, and values that both refuse."""

import inspect
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.compat import torch as ours
from tests.support.compat_cases import expect_both_raise, to_torch, torch_function

torch = pytest.importorskip("torch")

X = np.sin(np.arange(2 * 3 * 6 * 8.0, dtype=np.float32)).reshape(2, 3, 6, 8)
F = torch.nn.functional
EMPTY = np.zeros((0, 3), np.float32)
POOLS = [name for name in ours.__all__ if "_" in name and "pool" in name]


def signature_text(fn):
    """The text of a signature without annotations."""
    signature = inspect.signature(fn)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


MAX_POOL = "(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)"
AVG_POOL1D = "(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True)"
FRACTIONAL = (
    "(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, "
    "_random_samples=None, *, key=None)"
)
DOCUMENTED_SIGNATURES = {  # Python cannot inspect these functions of PyTorch
    "max_pool1d max_pool2d max_pool3d": MAX_POOL,
    "avg_pool1d": AVG_POOL1D,
    "avg_pool2d avg_pool3d": AVG_POOL1D[:-1] + ", divisor_override=None)",
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": (
        "(input, output_size, return_indices=False)"
    ),
    "adaptive_avg_pool1d": "(input, output_size)",
    "fractional_max_pool2d fractional_max_pool3d": FRACTIONAL,
    "maximum minimum fmax fmin": "(input, other)",
    "amax amin": "(input, dim=(), keepdim=False)",
    "cummax cummin logcumsumexp": "(input, dim)",
}
INSPECTED = "adaptive_avg_pool2d adaptive_avg_pool3d lp_pool1d lp_pool2d lp_pool3d"
INSPECTED += " max_unpool1d max_unpool2d max_unpool3d"


@pytest.mark.parametrize("names", [*DOCUMENTED_SIGNATURES, INSPECTED])
def test_signatures(names):
    for name in names.split():
        original = torch_function(name)
        want = DOCUMENTED_SIGNATURES.get(names) or signature_text(original)
        assert signature_text(getattr(ours, name)) == want
        parameters = inspect.signature(getattr(ours, name)).parameters
        if names != INSPECTED:
            for parameter in {*parameters} - {"input", "_random_samples", "key"}:
                assert parameter in original.__doc__


def test_imports_are_lazy_and_need_no_pytorch():
    code = (
        "import sys, jaxpool; assert not any('jaxpool.compat' in name for name in sys.modules);"
        "import jaxpool.compat.torch; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("promotion", ["standard", "strict"])
def test_binary_dtype_promotion(promotion):
    names = ["bool", "int8", "uint8", "int32", "float16", "float32"]
    values = [np.ones(shape, name) for name in names for shape in ((2,), ())]
    with jax.numpy_dtype_promotion(promotion):
        for x, y in itertools.product(values, values):
            got, want = jax.eval_shape(ours.maximum, x, y), torch.maximum(to_torch(x), to_torch(y))
            assert str(got.dtype) == str(want.dtype).removeprefix("torch."), (x, y)


def test_results_are_named_tuples():
    for name in ("max", "min", "cummax", "cummin"):
        result, want = getattr(ours, name)(X, 1), torch_function(name)(torch.from_numpy(X), 1)
        np.testing.assert_array_equal(result.values, want.values)
        np.testing.assert_array_equal(result.indices, want.indices)
    assert ours.aminmax(X)._fields == ("min", "max")
    assert isinstance(ours.max(X), jax.Array)
    np.testing.assert_array_equal(ours.max(X, other=-X), np.maximum(X, -X))
    np.testing.assert_array_equal(ours.max(jnp.asarray(X), jnp.asarray(-X)), np.maximum(X, -X))
    np.testing.assert_array_equal(ours.max(X, np.int64(1)).values, X.max(1))


NAMED_DIMS = [{"axis": 1}, {"axis": 1, "keepdims": True}, {"dim": 0, "keepdims": True}]


@pytest.mark.parametrize(
    "name", ["max", "min", "amax", "amin", "cummax", "cummin", "median", "nanmedian"]
)
def test_numpy_argument_names_match_pytorch(name):
    x, pool = np.array([[1, 3, 2], [5, 4, 6]], np.float32), getattr(ours, name)
    for kwargs in NAMED_DIMS:
        try:
            want = getattr(torch, name)(torch.from_numpy(x), **kwargs)
        except TypeError:
            with pytest.raises(TypeError, match=f"torch.{name}: there is no argument"):
                pool(x, **kwargs)
        else:
            jax.tree.map(np.testing.assert_array_equal, [*pool(x, **kwargs)], [*want])
    with pytest.raises(TypeError, match="`axis` must be missing where `dim` is given; got axis=1"):
        pool(x, axis=1, dim=1)


def test_output_size_zero():
    for name, size in [("adaptive_max_pool2d", 0), ("adaptive_avg_pool2d", (0, 2))]:
        got, want = getattr(ours, name)(X, size), torch_function(name)(to_torch(X), size)
        assert got.shape == tuple(want.shape)
    y, indices = ours.adaptive_max_pool1d(X[0], 0, True)
    assert y.shape == indices.shape == (3, 6, 0)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_of_long_int16_axis(name):
    x = np.random.default_rng(0).permutation(3001).astype(np.int16).reshape(1, 3001)
    got, want = getattr(ours, name)(x, 1), getattr(torch, name)(to_torch(x), 1)
    jax.tree.map(np.testing.assert_array_equal, [*got], [*want])


def assert_both_raise(name, *args, **kwargs):
    """Assert that both refuse these arguments. Arrays become tensors for PyTorch."""
    expect_both_raise(
        lambda: getattr(ours, name)(*args, **kwargs),
        lambda: torch_function(name)(
            *map(to_torch, args), **{key: to_torch(value) for key, value in kwargs.items()}
        ),
    )


INVALID_WINDOW_ARGS = {
    "kernel_size": [0, -1, 2.0, True, None, (), "2", (2.0, 2), (True, 2), (2, 2, 2, 2), 20],
    "stride": [0, -1, 1.5, True, (1, 1, 1, 1), "1"],
    "padding": [2, -1, 0.5, None, (), True, "same", ((1, 1), (1, 1)), (1, 1, 1, 1)],
    "dilation": [0, -1, 0.5, None, (), (1, 1, 1, 1)],
    "ceil_mode": [1, 0, None, "a", np.True_],
    "count_include_pad": [1, 0, None, "a", np.True_],
    "divisor_override": [0, 1.0, "a", True, np.True_],
}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_wrong_arguments_of_windowed_and_adaptive_pools(kind, rank):
    name = f"{kind}_pool{rank}d"
    x = X[0] if rank == 1 else X
    taken = inspect.signature(getattr(ours, name)).parameters
    for argument, values in INVALID_WINDOW_ARGS.items():
        for value in values if argument in taken else ():
            assert_both_raise(name, x, **({"kernel_size": 2} | {argument: value}))
    wrong = [-1, 2.0, True, None, (), "2", (2, 2, 2, 2), (2.0,) * rank, (True,) * rank, (None,)]
    for size in wrong if rank == 1 else [*wrong, (2,)]:
        assert_both_raise(f"adaptive_{name}", x, size)


@pytest.mark.parametrize("name", POOLS)
def test_wrong_shapes(name):
    rank, kind = int(name[-2]), name.split("_pool")[0]
    empty = [(1, 2, *(0,) * rank), (1, 0, *(4,) * rank)]
    for shape in [(), (6,), (2,) * rank, (2,) * (rank + 3), *empty]:
        if kind == "adaptive_avg" and rank < 3 and len(shape) == rank + 2 and 0 not in shape[2:]:
            continue  # the only pools that accept 0 channels
        x = np.zeros(shape, np.float32)
        args = {"lp": (2, 1), "fractional_max": (1, 1), "adaptive_avg": (2,)}.get(kind, (1,))
        if "unpool" in name:
            args = (np.zeros(shape, np.int64), 1)
        if "fractional" in name:
            samples = np.zeros((1, shape[-rank - 1] if len(shape) > rank else 1, rank), np.float32)
            assert_both_raise(name, x, *args, _random_samples=samples)
        else:
            assert_both_raise(name, x, *args)


def test_wrong_arguments_of_lp_pools():
    for norm in (0, "2", None, (2,)):
        assert_both_raise("lp_pool2d", X, norm, 2)
    for kernel in ((2,), (2, 2, 2), 2.0, True, 0, "2", None):
        assert_both_raise("lp_pool2d", X, 2, kernel)
        assert_both_raise("lp_pool1d", X[0], 2, kernel)
    assert_both_raise("lp_pool3d", X, 2, (2, 2))
    assert_both_raise("lp_pool2d", X, 2, 2, 0)
    assert_both_raise("lp_pool2d", X, 2, 2, None, 1)
    assert_both_raise("lp_pool2d", np.int32(X), 2, 2)


INVALID_UNPOOL_ARGS = {
    "kernel_size": [(2,), (2, 2, 2), 2.5, -1],
    "stride": [(), -2],
    "padding": [(1,), 1, 5],
    "output_size": [(8, 9), (4, 8), 7, (7,), (7.0, 9), (5, 7)],
}


def test_wrong_arguments_of_unpooling():
    y, indices = (a.numpy() for a in F.max_pool2d(to_torch(X), 2, return_indices=True))
    for argument, values in INVALID_UNPOOL_ARGS.items():
        for value in values:
            assert_both_raise(
                "max_unpool2d", y, indices, **({"kernel_size": 2} | {argument: value})
            )
    for wrong in (indices[:, :1], indices.astype(np.float32), indices + 100, indices * 0 - 1):
        assert_both_raise("max_unpool2d", y, wrong, 2)


def test_wrong_arguments_of_fractional_pools():
    x, samples = X[:1], np.full((1, 3, 2), 0.3, np.float32)
    sizes = [{"output_size": size} for size in ((3,), (3, 3, 3), -1, 6, 2.0)]
    ratios = (0.5, (0.5,), (0.5, 0.5, 0.5), (1.5, 0.5))
    kernels = [{"output_size": 3, "kernel_size": size} for size in ((2,), 2.0, True)]
    kernels += [{"output_size": 1, "kernel_size": 7}]
    for kwargs in [{}, *sizes, *({"output_ratio": ratio} for ratio in ratios), *kernels]:
        given = {"kernel_size": 2, "_random_samples": samples} | kwargs
        assert_both_raise("fractional_max_pool2d", x, **given)
    shapes = [samples[0], samples[:, :2], samples[..., :1], samples[:0]]
    for wrong in (*shapes, samples.astype(np.float16), samples.tolist()):
        assert_both_raise("fractional_max_pool2d", x, 2, 3, _random_samples=wrong)
    volume = np.zeros((1, 2, 4, 4, 4), np.float32)
    samples = np.full((1, 2, 3), 0.3, np.float32)
    for kwargs in ({"output_size": (2, 2)}, {"output_ratio": (0.5, 0.5)}, {"output_size": 3}):
        assert_both_raise("fractional_max_pool3d", volume, 2, **kwargs, _random_samples=samples)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_wrong_operands(name):
    for wrong in (2.0, 3, True, [1.0], None, "a", X[..., :3], X.astype(np.complex64)):
        assert_both_raise(name, X, wrong)
        assert_both_raise(name, wrong, X)


# Arguments after X, of each reduction and of some.
WRONG_DIMS = [(dim,) for dim in (4, -5, 1.0, True, "a")]
NO_SINGLE_DIM = [(None,), ((0,),), ((),)]
WRONG_REDUCTIONS = {
    "max min": [(None,), ((0, 1),), ((0,),), (1, 1), (1, None)],
    "median nanmedian": [*NO_SINGLE_DIM, (1, 2)],
    "amax amin": [((1, 1),), ((1, -3),), ((True,),), ((1.0,),), (0, 1)],
    "cummax cummin logcumsumexp": [(), *NO_SINGLE_DIM],
}
WRONG_KEYWORDS = {
    "max min": [{"keepdim": True}, {"dim": 1, "other": X}, {"dim": None}, {"other": 2.0}],
    "median nanmedian": [{"keepdim": True}],
}
WRONG_INPUTS = {
    "max min": [(3.0, 4.0), ([1.0],), (EMPTY,), (EMPTY, 0), (np.float32(3) * np.ones(()), 1)],
    "median nanmedian": [(3.0,), ([1.0],), (EMPTY, 0), (np.ones(2, bool), 0)],
    "amax amin": [(EMPTY,), (EMPTY, 0)],
}


@pytest.mark.parametrize("names", WRONG_REDUCTIONS)
def test_wrong_arguments_of_reductions(names):
    for name in names.split():
        for args in [*WRONG_DIMS, *WRONG_REDUCTIONS[names]]:
            assert_both_raise(name, X, *args)
        for kwargs in WRONG_KEYWORDS.get(names, ()):
            assert_both_raise(name, X, **kwargs)
        for args in WRONG_INPUTS.get(names, ()):
            assert_both_raise(name, *args)


def test_lp_pool_norm_types_and_input_dtypes():
    want = ours.lp_pool2d(X, 3.0, 2)
    np.testing.assert_array_equal(ours.lp_pool2d(X, np.float32(3), 2), want)
    np.testing.assert_array_equal(jax.jit(lambda p: ours.lp_pool2d(X, p, 2))(3.0), want)
    with pytest.raises(TypeError, match=r"`norm_type` must be a number other than 0; got .*\(1,\)"):
        ours.lp_pool2d(X, np.ones(1, np.float32), 2)
    with pytest.raises(TypeError, match="`input` must be floats or integers"):
        ours.lp_pool2d(np.ones(np.shape(X), bool), float("inf"), 2)


def test_kernel_size_beyond_63_bits_raises():
    with pytest.raises(ValueError, match=r"`kernel_size` must be below 2\*\*63"):
        ours.max_pool2d(X, 2**63)


def test_max_of_scalar():
    values, indices = ours.max(jnp.float32(3), 0)
    assert (values, indices) == (3, 0)


@pytest.mark.parametrize("name", ["max", "median", "cummax", "logcumsumexp"])
def test_symbolic_axis_size_raises(name):
    (size,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((3, size), np.float32)
    with pytest.raises(ValueError, match=r"of known size along \w* ?axis 1; got .*b"):
        jax.eval_shape(lambda x: getattr(ours, name)(x, 1), x)
