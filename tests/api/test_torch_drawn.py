"""Values, indices and gradients against PyTorch in float64, with random geometries and elements.

A case is one geometry with one array. `MANY` counts the geometries of each op, and each geometry has four arrays.
These are more than 2,000 cases. The quick run draws a few. `test_torch_differences.py` lists differences.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api.random import fractional_op
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import make_window
from jaxpool._ops.apply import apply_with_extra_args
from tests.support.compat_cases import ints
from tests.support.compilation import HASTY

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
F = torch.nn.functional

pytestmark = pytest.mark.usefixtures("x64")

nan, inf = np.nan, np.inf
VALUES = ("normal", "ties", "lowest", "ties")
# With NaN: for ops that have PyTorch's rule for NaN as one of the tie rules.
WITH_NAN = (*VALUES[:3], "special")


def drawn(rng, shape, kind):
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "special":
        return rng.choice([-inf, -1.0, 0.0, 0.0, 1.0, inf, nan], shape)
    small = rng.integers(-1, 3, shape).astype(np.float64)
    return np.where(rng.random(shape) < 0.7, -inf, small) if kind == "lowest" else small


@dataclasses.dataclass
class Case:
    """One geometry. `ours` and `theirs` take the arrays and `given`, and return y and indices or None.

    The arrays have `shapes` and a gradient, the arrays in `given` have no gradient.
    """

    says: str
    ours: Callable
    theirs: Callable
    shapes: tuple
    given: tuple = ()
    values: tuple = VALUES
    value_rtol: float = 0.0

    def run(self, xs, dy):
        f = functools.partial(self.compute, given=self.given)
        y, pullback, indices = jax.vjp(f, *xs, has_aux=True)
        return y, indices, pullback(dy)

    def compute(self, *xs, given):
        return self.ours(*xs, *given)

    def want(self, rng, xs):
        tensors = [torch.tensor(x, requires_grad=True) for x in xs]
        y, indices = self.theirs(*tensors, *map(torch.tensor, self.given))
        dy = rng.standard_normal(tuple(y.shape))
        y.backward(torch.tensor(dy))
        grads = [tensor.grad.numpy() for tensor in tensors]
        return dy, y.detach().numpy(), None if indices is None else indices.numpy(), grads

    def check(self, kind, got, want):
        (y, indices, grads), (_, want_y, want_indices, want_grads) = got, want
        says = f"of {self.says} of {self.shapes} on {kind}"
        assert np.shape(y) == want_y.shape, says
        np.testing.assert_allclose(y, want_y, rtol=self.value_rtol, err_msg=f"value {says}")
        if want_indices is not None:
            np.testing.assert_array_equal(indices, want_indices, f"indices {says}")
        for dx, want_dx in zip(grads, want_grads, strict=True):
            np.testing.assert_allclose(
                dx, want_dx, rtol=1e-12, atol=1e-13, err_msg=f"gradient {says}"
            )


def compare(draw, count):
    """Assert that ours and PyTorch's agree on `count` geometries, with eight geometries per program."""
    rng = np.random.default_rng(count)
    cases = [draw(rng) for _ in range(count)]
    for first in range(0, count, 8):
        some = cases[first : first + 8]
        run = jax.jit(
            lambda each, some=some: [c.run(*args) for c, args in zip(some, each, strict=True)],
            compiler_options=HASTY,
        )
        for number in range(len(VALUES)):
            kinds = [case.values[number] for case in some]
            arrays = [
                [drawn(rng, shape, kind) for shape in case.shapes]
                for case, kind in zip(some, kinds, strict=True)
            ]
            wants = [case.want(rng, xs) for case, xs in zip(some, arrays, strict=True)]
            each = [(tuple(xs), want[0]) for xs, want in zip(arrays, wants, strict=True)]
            for case, kind, got, want in zip(some, kinds, run(each), wants, strict=True):
                case.check(kind, got, want)


# Geometries

SIZES = {1: (3, 12), 2: (3, 8), 3: (2, 5)}


def drawn_rank(rng, least=1):
    return int(rng.choice([1, 2, 3][least - 1 :]))


def drawn_shape(rng, rank):
    """A shape with one or two batch axes, then the pooled axes."""
    return (*ints(rng, int(rng.integers(1, 3)), 1, 3), *ints(rng, rank, *SIZES[rank]))


def tail(rank):
    return tuple(range(-rank, 0))


def drawn_windows(rng, dilated=False, padded=True):
    """A shape and pool arguments that both libraries accept, with a real element in every window."""
    while True:
        rank = drawn_rank(rng)
        shape = drawn_shape(rng, rank)
        # PyTorch's avg_pool3d accepts no window larger than the unpadded input.
        window = tuple(int(rng.integers(1, min(size, 4) + 1)) for size in shape[-rank:])
        arguments = {
            "window_shape": window,
            "strides": ints(rng, rank, 1, 3),
            "padding": tuple(int(rng.integers(0, w // 2 + 1)) if padded else 0 for w in window),
            "window_dilation": ints(rng, rank, 1, 2 if dilated else 1),
            "ceil_mode": bool(rng.integers(2)),
            "axes": tail(rank),
        }
        try:
            make_window(shape, **arguments)
        except ArgumentError:
            continue
        return rank, shape, arguments


def without(pool):
    """`pool` as a function that returns None for indices."""
    return lambda *args: (pool(*args), None)


def max_pool(rng):
    rank, shape, arguments = drawn_windows(rng, dilated=True)
    positions = bool(rng.integers(4))
    theirs = functools.partial(
        getattr(F, f"max_pool{rank}d"),
        kernel_size=arguments["window_shape"],
        stride=arguments["strides"],
        padding=arguments["padding"],
        dilation=arguments["window_dilation"],
        ceil_mode=arguments["ceil_mode"],
        return_indices=positions,
    )
    if positions:
        ours = functools.partial(jaxpool.max_pool_with_argmax, **arguments)
        return Case(f"max_pool_with_argmax {arguments}", ours, theirs, (shape,))
    ours = functools.partial(jaxpool.max_pool, **arguments)
    return Case(f"max_pool {arguments}", without(ours), without(theirs), (shape,))


def avg_pool(rng):
    rank, shape, arguments = drawn_windows(rng)
    del arguments["window_dilation"]
    counted = bool(rng.integers(2))
    theirs = functools.partial(
        getattr(F, f"avg_pool{rank}d"),
        kernel_size=arguments["window_shape"],
        stride=arguments["strides"],
        padding=arguments["padding"],
        ceil_mode=arguments["ceil_mode"],
        count_include_pad=counted,
    )
    divisor = int(rng.choice([-3, 1, 5])) if rank > 1 and rng.random() < 0.3 else None
    if divisor is not None:
        theirs = functools.partial(theirs, divisor_override=divisor)
    arguments |= {"count_include_pad": counted, "divisor": divisor}
    ours = functools.partial(jaxpool.avg_pool, **arguments)
    says = f"avg_pool {arguments}"
    return Case(says, without(ours), without(theirs), (shape,), value_rtol=1e-12)


def lp_pool(rng):
    """Applied to |x|, because PyTorch's powers are signed. Zeros only for p > 1, where |x|^p has a derivative."""
    rank, shape, arguments = drawn_windows(rng, padded=False)
    arguments["ceil_mode"] = False
    p = [1, 2, 3, 0.5, 3.7, inf][rng.integers(6)]
    try:
        make_window(shape, **arguments)
    except ArgumentError:
        return lp_pool(rng)
    kernel, strides = arguments["window_shape"], arguments["strides"]
    pool = getattr(F, f"lp_pool{rank}d")
    if rank == 1:
        kernel, strides = kernel[0], strides[0]
    ours = functools.partial(jaxpool.lp_pool, p=p, **arguments)
    values = ("normal", "ties", "ties", "normal") if p > 1 else ("normal",) * 4
    return Case(
        f"lp_pool {p} {arguments}",
        without(ours),
        without(lambda x: pool(x.abs(), p, kernel, strides)),
        (shape,),
        values=values,
        value_rtol=1e-12,
    )


def max_unpool(rng):
    rank = drawn_rank(rng)
    shape = drawn_shape(rng, rank)
    lanes, pooled = shape[:-rank], shape[-rank:]
    # PyTorch accepts no other sizes.
    sizes = tuple(int(2 * size + rng.integers(-1, 2)) for size in pooled)
    rows = [
        rng.permutation(int(np.prod(sizes)))[: int(np.prod(pooled))] for _ in np.ndindex(*lanes)
    ]
    ours = functools.partial(jaxpool.max_unpool, spatial_shape=sizes, axes=tail(rank))
    pool = getattr(F, f"max_unpool{rank}d")
    return Case(
        f"max_unpool to {sizes}",
        without(ours),
        without(lambda y, indices: pool(y, indices, 2, output_size=sizes)),
        (shape,),
        given=(np.stack(rows).reshape(shape),),
    )


def drawn_targets(rng):
    rank = drawn_rank(rng)
    shape = drawn_shape(rng, rank)
    outputs = ints(rng, rank, 1, 9 - 2 * rank)
    return rank, shape, outputs, outputs[0] if rank == 1 else outputs


def adaptive_max_pool(rng):
    rank, shape, outputs, size = drawn_targets(rng)
    theirs = getattr(F, f"adaptive_max_pool{rank}d")
    ours = functools.partial(
        jaxpool.adaptive_max_pool_with_argmax, output_shape=outputs, axes=tail(rank)
    )
    says = f"adaptive_max_pool_with_argmax to {outputs}"
    return Case(says, ours, lambda x: theirs(x, size, return_indices=True), (shape,))


def adaptive_avg_pool(rng):
    rank, shape, outputs, size = drawn_targets(rng)
    theirs = getattr(F, f"adaptive_avg_pool{rank}d")
    ours = functools.partial(jaxpool.adaptive_avg_pool, output_shape=outputs, axes=tail(rank))
    says, both = (
        f"adaptive_avg_pool to {outputs}",
        (without(ours), without(lambda x: theirs(x, size))),
    )
    return Case(says, *both, (shape,), value_rtol=1e-12)


def fractional_max_pool(rng):
    """PyTorch's random numbers start with the last axis in two dimensions."""
    rank = drawn_rank(rng, least=2)
    shape = (*ints(rng, 2, 1, 2), *ints(rng, rank, *SIZES[rank]))
    window = tuple(int(rng.integers(1, min(size, 3))) for size in shape[-rank:])
    # fractional_max_pool3d refuses the maximum number of windows.
    pairs, fit = zip(shape[-rank:], window, strict=True), 1 if rank == 2 else 0
    outputs = tuple(int(rng.integers(1, size - width + fit + 1)) for size, width in pairs)
    op = fractional_op(shape, window, outputs, tuple(range(2, 2 + rank)))
    pool = getattr(F, f"fractional_max_pool{rank}d")

    def ours(x, samples):
        by_axis = jnp.moveaxis(samples[..., ::-1] if rank == 2 else samples, -1, 0)
        y, residual = apply_with_extra_args(op, x, *by_axis.reshape(rank, *shape[:2], *[1] * rank))
        return y, op.position(residual)

    def theirs(x, samples):
        return pool(x, window, outputs, return_indices=True, _random_samples=samples)

    says, samples = f"fractional_max_pool {window} to {outputs}", rng.random((*shape[:2], rank))
    return Case(says, ours, theirs, (shape,), given=(samples,))


def two_arrays(rng):
    name = ["maximum", "minimum", "fmax", "fmin"][rng.integers(4)]
    full = ints(rng, int(rng.integers(1, 4)), 1, 5)
    shapes = [
        tuple(1 if rng.random() < 0.3 else size for size in full)[int(rng.integers(0, 2)) :]
        for _ in range(2)
    ]
    ours = getattr(jaxpool, name)
    if name in ("fmax", "fmin"):
        ours = functools.partial(ours, ties="first")
    values = WITH_NAN if name in ("fmax", "fmin") else VALUES
    return Case(name, without(ours), without(getattr(torch, name)), tuple(shapes), values=values)


def reduction(rng):
    """Over all axes as in torch.max(x), or over some axes as in torch.amax."""
    shape = ints(rng, int(rng.integers(1, 4)), 1, 6)
    some = rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)]
    axes = None if rng.random() < 0.3 else tuple(int(axis) for axis in some)
    kind, keepdims = ["max", "min"][rng.integers(2)], bool(rng.integers(2))
    if axes is None:
        ours = functools.partial(getattr(jaxpool, kind))
        return Case(
            f"{kind} of all",
            without(ours),
            without(getattr(torch, kind)),
            (shape,),
            values=WITH_NAN,
        )
    ours = functools.partial(getattr(jaxpool, kind), axis=axes, keepdims=keepdims)
    theirs = functools.partial(getattr(torch, f"a{kind}"), dim=axes, keepdim=keepdims)
    return Case(f"a{kind} over {axes}", without(ours), without(theirs), (shape,))


def with_positions(f, axis):
    """`f` together with the index of each output along `axis`: the tangent of `f` along the element indices."""

    def both(x):
        positions = jnp.broadcast_to(jnp.arange(x.shape[axis]), jnp.moveaxis(x, axis, -1).shape)
        return f(x), jax.jvp(f, (x,), (jnp.moveaxis(positions, -1, axis) * 1.0,))[1]

    return both


def along_an_axis(rng, names, ties):
    name, shape = names[rng.integers(2)], ints(rng, int(rng.integers(1, 4)), 1, 7)
    axis = int(rng.integers(-len(shape), len(shape)))
    ours = functools.partial(getattr(jaxpool, name), axis=axis, ties=ties, autodiff="jvp")
    theirs = functools.partial(getattr(torch, name), dim=axis)
    says = f"{name} along {axis}"
    return Case(says, with_positions(ours, axis), theirs, (shape,), values=WITH_NAN)


reduction_along_an_axis = functools.partial(along_an_axis, names=("max", "min"), ties="first")
running_extreme = functools.partial(along_an_axis, names=("cummax", "cummin"), ties="last")

# Number of geometries of each op with `-m slow`, each with four arrays.
MANY = {
    max_pool: 160,
    avg_pool: 80,
    lp_pool: 40,
    max_unpool: 40,
    adaptive_max_pool: 48,
    adaptive_avg_pool: 40,
    fractional_max_pool: 40,
    two_arrays: 64,
    reduction: 48,
    reduction_along_an_axis: 40,
    running_extreme: 48,
}


def label(draw):
    return (
        draw.func.__name__ + " " + draw.keywords["names"][0]
        if hasattr(draw, "func")
        else draw.__name__
    )


def test_more_than_two_thousand_cases_are_drawn():
    assert sum(MANY.values()) * len(VALUES) >= 2_500


@pytest.mark.parametrize("draw", MANY, ids=label)
def test_a_few_drawn_cases(draw):
    compare(draw, 8)


@pytest.mark.slow
@pytest.mark.parametrize("draw", MANY, ids=label)
def test_many_drawn_cases(draw):
    compare(draw, MANY[draw])
