"""Statements of pages about jax.lax, jax.numpy and PyTorch hold. Each entry is a text of a page and a check."""

import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool

DOCS = Path(__file__).parents[2] / "docs"
NAN, INF = float("nan"), float("inf")


def lax_pool(x, window=3, kind=lax.max, start=-INF, **kwargs):
    return lax.reduce_window(x, jnp.asarray(start, x.dtype), kind, (window,), **kwargs)


def gradient(function, *xs):
    xs = tuple(map(jnp.float32, map(np.asarray, xs)))
    return [
        dx.tolist() for dx in jax.grad(lambda *xs: function(*xs).sum(), tuple(range(len(xs))))(*xs)
    ]


def raises(error, function, *xs):
    with pytest.raises(error):
        gradient(function, *xs)
    return True


def dilated(kind, start):
    return lambda x: lax_pool(x, 2, kind, start, window_dilation=(2,))


def window_of_lowest(mode):
    x = jnp.full(3, -INF)
    return (
        jax.jvp(lax_pool, (x,), (jnp.ones(3),))[1]
        if mode == "forward"
        else gradient(lax_pool, x)[0]
    )


LAX_CLAIMS = {
    # dilation
    ("howto/dilated-pooling.md", "have no reverse mode under dilation, its sums have"): lambda: (
        raises(NotImplementedError, dilated(lax.max, -INF), [1, 2, 3, 4])
        and raises(NotImplementedError, dilated(lax.min, INF), [1, 2, 3, 4])
        and gradient(dilated(lax.add, 0), [1, 2, 3, 4]) == [[1, 1, 1, 1]]
    ),
    ("conventions.md", "| dilation | yes | maxima and minima without reverse mode |"): lambda: (
        jax.jvp(dilated(lax.max, -INF), (jnp.arange(4.0),), (jnp.ones(4),))[1].tolist() == [1, 1]
    ),
    # arguments
    ("conventions.md", '| stride by default | 1 | 1; to be given with `"SAME"` |'): lambda: (
        lax_pool(jnp.arange(5.0)).shape == (3,)
        and raises(ValueError, lambda x: lax_pool(x, padding="SAME"), [1, 2, 3])
    ),
    # NaN
    ("conventions.md", "lost to a number: the selection starts anew after each NaN"): lambda: (
        gradient(lax_pool, [NAN, 5, 2]) == [[0, 1, 0]]
        and gradient(lax_pool, [5, NAN, 2]) == [[0, 0, 1]]
    ),
    ("howto/port-from-lax.md", "lost: [nan, 5, 2] sends the cotangent to 5"): lambda: (
        gradient(lax_pool, [NAN, 5, 2]) == [[0, 1, 0]]
    ),
    ("howto/port-from-lax.md", "| `jnp.maximum(nan, 1)` | gradients (0, 0) | (1, 0) |"): lambda: (
        gradient(jnp.maximum, NAN, 1) == [0, 0] and gradient(jaxpool.maximum, NAN, 1) == [1, 0]
    ),
    (
        "howto/port-from-lax.md",
        "| `jnp.max` with a NaN | the gradient is NaN | the NaNs share",
    ): lambda: (
        np.isnan(gradient(jnp.max, [NAN, 1])).all()
        and gradient(jaxpool.max, [NAN, 1, NAN]) == [[0.5, 0, 0.5]]
    ),
    # -inf and padding
    (
        "howto/port-from-lax.md",
        "padding is −inf and can be chosen: the cotangent is lost",
    ): lambda: gradient(lambda x: lax_pool(x, padding=((1, 1),)), [-INF] * 3) == [[1, 1, 0]],
    (
        "howto/port-from-lax.md",
        "| a window of −inf alone, reverse mode | to its first element |",
    ): lambda: window_of_lowest("reverse") == [1, 0, 0],
    (
        "howto/port-from-lax.md",
        "| a window of −inf alone, forward mode | the tangent is 0 |",
    ): lambda: window_of_lowest("forward").tolist() == [0],
    (
        "howto/port-from-lax.md",
        "| window of padding alone | −inf, and the cotangent is dropped |",
    ): lambda: (
        lax_pool(jnp.ones(2), 2, window_strides=(2,), padding=((2, 0),)).tolist() == [-INF, 1]
        and gradient(lambda x: lax_pool(x, 2, window_strides=(2,), padding=((2, 0),)), [1, 1])
        == [[1, 0]]
    ),
    # ties
    ("howto/port-from-lax.md", "| ties | the first, in row-major order |"): lambda: (
        gradient(lax_pool, [1, 1, 1]) == [[1, 0, 0]]
    ),
    ("howto/port-from-lax.md", "split by the shape of its scan tree"): lambda: (
        gradient(lambda x: lax.cummax(x)[2], [1, 1, 1]) == [[0.25, 0.25, 0.5]]
    ),
    (
        "conventions.md",
        "| tie in `fmax` | `ties`, half each by default | all to the second |",
    ): lambda: gradient(jnp.fmax, 2, 2) == [0, 1],
    ("conventions.md", "`jnp.median`: half to each of the two"): lambda: (
        gradient(jnp.median, [1, 2, 3, 4]) == [[0, 0.5, 0.5, 0]]
    ),
    # other starting values, functions and dtypes
    (
        "howto/port-from-lax.md",
        "starting value other than the identity, or a function of yours | no reverse",
    ): lambda: (
        raises(ValueError, lambda x: lax_pool(x, 2, start=0), [1, 2])
        and raises(ValueError, lambda x: lax_pool(x, 2, lax.mul, 1), [1, 2])
    ),
    (
        "howto/port-from-lax.md",
        "in that type on a CPU: a window of 512 of 513 ones in bfloat16 is 256",
    ): lambda: lax_pool(jnp.ones(513, jnp.bfloat16), 512, lax.add, 0).tolist() == [256, 256],
    (
        "howto/port-from-lax.md",
        "| float8 types without an infinity | a padded maximum is NaN throughout |",
    ): lambda: jnp.isnan(lax_pool(jnp.ones(3, jnp.float8_e4m3fn), padding=((1, 1),))).all(),
    (
        "conventions.md",
        "| 600 overlapping bfloat16 cotangents | 600, rounded once | 256 | 256 |",
    ): lambda: (
        overlapping(lambda x: lax_pool(x, 600)) == 256
        and overlapping(lambda x: jaxpool.max_pool(x, (600,), axes=(0,))) == 600
    ),
    # our own errors
    ("howto/port-from-lax.md", "raises an error that says to pass `(2, 2)`"): lambda: (
        "pass (2, 2)" in message(lambda: jaxpool.max_pool(jnp.ones((1, 4, 4, 2)), (1, 2, 2, 1)))
    ),
}


def message(call):
    with pytest.raises(ValueError, match="jaxpool") as raised:
        call()
    return str(raised.value)


def overlapping(pool):
    spike = jnp.zeros(1199, jnp.bfloat16).at[599].set(1)
    return float(jax.grad(lambda x: pool(x).astype(jnp.float32).sum())(spike)[599])


TORCH_CLAIMS = {  # texts of the comparison in conventions.md, and gradients of PyTorch
    "| tie in a max pool | `ties`, the first by default | the first | the first": (
        "max_pool1d",
        [1, 1, 0],
        [1, 0, 0],
    ),
    "the last NaN |": ("max_pool1d", [NAN, 5, NAN], [0, 0, 1]),
    "| tie in `maximum` | `ties`, half each by default | half each | half each |": (
        "maximum",
        (1, 1),
        (0.5, 0.5),
    ),
    "| `maximum(nan, 1)` | (1, 0) | (0, 0) | (1, 1) |": ("maximum", (NAN, 1), (1, 1)),
    "all to the second | all to the first |": ("fmax", (2, 2), (1, 0)),
    "| `fmax(nan, nan)` | by `ties`, half each | | (1, 0) |": ("fmax", (NAN, NAN), (1, 0)),
    "`amax` and `max()` split": ("amax", [1, 1], [0.5, 0.5]),
    "`max(dim)` the first |": ("max_dim", [1, 1], [1, 0]),
    "`max(dim)` the first NaN": ("max_dim", [NAN, 1, NAN], [1, 0, 0]),
    "`max()` the NaNs share it |": ("max_all", [NAN, 1, NAN], [0.5, 0, 0.5]),
    "by the shape of its scan tree | the latest |": ("last_cummax", [1, 1, 1], [0, 0, 1]),
}


def torch_gradient(name, x):
    import torch

    functions = {
        "max_pool1d": lambda x: torch.nn.functional.max_pool1d(x[None], 3),
        "amax": lambda x: torch.amax(x, 0),
        "max_dim": lambda x: x.max(0).values,
        "max_all": lambda x: x.max(),
        "last_cummax": lambda x: torch.cummax(x, 0).values[-1],
    }
    function = functions.get(name) or getattr(torch, name)
    parts = x if isinstance(x, tuple) else (x,)
    tensors = [torch.tensor(part, dtype=torch.float32, requires_grad=True) for part in parts]
    function(*tensors).sum().backward()
    gradients = [tensor.grad.tolist() for tensor in tensors]
    return tuple(gradients) if isinstance(x, tuple) else gradients[0]


def torch_collision():
    import torch

    y = torch.tensor([[[5.0, 6.0]]], requires_grad=True)
    torch.nn.functional.max_unpool1d(y, torch.tensor([[[1, 1]]]), 2).sum().backward()
    return y.grad.tolist() == [[[1, 1]]]


def torch_lp_pool():
    import torch

    return bool(torch.nn.functional.lp_pool1d(torch.tensor([[-3.0, 1.0]]), 3.0, 2).isnan().all())


def torch_median():
    import torch

    return torch.median(torch.tensor([1.0, 2.0, 3.0, 4.0])) == 2


def torch_padding():
    import torch

    with pytest.raises(RuntimeError, match="at most half"):
        torch.nn.functional.max_pool1d(torch.ones(1, 2), 2, 2, 2)
    return True


def haiku_stride():
    import haiku as hk

    with pytest.raises(TypeError, match="strides"):
        hk.max_pool(jnp.ones((1, 4, 4, 1)), 2, padding="SAME")
    return True


def equinox_windows():
    import equinox as eqx

    return eqx.nn.AdaptiveMaxPool1d(4)(jnp.arange(10.0)[None])[0].tolist() == [2, 5, 7, 9]


LIBRARY_CLAIMS = {
    (
        "torch",
        "howto/port-from-pytorch.md",
        "PyTorch gives the cotangent 1 to both",
    ): torch_collision,
    ("torch", "howto/port-from-pytorch.md", "returns NaN if the sum is negative"): torch_lp_pool,
    ("torch", "howto/filters.md", "The median of PyTorch takes the lower"): torch_median,
    ("torch", "howto/port-from-pytorch.md", "up to half the window"): torch_padding,
    ("haiku", "howto/port-from-haiku.md", "| `strides` | to be given |"): haiku_stride,
    (
        "equinox",
        "conventions.md",
        "the maxima of ten elements in four windows are 2, 5, 7 and 9",
    ): equinox_windows,
}


def says(page, text):
    return text in " ".join((DOCS / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("page", "text"), LAX_CLAIMS)
def test_claim_about_jax(page, text):
    assert says(page, text)
    assert LAX_CLAIMS[page, text]()


@pytest.mark.parametrize("text", TORCH_CLAIMS)
def test_claim_about_pytorch(text):
    pytest.importorskip("torch")
    assert says("conventions.md", text)
    name, x, expected = TORCH_CLAIMS[text]
    assert torch_gradient(name, x) == expected


@pytest.mark.parametrize(("library", "page", "text"), LIBRARY_CLAIMS)
def test_claim_about_library(library, page, text):
    pytest.importorskip(library)
    assert says(page, text)
    assert LIBRARY_CLAIMS[library, page, text]()


TWO_DEVICES = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, jaxpool
    from jax import lax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    def gradients(pool, **rows):
        x = jax.random.normal(jax.random.key(0), (1, 8, 8, 1))
        gradient = jax.jit(jax.grad(lambda x: pool(x).sum()))
        alone = gradient(x)
        mesh = jax.make_mesh((2,), ("rows",), (rows["axes"],))
        split = gradient(jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, "rows"))))
        return bool(jnp.allclose(jax.device_get(alone), jax.device_get(split)))

    def by_lax(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1,) * 4, "SAME")

    def by_jaxpool(x):
        return jaxpool.max_pool(x, (3, 3), padding="SAME")

    for pool in (by_lax, by_jaxpool):
        print(*(gradients(pool, axes=axes) for axes in (AxisType.Explicit, AxisType.Auto)))
"""


@pytest.mark.slow  # starts jax
@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="the statement is about jax 0.10")
def test_gradient_of_lax_over_sharded_rows_is_wrong():
    assert says(
        "scaling.md", "the gradient of lax's own max pool of overlapping 3x3 windows is wrong"
    )
    command = [sys.executable, "-c", textwrap.dedent(TWO_DEVICES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent, check=True)
    assert done.stdout.splitlines() == ["False False", "True True"]
