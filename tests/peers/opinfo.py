"""PyTorch's OpInfo samples of operators, modules and errors as calls of `tests/compat/test_torch.py`."""

import inspect

import jax
import numpy as np
import pytest
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from jaxpool.compat import torch as ours
from tests.compat.test_torch import Call, array, compare

OPS = [op for op in op_db if op.name.removeprefix("nn.functional.") in ours.__all__]
MODULES = [module for module in module_db if module.module_cls.__name__ in ours.__all__]


def call_of(name, args, kwargs):
    """A call with arrays in place of tensors. Fractional pools of both libraries get the same random samples."""
    args = tuple(map(array, args))
    if "fractional" in name.lower():
        rank, shape, dtype = int(name[-2]), args[0].shape, args[0].dtype
        lanes = shape[:2] if len(shape) == rank + 2 else (1, shape[0])
        samples = np.random.default_rng(0).random((*lanes, rank)).astype(dtype)
        kwargs = kwargs | {"_random_samples": samples}
    return Call(name, args, {key: array(value) for key, value in kwargs.items()})


def by_dtype(infos, name_of):
    real = [
        pytest.param(info, dtype, id=f"{name_of(info)} {dtype}")
        for info in infos
        for dtype in sorted(info.dtypes, key=str)
        if not dtype.is_complex
    ]
    return pytest.mark.parametrize(("info", "dtype"), real)


@by_dtype(OPS, lambda op: op.full_name)
def test_operator(info, dtype):
    name = info.name.removeprefix("nn.functional.")
    samples = info.sample_inputs("cpu", dtype)
    compare(call_of(name, (each.input, *each.args), each.kwargs) for each in samples)


@by_dtype(MODULES, lambda module: module.module_cls.__name__)
def test_module(info, dtype):
    options = {"device": "cpu", "dtype": dtype, "requires_grad": False, "training": True}
    calls = []
    for each in info.module_inputs_func(info, **options):
        made, given = each.constructor_input, each.forward_input
        made = inspect.signature(info.module_cls).bind(*made.args, **made.kwargs)
        calls.append(call_of(info.module_cls.__name__, given.args, made.arguments))
    compare(calls)


@pytest.mark.parametrize(
    "info", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.full_name
)
def test_errors(info):
    for each in info.error_inputs("cpu"):
        sample = each.sample_input
        with pytest.raises(each.error_type):
            info.op(sample.input, *sample.args, **sample.kwargs)
        kwargs = {name: array(value) for name, value in sample.kwargs.items()}
        function = getattr(ours, info.name.removeprefix("nn.functional."))
        with jax.enable_x64(True), pytest.raises((TypeError, ValueError)):
            function(array(sample.input), *map(array, sample.args), **kwargs)
