"""Runs a spec on many arrays and holds value, cotangent and tangent to the reference."""

from __future__ import annotations

import dataclasses
import functools
import math
import unittest.mock
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend import core

import jaxpool
from jaxpool._ops.linear_map import _compute, _linear, compute_p, linear_p
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import TUNING
from jaxpool.testing import draw_values, pools
from jaxpool.testing._check import _bound, assert_close
from tests.search import beyond, chance, reference
from tests.search.specs import (
    ADAPTIVE,
    ARRAYS,
    ELEMENTWISE,
    POOLS,
    RUNNING,
    SOFT,
    WHOLE,
    WORK,
    Spec,
)
from tests.support.compilation import HASTY

KERNELS = {compute_p: _compute, linear_p: _linear}
WIDE = ("float32", "bfloat16")  # of the exponents of float32
VALUES = ("ties", "normal", "special", "lowest", "subnormal", "extremes")


def on_platform(f: Callable[..., Any], platform: Platform) -> Callable[..., Any]:
    """f with every op computed in the form of a platform, whatever the one it runs on.

    That is a CPU, where XLA may lose a NaN in a maximum over whole axes.
    """
    here = {platform: dataclasses.replace(TUNING[platform], loses_nan=True)}

    def run(*args: Any) -> Any:
        program, out = jax.make_jaxpr(f, return_shape=True)(*args)
        with unittest.mock.patch.dict(TUNING, here):
            found = _evaluate(program.jaxpr, program.consts, jax.tree.leaves(args), platform)
        return jax.tree.unflatten(jax.tree.structure(out), found)

    return run


def _evaluate(program: Any, consts: Any, args: Any, platform: Platform) -> list[Any]:
    known = dict(zip((*program.constvars, *program.invars), (*consts, *args), strict=True))

    def value(of: Any) -> Any:
        return of.val if isinstance(of, core.Literal) else known[of]

    for eqn in program.eqns:
        given = [value(var) for var in eqn.invars]
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive in KERNELS:
            kernel = KERNELS[eqn.primitive]
            found = jax.tree.leaves(kernel(*given, on=platform, **eqn.params))
        elif inner is not None and eqn.primitive is not lax.scan_p:  # jit, checkpoint, custom rules
            opened = getattr(inner, "jaxpr", inner)
            found = _evaluate(opened, getattr(inner, "consts", ()), given, platform)
        else:
            found = eqn.primitive.bind(*given, **eqn.params)
            found = found if eqn.primitive.multiple_results else [found]
        known.update(zip(eqn.outvars, found, strict=True))
    return [value(var) for var in program.outvars]


def program(spec: Spec) -> Callable[..., Any]:
    """Value, and of floats the value beside the derivative, the cotangents and the tangent."""
    function, kwargs = getattr(jaxpool, spec.function), spec.kwargs
    first = ("p",) if spec.function == "lp_pool" else ()  # stands before the window
    one = spec.function in (*SOFT, "global_avg_pool", "maxout", *beyond.ONE_MODE)

    def pool(autodiff: str, *xs: Array) -> Array:
        named = kwargs | ({} if one else {"autodiff": autodiff})
        if spec.function in beyond.BEYOND:
            return beyond.call(spec, named, *xs)
        positional = [named.pop(name) for name in first]
        return function(*xs, *positional, **named)

    def run(xs: Any, x_dots: Any, dy: Any) -> Any:
        value = pool("vjp", *xs)
        if not jnp.issubdtype(spec.dtype, jnp.floating):
            return value, [], value
        y, back = jax.vjp(functools.partial(pool, "vjp"), *xs)
        _, tangent = jax.jvp(functools.partial(pool, "jvp"), xs, x_dots)
        return value, [y, *back(dy)], tangent

    return run


@functools.lru_cache(maxsize=8)
def compiled(spec: Spec) -> Callable[..., Any]:
    """One program for all arrays, one after another: as for one array, without `vmap`."""
    run = program(spec)
    if spec.platform != "cpu":
        run = on_platform(run, spec.platform)
    options = HASTY if spec.hasty else {}
    return jax.jit(lambda *args: lax.map(lambda each: run(*each), args), compiler_options=options)


def table(spec: Spec) -> reference.Table:
    """Which elements each output sees."""
    shape, kwargs = spec.shapes[0], spec.kwargs
    if spec.function in beyond.BEYOND:
        return beyond.table(spec)
    if spec.function in POOLS or spec.function in SOFT:
        return reference.windows(shape, spec.window)
    if spec.function in ELEMENTWISE:
        return reference.together(list(spec.shapes))
    if spec.function in ADAPTIVE:
        return reference.adaptive(shape, kwargs["axes"], kwargs["output_shape"])
    if spec.function in RUNNING:
        return reference.running(shape, kwargs["axis"], kwargs["reverse"])
    if spec.function in WHOLE:
        axes = kwargs.get("axis", kwargs.get("axes"))
        whole = reference.grid(shape, axes, [np.arange(shape[axis])[None] for axis in axes])
        left = tuple(n for axis, n in enumerate(whole.shape) if axis not in axes)
        return reference.Table(whole.members, left)
    groups, axis = kwargs["groups"], kwargs["axis"]
    at = np.arange(shape[axis]).reshape(groups, -1)
    return reference.grid(shape, (axis,), [at])


def wanted(spec: Spec, at: reference.Table, x: np.ndarray) -> reference.Shares:
    """What the reference says of arrays (cases, elements)."""
    name, kwargs = spec.function, spec.kwargs
    if name in beyond.BEYOND:
        return beyond.wanted(spec, at, x)
    if name in SOFT:
        return reference.soft(at, x, name, kwargs.get("p", kwargs.get("temperature")))
    if name == "sum_pool":
        return reference.add(at, x)
    if name == "avg_pool":
        how = "counted" if kwargs["count_include_pad"] else "real"
        divisor = kwargs["divisor"] or reference.counts(at, spec.window, how)
        return reference.add(at, x, divisor)
    if name in ("adaptive_avg_pool", "global_avg_pool"):
        return reference.add(at, x, at.real.sum(-1))
    kind = "min" if name in ("min_pool", "min", "cummin", "minimum", "fmin") else "max"
    nan = "loses" if name in ("fmax", "fmin") else "wins"
    return reference.choose(at, x, kind, kwargs["ties"], nan)


def arrays(spec: Spec, members: int) -> int:
    """How many arrays: fewer of large ones, within what the reference can hold."""
    return max(2, min(ARRAYS, WORK // members))


def draw(rng: np.random.Generator, shape: Any, spec: Spec, values: str) -> np.ndarray:
    """Numbers to pool; those of soft pools and sums stay finite, those of GeM are mostly positive."""
    dtype = np.dtype(spec.dtype)
    floating = jnp.issubdtype(dtype, jnp.floating)
    if values == "subnormal" and floating and not spec.adds:
        tiny = float(jnp.finfo(dtype).smallest_subnormal)
        return (rng.integers(-3, 4, shape) * tiny).astype(dtype)
    if values == "extremes" and floating and not spec.adds:
        info = jnp.finfo(dtype)
        return rng.choice(np.array([info.min, info.max, info.tiny, 0, -info.tiny], dtype), shape)
    if spec.function in SOFT:
        values = "normal"
    elif values not in ("ties", "normal", "special", "lowest"):
        values = "special"
    drawn = draw_values(rng, shape, dtype, values)
    if pools()[spec.function].takes("eps"):
        drawn = np.abs(drawn) + np.asarray(0.25, dtype)
    if values == "special" and floating and dtype.itemsize in (2, 4) and not spec.adds:
        return _with_payloads(rng, drawn)
    return drawn


def _with_payloads(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """x with other NaNs in place of its own, of either sign."""
    whole = np.dtype(f"uint{8 * x.dtype.itemsize}")
    quiet = np.asarray(np.nan, x.dtype).view(whole)
    sign = np.asarray(-0.0, x.dtype).view(whole)
    noise = rng.integers(0, 32, x.shape).astype(whole) | rng.choice([whole.type(0), sign], x.shape)
    return np.where(np.isnan(x), (quiet | noise).view(x.dtype), x)


def check(spec: Spec, seed: int) -> int:
    """Holds a spec to the reference on arrays drawn from a seed; how many there were."""
    rng = np.random.default_rng(seed)
    at = table(spec)
    count = arrays(spec, at.members.size)
    known = beyond.patterns(spec) or VALUES
    patterns = [known[i % len(known)] for i in range(count)]
    dtype = np.dtype(spec.dtype)
    xs = [np.stack([draw(rng, s, spec, v) for v in patterns]) for s in spec.shapes]
    if spec.function in beyond.MORPHOLOGY:  # an infinite kernel over infinite padding is NaN
        xs[1] = draw_values(rng, xs[1].shape, dtype, "ties")
    if spec.function in chance.NAMES:  # zeros in place of what rounding decides
        close = chance.unsure(spec, at, xs[0].reshape(count, -1).astype(np.float64))
        xs[0][close] = 0
    floating = jnp.issubdtype(dtype, jnp.floating)
    # XLA for CPU may take subnormals for zeros: which of those wins is not determined.
    flushed = np.array([v == "subnormal" and spec.dtype in WIDE for v in patterns])
    small = draw_values(rng, (count, *at.shape), dtype, "ties")
    x_dots = [draw_values(rng, x.shape, dtype, "ties") for x in xs]
    got = jax.device_get(compiled(spec)(tuple(xs), tuple(x_dots), small))
    with np.errstate(all="ignore"):
        flat = np.concatenate([x.reshape(count, -1).astype(np.float64) for x in xs], 1)
        want = wanted(spec, at, flat)
        _compare(spec, at, want, got, floating, small, x_dots, flushed)
    return count


def _compare(
    spec: Spec, at: Any, want: Any, got: Any, floating: Any, dy: Any, x_dots: Any, flushed: Any
) -> None:
    value, derived, tangent = got
    dtype, count = np.dtype(spec.dtype), len(value)
    terms = at.members.shape[-1]
    soft = spec.function in SOFT or chance.is_mean(spec.function, spec.kwargs)
    loose = 256 * float(jnp.finfo(np.float32).eps) if soft else 0.0
    out = (count, *at.shape)

    def rows(n: int) -> np.ndarray:
        return flushed.reshape(-1, *[1] * (n - 1))

    y = want.y.reshape(out).astype(value.dtype if spec.adds else dtype)
    bound: Any = 0.0
    if spec.adds:
        bound = _bound(y, want.size.reshape(out), terms, loose)
    elif flushed.any():
        bound = np.where(rows(y.ndim), float(jnp.finfo(dtype).smallest_normal), 0.0)
    assert_close(value, y, bound, f"value of {spec.text()}")
    if not floating:
        return
    first, *dxs = derived
    assert_close(first, y, bound, f"primal of {spec.text()}")
    elements = sum(math.prod(shape) for shape in spec.shapes)
    sent = dy.reshape(count, -1).astype(np.float64)
    absolute = want.absolute
    exact = want.cotangents(sent, elements)
    sizes = absolute.cotangents(np.abs(sent), elements)
    offset = 0
    for dx, shape in zip(dxs, spec.shapes, strict=True):
        part = slice(offset, offset + math.prod(shape))
        offset = part.stop
        own, size = (each[:, part].reshape(count, *shape) for each in (exact, sizes))
        near = _bound(own.astype(dtype), size, terms, loose)
        near = np.where(rows(own.ndim), np.inf, near)
        assert_close(dx, own.astype(dtype), near, f"cotangent of {spec.text()}")
    moved = np.concatenate([t.reshape(count, -1).astype(np.float64) for t in x_dots], 1)
    along = want.tangent(moved).reshape(out).astype(dtype)
    size = absolute.tangent(np.abs(moved)).reshape(out)
    near = np.where(rows(along.ndim), np.inf, _bound(along, size, terms, loose))
    assert_close(tangent, along, near, f"tangent of {spec.text()}")
