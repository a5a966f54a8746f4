"""PyTorch's OpInfo samples of operators, modules and errors, run with `compat.torch`: value and gradient."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from jaxpool.compat import torch as ours
from tests.support.compilation import FAST_COMPILE

jax.config.update("jax_enable_x64", True)
SAMPLES_PER_PROGRAM = 16  # samples per program
UNSPECIFIED_TIE_INDEX = ("median:", "nanmedian:")  # PyTorch does not specify the index of a tie
EPS = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
OPS = [op for op in op_db if op.name.removeprefix("nn.functional.") in ours.__all__]
MODULES = [module for module in module_db if module.module_cls.__name__ in ours.__all__]


def array(value):
    """Convert tensors, also inside tuples and lists, to arrays."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(array, value)) if type(value) in (tuple, list) else tuple(value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return jnp.asarray(value.float().numpy(), jnp.bfloat16)
    return jnp.asarray(value.numpy())


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


class Sample:
    """One call: arrays with gradients, and the functions of PyTorch and jaxpool."""

    def __init__(self, theirs, mine, args, kwargs, says):
        self.says = f"{says}: {args} {kwargs}"[:300]
        self.args = [array(value) for value in args]
        self.kwargs = {name: array(value) for name, value in kwargs.items()}
        self.mine = mine
        self.floats = [
            i
            for i, value in enumerate(args)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        ]
        leaves = [value.detach().requires_grad_() for value in (args[i] for i in self.floats)]
        filled = list(args)
        for i, leaf in zip(self.floats, leaves, strict=True):
            filled[i] = leaf
        outs = as_list(theirs(*filled, **kwargs))
        self.want = [array(out) for out in outs]
        sent = [out for out in outs if out.is_floating_point()]
        self.dys = [torch.rand_like(out) + 0.5 for out in sent]
        self.grads = []
        if leaves and any(out.requires_grad for out in sent):
            grads = torch.autograd.grad(sent, leaves, self.dys, allow_unused=True)
            self.grads = [
                jnp.zeros(leaf.shape) if grad is None else array(grad)
                for grad, leaf in zip(grads, leaves, strict=True)
            ]
        self.eps = EPS.get(args[0].dtype, 0)

    def run(self):
        def call(*floats):
            args = list(self.args)
            for i, value in zip(self.floats, floats, strict=True):
                args[i] = value
            outs = as_list(self.mine(*args, **self.kwargs))
            return [y for y in outs if jnp.issubdtype(y.dtype, jnp.floating)], outs

        _, pullback, outs = jax.vjp(call, *(self.args[i] for i in self.floats), has_aux=True)
        return outs, pullback([array(dy) for dy in self.dys]) if self.grads else []

    def check(self, outs, grads):
        expected = self.want
        if len(outs) == 2 and self.says.startswith(UNSPECIFIED_TIE_INDEX):
            outs, expected = ([y, self.named(at)] for y, at in (outs, expected))
        for got, want in itertools.zip_longest([*outs, *grads], [*expected, *self.grads]):
            assert got.shape == want.shape, self.says
            np.testing.assert_allclose(
                np.asarray(got, np.float64),
                np.asarray(want, np.float64),
                self.eps,
                self.eps,
                err_msg=self.says,
            )

    def named(self, at):
        """Return the elements of the input at the indices `at` along `dim`."""
        dim = self.kwargs.get("dim", self.args[1] if self.args[1:] else 0)
        x, at = np.asarray(self.args[0], np.float64), np.asarray(at)
        if x.ndim == 0:
            return x
        kept = self.kwargs.get("keepdim", self.args[2] if self.args[2:] else False)
        wide = at if kept else np.expand_dims(at, dim)
        found = np.take_along_axis(x, wide, dim)
        return found if kept else found.squeeze(dim)


def compare(samples):
    assert samples
    print(f"{len(samples)} samples")
    for first in range(0, len(samples), SAMPLES_PER_PROGRAM):
        some = samples[first : first + SAMPLES_PER_PROGRAM]
        run = jax.jit(
            lambda some=some: [each.run() for each in some], compiler_options=FAST_COMPILE
        )
        for each, found in zip(some, run(), strict=True):
            each.check(*found)


def our_function(op):
    return getattr(ours, op.name.removeprefix("nn.functional."))


def parametrize_by_dtype(infos):
    drawn = [(info, dtype) for info in infos for dtype in sorted(info.dtypes, key=str)]
    return pytest.mark.parametrize(("info", "dtype"), drawn, ids=str)


def with_random_samples(name, x, kwargs):
    """Add the random samples of fractional pools, so that both libraries use the same windows."""
    if "fractional" not in name:
        return kwargs
    rank = int(name[-2])
    lanes = x.shape[:2] if x.ndim == rank + 2 else (1, x.shape[0])
    return kwargs | {"_random_samples": torch.rand(*lanes, rank, dtype=x.dtype)}


@parametrize_by_dtype(OPS)
def test_operator(info, dtype):
    torch.manual_seed(0)
    samples = []
    for each in info.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point):
        kwargs = with_random_samples(info.name, each.input, each.kwargs)
        args = (each.input, *each.args)
        samples.append(Sample(info.op, our_function(info), args, kwargs, info.full_name))
    compare(samples)


@parametrize_by_dtype(MODULES)
def test_module(info, dtype):
    torch.manual_seed(0)
    name, samples = info.module_cls.__name__, []
    options = {"device": "cpu", "dtype": dtype, "requires_grad": True, "training": True}
    for each in info.module_inputs_func(info, **options):
        made, given = each.constructor_input, each.forward_input
        kwargs = made.kwargs
        if "Fractional" in name:
            kwargs = with_random_samples(name.lower(), given.args[0], kwargs)
        theirs = info.module_cls(*made.args, **kwargs)
        mine = getattr(ours, name)(
            *map(array, made.args), **{k: array(v) for k, v in kwargs.items()}
        )
        samples.append(
            Sample(theirs, mine, given.args, given.kwargs, f"{name} {made.args} {kwargs}")
        )
    compare(samples)


@pytest.mark.parametrize("info", [op for op in OPS if op.error_inputs_func], ids=str)
def test_errors(info):
    for each in info.error_inputs("cpu"):
        sample = each.sample_input
        with pytest.raises(each.error_type):
            info.op(sample.input, *sample.args, **sample.kwargs)
        with pytest.raises((TypeError, ValueError)):
            our_function(info)(
                array(sample.input),
                *map(array, sample.args),
                **{name: array(value) for name, value in sample.kwargs.items()},
            )
