"""Run a spec on many arrays and compare value, cotangent and tangent with the oracle of `jaxpool.testing`."""

from __future__ import annotations

import dataclasses
import functools
import unittest.mock
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend import core

from jaxpool._ops.op import _compute, _linear, compute_p, linear_p
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import TUNING
from jaxpool.testing import Answer, Call, draw_values
from jaxpool.testing._check import _rounding_error_bound, assert_close
from jaxpool.testing._record import TUPLE_PARAMETERS
from tests.search.beside import behind_barrier, draw_array_arguments
from tests.search.specs import Spec
from tests.support.compilation import FAST_COMPILE

KERNELS = {compute_p: _compute, linear_p: _linear}
WIDE = ("float32", "bfloat16")  # dtypes with the exponent range of float32
EPS = float(jnp.finfo(np.float32).eps)


def on_platform(f: Callable[..., Any], platform: Platform) -> Callable[..., Any]:
    """Return f with every op computed by the plan of `platform`, on whichever platform runs it.

    The search runs on CPU, where XLA may lose a NaN in a maximum over whole axes, hence `loses_nan`.
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
            found = jax.tree.leaves(kernel(*given, platform=platform, **eqn.params))
        elif inner is not None and eqn.primitive is not lax.scan_p:  # jit, checkpoint, custom rules
            opened = getattr(inner, "jaxpr", inner)
            found = _evaluate(opened, getattr(inner, "consts", ()), given, platform)
        else:
            found = eqn.primitive.bind(*given, **eqn.params)
            found = found if eqn.primitive.multiple_results else [found]
        known.update(zip(eqn.outvars, found, strict=True))
    return [value(var) for var in program.outvars]


def call_arguments(spec: Spec, xs: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with the arrays xs."""
    names = spec.pool.operands[: len(xs)]
    several = names[:1] if names and names[0] in TUPLE_PARAMETERS else ()
    arrays = {name: tuple(xs) for name in several} or dict(zip(names, xs, strict=True))
    return arrays | beside


def program(spec: Spec) -> Callable[..., Any]:
    """Return a function to the value and, for floats, the value in a derivative, the cotangents and the tangent."""
    pool, beside = spec.pool, draw_array_arguments(spec)

    def call(autodiff: str, *xs: Array) -> Any:
        mode = {"autodiff": autodiff} if pool.takes("autodiff") else {}
        arrays = {name: behind_barrier(value) for name, value in beside.items()}
        found = pool.run(call_arguments(spec, xs, arrays) | mode)
        return found if isinstance(found, tuple) else (found,)

    def first(autodiff: str, *xs: Array) -> Any:
        return call(autodiff, *xs)[0]

    def run(xs: Any, x_dots: Any, dy: Any) -> Any:
        values = call("vjp", *xs)
        if pool.marks or not jnp.issubdtype(spec.dtype, jnp.floating):
            return values, [], values[0]
        y, back = jax.vjp(functools.partial(first, "vjp"), *xs)
        _, tangent = jax.jvp(functools.partial(first, "jvp"), xs, x_dots)
        return values, [y, *back(dy)], tangent

    return run


@functools.lru_cache(maxsize=8)
def compiled(spec: Spec) -> Callable[..., Any]:
    """Compile one program with a loop over all arrays. Each step is the program of one array, without `vmap`."""
    run = program(spec)
    if spec.platform != "cpu":
        run = on_platform(run, spec.platform)
    options = FAST_COMPILE if spec.hasty else {}
    return jax.jit(lambda *args: lax.map(lambda each: run(*each), args), compiler_options=options)


def value_kinds(spec: Spec) -> tuple[str, ...]:
    """Return the kinds of numbers to draw: those that the record covers, and extreme numbers for selections."""
    covers = spec.pool.covers
    if spec.pool.takes("kernel"):
        return ("ties", "special")
    if spec.pool.takes("padding", "key"):
        drawing = dict(spec.arguments)["draw"] is not None
        return ("ties", "normal", "special", "extremes") if drawing else ("ties", "normal")
    if dict(spec.arguments).get("kind") == "max" and spec.pool.takes("samples"):
        return ("ties",)  # integers, whose interpolation is exact
    more = "special" in covers and not spec.adds
    return (*covers, "subnormal", "extremes") if more else covers


def draw(rng: np.random.Generator, shape: Any, spec: Spec, values: str) -> np.ndarray:
    """Draw numbers of a kind that the record covers."""
    dtype, pool = np.dtype(spec.dtype), spec.pool
    floating = jnp.issubdtype(dtype, jnp.floating)
    if values == "subnormal" and floating:
        tiny = float(jnp.finfo(dtype).smallest_subnormal)
        return (rng.integers(-3, 4, shape) * tiny).astype(dtype)
    if values == "extremes" and floating:
        info = jnp.finfo(dtype)
        most = 2.0**127 if pool.takes("key") and info.maxexp == 128 else info.max
        return rng.choice(np.array([-most, most, info.tiny, 0, -info.tiny], dtype), shape)
    known = values if values in ("ties", "normal", "special", "lowest") else "special"
    x = draw_values(rng, shape, dtype, known)
    if "x" in pool.usual:
        x = pool.usual["x"](x)
    # random pools compare sums, which must be exact
    if floating and pool.takes("padding", "key") and known == "normal":
        x = np.round(x.astype(np.float32) * 8).astype(dtype) / np.asarray(8, dtype)
    if pool.takes("eps"):
        x = x + np.asarray(0.25, dtype)
    if values == "special" and floating and dtype.itemsize in (2, 4) and not spec.adds:
        return _with_payloads(rng, x)
    return x


def _with_payloads(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Replace the NaNs of x by NaNs with other payloads and signs."""
    whole = np.dtype(f"uint{8 * x.dtype.itemsize}")
    quiet = np.asarray(np.nan, x.dtype).view(whole)
    sign = np.asarray(-0.0, x.dtype).view(whole)
    noise = rng.integers(0, 32, x.shape).astype(whole) | rng.choice([whole.type(0), sign], x.shape)
    return np.where(np.isnan(x), (quiet | noise).view(x.dtype), x)


def check(spec: Spec, seed: int) -> int:
    """Compare a spec with the oracle on random arrays, and return their number."""
    rng = np.random.default_rng(seed)
    known, dtype, count = value_kinds(spec), np.dtype(spec.dtype), spec.arrays
    kinds = [known[i % len(known)] for i in range(count)]
    xs = [np.stack([draw(rng, shape, spec, kind) for kind in kinds]) for shape in spec.shapes]
    if spec.pool.takes("kernel"):  # an infinite kernel over infinite padding is NaN
        xs[1] = draw_values(rng, xs[1].shape, dtype, "ties")
    beside = draw_array_arguments(spec)
    calls = [Call(spec.pool, call_arguments(spec, each, beside)) for each in zip(*xs, strict=True)]
    with np.errstate(all="ignore"):
        answers = [call.answer() for call in calls]
        y = answers[0].y
        dys = draw_values(rng, (count, *y.shape), dtype, "ties")
        x_dots = [draw_values(rng, x.shape, dtype, "ties") for x in xs]
        got = jax.device_get(compiled(spec)(tuple(xs), tuple(x_dots), dys))
        for i, (answer, each) in enumerate(zip(answers, zip(*xs, strict=True), strict=True)):
            # XLA for CPU may treat subnormals as zeros, so that any of them may be selected.
            flushed = kinds[i] == "subnormal" and spec.dtype in WIDE
            found = jax.tree.map(lambda array, i=i: array[i], got)
            dots = [dot[i] for dot in x_dots]
            _compare(spec, answer, each, found, dys[i], dots, flushed)
    return count


class Shares:
    """The terms of the oracle's answer as arrays, to evaluate cotangents and tangents."""

    def __init__(self, answer: Answer) -> None:
        self.shape, self.inputs = answer.y.shape, answer.inputs
        self.share = np.array([term.share for term in answer.terms])
        self.to = _flat([term.output for term in answer.terms], self.shape)
        operands = np.array([term.operand for term in answer.terms], int)
        self.own = []
        for operand, (shape, _) in enumerate(self.inputs):
            mine = operands == operand
            places = [term.position for term in answer.terms if term.operand == operand]
            self.own.append((mine, _flat(places, shape), shape))

    @property
    def most(self) -> int:
        """The largest number of terms in a sum, for one value or for the cotangent of one element."""
        counts = [np.bincount(self.to), *(np.bincount(places) for _, places, _ in self.own)]
        return max((int(count.max(initial=1)) for count in counts), default=1)

    def cotangents(self, dy: np.ndarray, absolute: bool = False) -> list[np.ndarray]:
        """Return the cotangents of the operands in float64. `absolute` sums the magnitudes of the terms."""
        sent = self.share * np.ravel(dy).astype(np.float64)[self.to]
        sent = np.abs(sent) if absolute else sent
        return [
            np.bincount(places, sent[mine], int(np.prod(shape))).reshape(shape)
            for mine, places, shape in self.own
        ]

    def tangent(self, dots: Any, absolute: bool = False) -> np.ndarray:
        """Return the tangent of the value. `absolute` sums the magnitudes of the terms."""
        moved = np.zeros(self.share.shape)
        for (mine, places, _), dot in zip(self.own, dots, strict=False):
            moved[mine] = np.ravel(dot).astype(np.float64)[places]
        moved = np.where(self.share == 0, 0, self.share * moved)
        moved = np.abs(moved) if absolute else moved
        return np.bincount(self.to, moved, int(np.prod(self.shape))).reshape(self.shape)


def _flat(places: list[tuple[int, ...]], shape: tuple[int, ...]) -> np.ndarray:
    """Convert positions in an array to flat indices."""
    if not shape or not places:
        return np.zeros(len(places), int)
    return np.ravel_multi_index(tuple(np.array(places, int).T), shape)


def _compare(
    spec: Spec, answer: Answer, xs: Any, got: Any, dy: Any, x_dots: Any, flushed: bool
) -> None:
    (value, *indices), derived, tangent = got
    if flushed and spec.pool.marks:
        return
    shares, bound = Shares(answer), np.zeros(())
    terms = shares.most
    if spec.adds:
        size = answer.size
        size = shares.tangent(xs, absolute=True) if size is None else np.asarray(size)
        bound = _error_bound(spec, answer.y, size, terms)
    elif flushed and derived:
        bound = np.asarray(float(jnp.finfo(spec.dtype).smallest_normal))
    assert_close(value, answer.y, bound, f"value of {spec.text()}")
    if indices and answer.indices is not None and not flushed:
        assert_close(indices[0], answer.indices, 0.0, f"indices of {spec.text()}")
    if not derived:
        return
    first, *dxs = derived
    assert_close(first, answer.y, bound, f"primal of {spec.text()}")
    if flushed:
        return
    wanted, sizes = shares.cotangents(dy), shares.cotangents(dy, absolute=True)
    for dx, exact, size in zip(dxs, wanted, sizes, strict=False):
        want = exact.astype(spec.dtype)
        assert_close(
            dx, want, _error_bound(spec, want, size, terms, dy), f"cotangent of {spec.text()}"
        )
    want, size = (shares.tangent(x_dots, absolute=signs) for signs in (False, True))
    want = want.astype(spec.dtype)
    near = _error_bound(spec, want, size, terms, *x_dots)
    assert_close(tangent, want, near, f"tangent of {spec.text()}")


def _error_bound(
    spec: Spec, want: np.ndarray, size: np.ndarray, terms: int, *sent: Any
) -> np.ndarray:
    """Bound the rounding error. Rounded weights add an error relative to the largest sum and to the cotangents."""
    loose = spec.pool.looseness(want.dtype)
    if spec.pool.takes("samples"):  # coordinates are rounded to float32
        loose = 8 * (6 + max(spec.shapes[0][-3:-1])) * EPS
    if not loose:
        return _rounding_error_bound(want, size, terms, loose)
    most = [float(np.abs(each.astype(np.float64)).max(initial=0.0)) for each in (size, *sent)]
    return _rounding_error_bound(want, size, terms, loose) + loose * max(most)
