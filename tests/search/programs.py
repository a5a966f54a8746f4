"""Random programs, with sizes on both sides of the plans' thresholds, and their comparison with the oracle."""

import contextlib
import dataclasses
import functools
import itertools
import unittest.mock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from jax import lax

from jaxpool._ops import primitives
from jaxpool._ops.primitives import compute_p, linear_p
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, TUNING
from jaxpool.testing import Call, draw_values, pools
from jaxpool.testing._array_arguments import KEY_IMPL, with_array_arguments
from jaxpool.testing._check import compare_with_answer, rounding_error_bound
from jaxpool.testing._strategies import arguments_by_name, draw_outline
from tests.support.compilation import FAST_COMPILE

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "bool")
MAX_MEMBERS = 1 << 19  # members of all arrays of a program, which take the oracle a second
ARRAYS = 128
WIDE = ("float32", "bfloat16")  # dtypes with the exponent range of float32
PROGRAMS_PER_CACHE_CLEAR = 40
program_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of arrays of `shapes` with the other arguments of an outline, by the plan of a platform."""

    function: str
    shapes: tuple[tuple[int, ...], ...]
    given: dict[str, Any]  # with `seed` for arrays
    dtype: str = "float32"
    platform: Platform = "cpu"
    hasty: bool = True
    arrays: int = ARRAYS

    @property
    def pool(self):
        """The record of the function."""
        return pools()[self.function]

    @property
    def adds(self):
        """True if values are rounded sums."""
        return self.pool.rounds({"key": self.given.get("seed"), **self.given})


# Integer thresholds of the plans
THRESHOLDS = {
    number
    for limits in (LIMITS, *TUNING.values())
    for number in dataclasses.asdict(limits).values()
    if type(number) is int and 1 < number <= 128
}


def sizes(most):
    """Strategy of sizes up to `most`: small sizes, or sizes around a threshold."""
    near = sorted({n + step for n in THRESHOLDS for step in (-1, 0, 1) if n + step <= most})
    small = st.integers(1, min(most, 9))
    return small | st.sampled_from(near) if near else small


@st.composite
def programs(draw, platform, functions=()):
    pool = pools()[draw(st.sampled_from(functions or tuple(pools())))]
    shapes, arguments, members = draw_outline(draw, pool, sizes)
    assume(0 < members * 2 <= MAX_MEMBERS)
    program = Program(pool.name, shapes, arguments, platform=platform)
    exact = program.adds or pool.takes("kernel")
    dtypes = FLOATS[:3] if exact else FLOATS + INTEGERS
    if pool.keeps_integers:
        dtypes += INTEGERS[:-1]
    return dataclasses.replace(
        program,
        dtype=draw(st.sampled_from(dtypes)),
        hasty=platform != "cpu" or draw(st.integers(0, 7)) > 0,
        arrays=max(2, min(ARRAYS, MAX_MEMBERS // (members * (4 if exact else 1)))),
    )


# Compilation


@contextlib.contextmanager
def on_platform(platform):
    """Lower every op by the plan of `platform` on CPU, where the search runs.

    XLA for CPU may lose a NaN in a maximum over whole axes, hence `loses_nan`.
    """
    kernels = {compute_p: primitives._compute, linear_p: primitives._linear}
    tuning = dataclasses.replace(TUNING[platform], loses_nan=True)
    with unittest.mock.patch.dict(TUNING, {platform: tuning}):
        with unittest.mock.patch.dict(primitives.PLATFORM_OF_JAX_NAME, {"cpu": platform}):
            for primitive, kernel in kernels.items():
                primitives._register_rules(primitive, kernel)
        try:
            yield
        finally:
            for primitive, kernel in kernels.items():
                primitives._register_rules(primitive, kernel)


def behind_barrier(value):
    """Put an array behind a barrier, so that XLA does not fold it as a constant."""
    if isinstance(value, np.ndarray):
        return lax.optimization_barrier(jnp.asarray(value))
    if isinstance(value, jax.Array):  # a key
        words = lax.optimization_barrier(jax.random.key_data(value))
        return jax.random.wrap_key_data(words, impl=KEY_IMPL)
    return value


def compiled(program, others):
    """Compile a loop over all arrays to value, indices, cotangents and tangent, without `vmap`."""
    pool = program.pool

    def call(autodiff, *xs):
        mode = {"autodiff": autodiff} if pool.takes("autodiff") else {}
        arrays = {name: behind_barrier(value) for name, value in others.items()}
        found = pool.run(arguments_by_name(pool, xs) | arrays | mode)
        return found if isinstance(found, tuple) else (found, None)

    def run(xs, xs_dot, dy):
        y, indices = call("vjp", *xs)
        if pool.marks or not jnp.issubdtype(program.dtype, jnp.floating):
            return y, y, indices, None, None
        primal, pullback = jax.vjp(lambda *xs: call("vjp", *xs)[0], *xs)
        _, y_dot = jax.jvp(lambda *xs: call("jvp", *xs)[0], xs, xs_dot)
        return y, primal, indices, pullback(dy), y_dot

    options = FAST_COMPILE if program.hasty else {}
    return jax.jit(lambda *args: lax.map(lambda each: run(*each), args), compiler_options=options)


# Numbers


def value_kinds(program):
    """The kinds of numbers to draw: those that the record covers, and extreme numbers for selections."""
    covers = program.pool.covers
    if program.pool.takes("kernel"):
        return ("ties", "special")
    if program.pool.takes("padding", "key"):
        has_key = program.given["seed"] is not None
        return ("ties", "normal", "special", "extremes") if has_key else ("ties", "normal")
    if program.given.get("kind") == "max" and program.pool.takes("samples"):
        return ("ties",)  # integers, whose interpolation is exact
    more = "special" in covers and not program.adds
    return (*covers, "subnormal", "extremes") if more else covers


def draw_array(rng, shape, program, kind):
    """Draw numbers of a kind of `value_kinds`; NaNs have several payloads."""
    dtype, pool = np.dtype(program.dtype), program.pool
    floating = jnp.issubdtype(dtype, jnp.floating)
    if kind == "subnormal" and floating:
        tiny = float(jnp.finfo(dtype).smallest_subnormal)
        return (rng.integers(-3, 4, shape) * tiny).astype(dtype)
    if kind == "extremes" and floating:
        info = jnp.finfo(dtype)
        most = 2.0**127 if pool.takes("key") and info.maxexp == 128 else info.max
        return rng.choice(np.array([-most, most, info.tiny, 0, -info.tiny], dtype), shape)
    x = draw_values(rng, shape, dtype, "special" if kind in ("subnormal", "extremes") else kind)
    x = pool.usual["x"](x) if "x" in pool.usual else x
    if kind != "special" or not floating or dtype.itemsize not in (2, 4) or program.adds:
        return x
    bits = np.dtype(f"uint{8 * dtype.itemsize}")
    nan, sign = (np.asarray(value, dtype).view(bits) for value in (np.nan, -0.0))
    payload = rng.integers(0, 32, shape).astype(bits) | rng.choice([bits.type(0), sign], shape)
    return np.where(np.isnan(x), (nan | payload).view(dtype), x)


def check(program, seed):
    """Compare a program with the oracle on random arrays."""
    if next(program_numbers) % PROGRAMS_PER_CACHE_CLEAR == 0:
        jax.clear_caches()
    rng = np.random.default_rng(seed)
    pool, dtype, count = program.pool, np.dtype(program.dtype), program.arrays
    kinds = list(itertools.islice(itertools.cycle(value_kinds(program)), count))
    xs = [np.stack([draw_array(rng, s, program, kind) for kind in kinds]) for s in program.shapes]
    if pool.takes("kernel"):  # an infinite kernel over infinite padding is NaN
        xs[1] = draw_values(rng, xs[1].shape, dtype, "ties")
    others = with_array_arguments(pool, program.shapes[0], program.given)
    calls = [Call(pool, arguments_by_name(pool, x) | others) for x in zip(*xs, strict=True)]
    with np.errstate(all="ignore"):
        answers = [call.answer() for call in calls]
        y = answers[0].y
        dys = draw_values(rng, (count, *y.shape), dtype, "ties")
        xs_dot = [draw_values(rng, x.shape, dtype, "ties") for x in xs]
        # The error bound of rounded weights grows with the largest cotangent. An infinite one would allow any result.
        if not pool.looseness(dtype):
            is_special = rng.random(count) < 0.25
            for each in (dys, *xs_dot):
                each[is_special] = draw_values(rng, each[is_special].shape, dtype, "special")
        with on_platform(program.platform):
            found = jax.device_get(compiled(program, others)(tuple(xs), tuple(xs_dot), dys))
        for i, (call, answer, kind) in enumerate(zip(calls, answers, kinds, strict=True)):
            results = jax.tree.map(lambda array, i=i: array[i], found)
            dots = [dot[i] for dot in xs_dot]
            call = dataclasses.replace(call, dy=dys[i])
            # XLA for CPU may treat subnormals as zeros, so that any of them may be selected.
            flushed = kind == "subnormal" and program.dtype in WIDE
            compare(program, call, answer, results, dots, flushed)


def compare(program, call, answer, results, xs_dot, flushed):
    """Compare the results of one call. With `flushed`, values are compared up to subnormals."""
    if flushed and program.pool.marks:
        return
    y, primal, indices, dxs, y_dot = results
    if flushed:
        indices = dxs = y_dot = None
    error_bound = functools.partial(_error_bound, program, answer.max_terms_per_sum())
    fixed = {"error_bound": error_bound, "what": repr(program), "dxs_dot": xs_dot}
    smallest = float(jnp.finfo(program.dtype).smallest_normal) if flushed else 0.0
    for value in (y, primal):
        compare_with_answer(
            call, answer, (value, indices, dxs, y_dot), value_bound=smallest, **fixed
        )


def _error_bound(program, num_terms, want, magnitudes, *sent):
    """Bound the rounding error. Rounded weights add an error relative to the largest sum and to the arrays `sent`."""
    loose = program.pool.looseness(want.dtype)
    if program.pool.takes("samples"):  # coordinates are rounded to float32
        longest = max(program.shapes[0][-3:-1])
        loose = 8 * (6 + longest) * float(jnp.finfo(np.float32).eps)
    bound = rounding_error_bound(want, magnitudes, num_terms, loose)
    if not loose:
        return bound
    largest = [float(np.abs(x.astype(np.float64)).max(initial=0)) for x in (magnitudes, *sent)]
    return bound + loose * max(largest)
