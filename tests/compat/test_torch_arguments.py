"""The arguments of the drop-ins for PyTorch: odd values, which both libraries accept or refuse, dtypes and names."""

import inspect
import itertools

import jax
import numpy as np
import pytest

from jaxpool.compat import torch as ours
from tests.support.compat_cases import to_torch, torch_function
from tests.support.junk import Wrapper

torch = pytest.importorskip("torch")

FUNCTIONS = [name for name in ours.__all__ if name[0].islower()]
X = np.sin(np.arange(2 * 3 * 6 * 8.0, dtype=np.float32)).reshape(2, 3, 6, 8) ** 2
INPUTS = {1: X[0], 2: X, 3: X.reshape(1, 2, 6, 6, 4)}  # by the number of pooled axes

DTYPES = [np.float16, np.int8, np.uint8, np.int16, np.int32, np.bool_, np.complex64]
ODD_ARRAYS = [3.0, True, None, "a", [1.0], X[..., :3], np.zeros((1, 3, 6, 7), np.uint16)]
ODD_ARRAYS += [np.zeros((1,) * rank, np.float32) for rank in range(7)]
ODD_ARRAYS += [
    np.zeros(shape, np.float32)
    for shape in [(0, 3), *((0, *spatial) for spatial in ((2, 4), (2, 4, 4), (2, 4, 4, 4)))]
]
ODD_ARRAYS += [
    np.zeros((1, *shape), np.float32)
    for shape in [(0, 4), (0, 4, 4), (0, 4, 4, 4), (2, 0), (2, 0, 0), (2, 0, 0, 0)]
]
ODD_VALUES = [0, -1, 1, 3, 6, 7, 20, 2**63, 2.0, 0.5, True, None, "2"]
ODD_VALUES += [(), [2], (1,), (0,), (None,), (0.5,), (2, 2), (1, 1), (1, -3), (2.0, 2), (True, 2)]
ODD_VALUES += [(0.5, 0.5), (1.5, 0.5), (2, 2, 2), (0.5, 0.5, 0.5), (2, 2, 2, 2), ((1, 1), (1, 1))]
ODD_VALUES += [(8, 9), (4, 8), (5, 7)]  # of unpooling to (6, 8)

# Arguments for which PyTorch accepts more: it does not check them, or not completely.
CHECKED_BY_OURS_ALONE = {
    ("fractional_max_pool", "kernel_size"),
    ("max_unpool", "kernel_size"),
    ("max_unpool", "stride"),
    ("max_unpool", "padding"),
    ("lp_pool", "norm_type"),
    ("lp_pool", "input"),  # of bool
    ("logcumsumexp", "input"),  # of complex numbers
}


def usual_calls(name):
    """Valid calls of a function as arguments by name."""
    parameters = inspect.signature(getattr(ours, name)).parameters
    if "pool" not in name:
        calls = [{"input": X, "other": X}] if [*parameters][1] == "other" else []
        calls += [{"input": X, "dim": 1}] if "dim" in parameters else []
        return calls + ([{"input": X}] if "keepdim" in parameters else [])
    rank = int(name[-2])
    call = {"input": INPUTS[rank]}
    if "return_indices" in parameters:
        call["return_indices"] = True
    if "adaptive" in name:
        return [call | {"output_size": 3}]
    call["kernel_size"] = 2
    if "lp" in name:
        call["norm_type"] = 2
    if "unpool" in name:
        pool = torch_function(f"max_pool{rank}d")
        y, indices = pool(torch.from_numpy(INPUTS[rank]), 2, return_indices=True)
        call |= {"input": y.numpy(), "indices": indices.numpy()}
    if "fractional" in name:
        call["_random_samples"] = np.full((*INPUTS[rank].shape[:2], rank), 0.3, np.float32)
        return [call | {"output_size": 2}, call | {"output_ratio": (0.5,) * rank}]
    return [call]


def odd_values(name, parameter, usual):
    """Values of an argument that are wrong for some function, given its value in a valid call."""
    if parameter in ("input", "other"):
        # PyTorch's 3d pools lack some dtypes only on CPU, so these tests skip them.
        return ODD_ARRAYS + [usual.astype(dtype) for dtype in DTYPES if name[-2:] != "3d"]
    if parameter == "indices":
        return [usual[:, :1], usual.astype(np.float32), usual + 400, usual * 0 - 1]
    if parameter == "_random_samples":
        shapes = [usual[0], usual[:, :1], usual[..., :1], usual[:0]]
        return [*shapes, usual.astype(np.float16), usual.tolist()]
    return ODD_VALUES


def torch_types(name, given):
    return types_of(torch_function(name)(**{key: to_torch(each) for key, each in given.items()}))


def types_of(result):
    """The dtype of the first output, and the shapes of all. Our indices have another dtype than PyTorch's."""
    outputs = result if isinstance(result, tuple) else (result,)
    dtype = str(outputs[0].dtype).removeprefix("torch.")
    return dtype, [tuple(y.shape) for y in outputs]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_arguments(name):
    """For each odd value of each argument, PyTorch and jaxpool return outputs of the same types, or both raise."""
    function = getattr(ours, name)
    parameters = {*inspect.signature(function).parameters} - {"return_indices", "key"}
    for usual, parameter in itertools.product(usual_calls(name), sorted(parameters)):
        assert torch_types(name, usual)  # does not raise, so that only the odd value may
        for value in odd_values(name, parameter, usual.get(parameter, X)):
            given = usual | {parameter: value}
            try:
                want = torch_types(name, given)
            except Exception:
                want = None
            try:
                got = types_of(jax.eval_shape(lambda given=given: function(**given)))
            except (TypeError, ValueError):
                got = None
            if got is None and (name.rstrip("123d"), parameter) in CHECKED_BY_OURS_ALONE:
                continue
            assert got == want, f"{name} with {parameter}={value!r}"


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
    for other in (-X, Wrapper(-X)):
        np.testing.assert_array_equal(ours.max(X, other=other), np.maximum(X, -X))
        np.testing.assert_array_equal(ours.min(X, other), np.minimum(X, -X))
    np.testing.assert_array_equal(ours.max(X, np.int64(1)).values, X.max(1))
    assert ours.max(np.float32(3), 0) == (3, 0)


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


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_of_long_int16_axis(name):
    x = np.random.default_rng(0).permutation(3001).astype(np.int16).reshape(1, 3001)
    got, want = getattr(ours, name)(x, 1), getattr(torch, name)(to_torch(x), 1)
    jax.tree.map(np.testing.assert_array_equal, [*got], [*want])


def test_norm_types_of_lp_pools():
    want = ours.lp_pool2d(X, 3.0, 2)
    np.testing.assert_array_equal(ours.lp_pool2d(X, np.float32(3), 2), want)
    np.testing.assert_array_equal(jax.jit(lambda p: ours.lp_pool2d(X, p, 2))(3.0), want)
