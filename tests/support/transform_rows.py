"""The ops of the table of transformations, and beside each a twin in plain jnp that jax differentiates by itself.

A twin lays the windows of a plane side by side, by a constant matrix, and is a formula along the
last axis: right wherever no two elements tie, in every mode and to every order.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxpool
from bench import _tap_oracle
from jaxpool.testing import _oracle, _oracle_adaptive, _oracle_reduce
from tests.support import lax_pools
from tests.support.boxes_and_rows import (
    by_segment,
    greatest_row,
    largest_of_boxes,
    mean_of_boxes,
    mean_row,
    of_boxes,
    of_lines,
)
from tests.support.plane import (
    PLANE,
    SAME,
    SHAPE,
    Windows,
    adaptive,
    greatest,
    least,
    mean,
    spans,
    total,
    whole,
)

MODES = ("vjp", "jvp")


def numbers(shape=SHAPE):
    """Distinct numbers of distinct sizes, a tenth apart, none of them 0."""
    size = int(np.prod(shape))
    return (np.random.default_rng(1).permutation(size) / 10 - size / 20 + 0.03).reshape(shape)


def greatest_and_where(rows, columns):
    windows = Windows(rows, columns)

    def twin(x):
        taken = windows(x, -np.inf)
        at = jax.nn.one_hot(taken.argmax(-1), taken.shape[-1], dtype=x.dtype)
        return jnp.stack([taken.max(-1), (at * windows.taps[1].astype(x.dtype)).sum(-1)], -1)

    return twin


def soft(formula, rows, columns):
    """A formula of the elements of a window and of which of them are real."""
    windows = Windows(rows, columns)
    return lambda x: formula(windows(x, 1), windows.taps[0])


def norm(p):
    return lambda x, real: jnp.where(real, jnp.abs(x) ** p, 0).sum(-1) ** (1 / p)


def norm_mean(p):
    return lambda x, real: (
        (jnp.where(real, (x + 4) ** p, 0).sum(-1) / real.sum(-1, dtype=x.dtype)) ** (1 / p)
    )


def by_value(x, real):
    return ((x + 4) ** 2).sum(-1) / (x + 4).sum(-1)


def weighted(x, real):
    weight = jnp.where(real, jnp.exp(x / 2), 0)
    return (weight * x).sum(-1) / weight.sum(-1)


def log_sum_exp(x, real):
    return 2 * jnp.log(jnp.where(real, jnp.exp(x / 2), 0).sum(-1))


def chosen(f, rows, columns):
    """The elements that f chose, at random: which ones f itself must say."""
    windows = Windows(rows, columns)

    def twin(x):
        taken = windows(x, 1e9)
        which = jnp.abs(taken - jax.lax.stop_gradient(f(x))[..., None]).argmin(-1)
        return (taken * jax.nn.one_hot(which, taken.shape[-1], dtype=x.dtype)).sum(-1)

    return twin


def pyramid(x):
    one, two = (adaptive(4, 1), adaptive(3, 1)), (adaptive(4, 2), adaptive(3, 2))
    levels = [greatest(*one)(x), greatest(*two)(x)]
    return jnp.concatenate([y.reshape(*y.shape[:-3], -1) for y in levels], -1)


# Ops


def operands(x):
    """Three arrays that broadcast together."""
    return x[:, 0], x[:, 1, :1], x[:, 2, :, :1]


def both(answer):
    """A pool and its indices as one array."""
    y, indices = answer
    return jnp.stack([y, indices.astype(y.dtype)], -1)


MASK = np.arange(12).reshape(1, *PLANE, 1) % 5 != 1
PLACES = np.random.default_rng(2).permutation(30)[:12].reshape(1, *PLANE, 1).astype(np.int32)
KEY = 7


def unpool(x):
    return jaxpool.max_unpool(x, jnp.broadcast_to(PLACES, x.shape), (5, 6))


def unpool_twin(x):
    lanes = jnp.moveaxis(x, -1, -3).reshape(*x.shape[:-3], x.shape[-1], 12)
    y = lanes @ (PLACES.reshape(12, 1) == np.arange(30)).astype(np.float64)
    return jnp.moveaxis(y.reshape(*lanes.shape[:-1], 5, 6), -3, -1)


def stochastic(x):
    return jaxpool.stochastic_pool(jax.random.key(KEY), x, (2, 2), (2, 1))


def expected(x):
    return jaxpool.stochastic_pool(None, x + 4, *TWO)


def fractional(x):
    return jaxpool.fractional_max_pool(jax.random.key(KEY), x, (2, 2), (2, 2))


def ranked(rank):
    """The element of a rank of each window; of padding, which ranks last, none is chosen."""

    def formula(x, real):
        count = real.sum(-1)
        place = count // 2 if rank is None else rank % count
        order = jnp.sort(jnp.where(real, x, np.inf), -1)
        at = jax.nn.one_hot(jnp.broadcast_to(place, order.shape[:-1]), order.shape[-1], dtype=bool)
        return jnp.where(at, order, 0).sum(-1)

    return formula


KERNEL = np.random.default_rng(3).permutation(6).reshape(3, 2) / 9


def with_kernel(x):
    """An array and a kernel that depends on it too."""
    return x, KERNEL + 0.1 * jnp.tanh(x.mean((0, -1))[:3, :2])


def with_large_kernel(x):
    """The same kernel among entries that take no part: of so many taps it is gone over in a loop."""
    x, kernel = with_kernel(x)
    return x, jnp.pad(kernel, 2, constant_values=-np.inf)


def morphed(best, sign):
    windows = Windows(spans(4, 3), spans(3, 2))

    def twin(x):
        x, kernel = with_kernel(x)
        terms = windows(x, 0) + sign * kernel.reshape(1, 1, 1, 1, 6)
        at = jax.nn.one_hot(best(terms, -1), 6, dtype=x.dtype)
        return (terms * at).sum(-1)

    return twin


def largest_two(x):
    """Of axis 1, in their order."""
    taken = x >= jnp.sort(x, 1)[:, 2:3]
    at = taken[:, None] & (jnp.cumsum(taken, 1)[:, None] == np.arange(1, 3).reshape(1, 2, 1, 1, 1))
    return jnp.where(at, x[:, None], 0).sum(2)


def blurred(rows, columns):
    windows = Windows(rows, columns)
    weights = np.outer([1, 2, 1], [1, 1]).reshape(1, 1, 1, 1, 6) / 8
    return lambda x: (windows(x, 0) * weights).sum(-1)


def fractional_mean(x):
    return jaxpool.fractional_avg_pool(jax.random.key(KEY), x, (2, 2), (2, 2))


def mean_power(x):
    return 2.5 + 0.1 * jnp.tanh(x.mean((-3, -2), keepdims=True))


def gem(x):
    return jaxpool.gem_pool(x + 4, mean_power(x), (3, 2), padding="SAME")


def gem_twin(x):
    power = mean_power(x)
    real = Windows(*SAME).taps[0]
    taken = Windows(*SAME)(x + 4, 1)
    powers = jnp.where(real, taken ** power[..., None], 0).sum(-1) / real.sum(-1)
    return powers ** (1 / power)


@jaxpool.accelerate
def foreign(x):
    """A model that knows nothing of jaxpool."""
    y = lax_pools.max_pool(x, (3, 2), padding=((1, 1), (0, 1)))
    return y + lax_pools.avg_pool(x, (3, 2), padding=((1, 1), (0, 1)))


def masked_max(x):
    return jnp.maximum(jnp.where(MASK, x, -9).max((1, 2)), -1.0)


def identity(x):
    return (x,)


@dataclasses.dataclass(frozen=True)
class Row:
    """`f` of x, and of `autodiff` if it has that; `answer` is the oracle's of `operands(x)`, where it knows the op."""

    op: str
    f: Callable
    twin: Callable
    has_modes: bool = False
    answer: Callable | None = None
    operands: Callable = identity

    def modes(self):
        """The op in each of its modes; an op without the argument has one, for both."""
        if not self.has_modes:
            return {"both": self.f}
        return {mode: functools.partial(self.f, autodiff=mode) for mode in MODES}


def by_oracle(op):
    """The oracle of an op, or None; of a pool and its indices, that of the pool, which has both."""
    named = op.removesuffix("_with_argmax")
    rooms = (_oracle, _oracle_adaptive, _oracle_reduce, _tap_oracle)
    return next((getattr(room, named) for room in rooms if hasattr(room, named)), None)


def row(op, twin, *args, finish=lambda y: y, split=identity, **kwargs):
    """A row for a function of arrays."""
    function = getattr(jaxpool, op)
    named = by_oracle(op)
    return Row(
        op,
        lambda x, **mode: finish(function(*split(x), *args, **kwargs, **mode)),
        twin,
        "autodiff" in inspect.signature(function).parameters,
        named and (lambda x: named(*split(x), *args, **kwargs)),
        split,
    )


def elementwise(op, twin, count, **kwargs):
    return row(
        op,
        lambda x: functools.reduce(twin, operands(x)[:count]),
        split=lambda x: operands(x)[:count],
        **kwargs,
    )


def same(op, twin, *args, **kwargs):
    return row(op, twin(*SAME), *args, (3, 2), padding="SAME", **kwargs)


ADAPTIVE = (adaptive(4, 3), adaptive(3, 2))
EVEN = (spans(4, 2, 2), spans(3, 3))
PAIRS = (spans(4, 2, 2), [[0], [1], [2]])
DILATED = (spans(4, 2, low=1, dilation=2), spans(3, 2))
LARGE = ([list(range(4))] * 4, [list(range(3))] * 3)  # what a 13x11 window sees of the plane
UP = ([list(range(i + 1)) for i in range(4)], [[0], [1], [2]])
DOWN = ([[0], [1], [2], [3]], [list(range(i, 3)) for i in range(3)])
ALL = (whole(4), whole(3))
REFLECTED = ([[1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 2]], [[0, 1], [1, 2], [2, 1]])
TWO = ((2, 1), (2, 1))  # the window and the strides of PAIRS

ROWS = {
    "max_pool": same("max_pool", greatest),
    "min_pool": row("min_pool", least(*EVEN), (2, 3), (2, 1), ties="last"),
    "max_pool_with_argmax": same("max_pool_with_argmax", greatest_and_where, finish=both),
    "avg_pool": same("avg_pool", mean, count_include_pad=False),
    "sum_pool": row("sum_pool", total(*EVEN), (2, 3), (2, 1)),
    "adaptive_max_pool": row("adaptive_max_pool", greatest(*ADAPTIVE), (3, 2)),
    "adaptive_max_pool_with_argmax": row(
        "adaptive_max_pool_with_argmax", greatest_and_where(*ADAPTIVE), (3, 2), finish=both
    ),
    "adaptive_avg_pool": row("adaptive_avg_pool", mean(*ADAPTIVE), (3, 2)),
    "maximum": elementwise("maximum", jnp.maximum, 3),
    "minimum": elementwise("minimum", jnp.minimum, 2, ties="last"),
    "fmax": elementwise("fmax", jnp.maximum, 2),
    "fmin": elementwise("fmin", jnp.minimum, 2, ties="first"),
    "max": row("max", masked_max, axis=(1, 2), where=MASK, initial=-1.0),
    "min": row("min", lambda x: x.min(1), axis=1, ties="first"),
    "cummax": row("cummax", greatest(*UP), axis=1),
    "cummin": row("cummin", least(*DOWN), axis=2, reverse=True, ties="last"),
    "max_unpool": Row("max_unpool", unpool, unpool_twin),
    "lp_pool": row("lp_pool", soft(norm(3), *PAIRS), 3, *TWO),
    "logsumexp_pool": row("logsumexp_pool", soft(log_sum_exp, *PAIRS), *TWO, temperature=2.0),
    "softmax_pool": row("softmax_pool", soft(weighted, *PAIRS), *TWO, temperature=2.0),
    "gem_pool": row("gem_pool", soft(norm_mean(3), *PAIRS), 3, *TWO, split=lambda x: (x + 4,)),
    "fractional_max_pool": Row("fractional_max_pool", fractional, chosen(fractional, *ALL)),
    "median_pool": same("median_pool", lambda *at: soft(ranked(None), *at)),
    "rank_pool": row("rank_pool", soft(ranked(1), *PAIRS), 1, *TWO, ties="last"),
    "k_max_pool": row("k_max_pool", largest_two, 2, axis=1),
    "dilate": row("dilate", morphed(jnp.argmax, 1), split=with_kernel),
    "erode": row("erode", morphed(jnp.argmin, -1), split=with_kernel, ties="last"),
    "fractional_avg_pool": Row(
        "fractional_avg_pool", fractional_mean, mean([[0, 1], [2, 3]], [[0, 1], [1, 2]])
    ),
    "blur_pool": row("blur_pool", blurred(*REFLECTED), (3, 2)),
    "max_blur_pool": row(
        "max_blur_pool", lambda x: blurred(*REFLECTED)(greatest(*SAME)(x)), (3, 2), (3, 2), None
    ),
    "stochastic_pool": Row(
        "stochastic_pool", stochastic, chosen(stochastic, spans(4, 2, 2), spans(3, 2))
    ),
    "global_max_pool": row("global_max_pool", lambda x: greatest(*ALL)(x)[:, 0, 0]),
    "global_avg_pool": row("global_avg_pool", lambda x: mean(*ALL)(x)[:, 0, 0]),
    "spatial_pyramid_pool": row("spatial_pyramid_pool", pyramid, (1, 2)),
    "maxout": row("maxout", greatest(*PAIRS), 2, axis=1),
    "accelerate": Row("accelerate", foreign, lambda x: greatest(*SAME)(x) + total(*SAME)(x) / 6),
}
largest = functools.partial(largest_of_boxes, greatest)
ROWS |= {
    "roi_align": Row("roi_align", of_boxes("roi_align"), mean_of_boxes),
    "roi_max_pool": Row("roi_max_pool", of_boxes("roi_max_pool"), largest),
    "segment_max": Row("segment_max", of_lines("segment_max"), by_segment(greatest_row)),
    "segment_min": Row(
        "segment_min",
        lambda x: -of_lines("segment_min", ties="last")(-x),
        by_segment(greatest_row),
    ),
    "segment_mean": Row("segment_mean", of_lines("segment_mean"), by_segment(mean_row)),
}
# Other kernels of the same ops.
VARIANTS = {
    "max_pool, split": same("max_pool", greatest, ties="split"),
    "max_pool, large": row(
        "max_pool", greatest(*LARGE), (13, 11), padding="SAME", ties="split", strides=(1, 1)
    ),
    "max_pool, large, first": row("max_pool", greatest(*LARGE), (13, 11), padding="SAME"),
    "max_pool, dilated": row(
        "max_pool",
        greatest(*DILATED),
        (2, 2),
        padding=((1, 1), (0, 0)),
        window_dilation=(2, 1),
        axes=(1, 2),
        ties="last",
    ),
    "avg_pool, strided": row("avg_pool", mean(*PAIRS), *TWO),
    "adaptive_max_pool, split": row("adaptive_max_pool", greatest(*ADAPTIVE), (3, 2), ties="split"),
    "adaptive_max_pool, even": row("adaptive_max_pool", greatest(*PAIRS), (2, 3), ties="last"),
    "max_pool_with_argmax, split": same(
        "max_pool_with_argmax", greatest_and_where, finish=both, ties="split"
    ),
    "maximum, first": elementwise("maximum", jnp.maximum, 3, ties="first"),
    "fmin, split": elementwise("fmin", jnp.minimum, 3 - 1, ties="split"),
    "max, last": row("max", masked_max, axis=(1, 2), where=MASK, initial=-1.0, ties="last"),
    "cummax, last": row("cummax", greatest(*UP), axis=1, ties="last"),
    "median_pool, split": same("median_pool", lambda *at: soft(ranked(None), *at), ties="split"),
    "median_pool, large": row(
        "median_pool", soft(ranked(None), *LARGE), (13, 11), padding="SAME", ties="split"
    ),
    "dilate, large": row(
        "dilate", morphed(jnp.argmax, 1), split=with_large_kernel, padding=((2, 2), (2, 2))
    ),
    "erode, large, split": row(
        "erode",
        morphed(jnp.argmin, -1),
        split=with_large_kernel,
        padding=((2, 2), (2, 2)),
        ties="split",
    ),
    "dilate, split": row("dilate", morphed(jnp.argmax, 1), split=with_kernel, ties="split"),
    "lp_pool, overlapping": same("lp_pool", lambda *at: soft(norm(3), *at), 3),
    "lp_pool, inf": same("lp_pool", lambda *at: lambda x: greatest(*at)(jnp.abs(x)), np.inf),
    "logsumexp_pool, overlapping": same(
        "logsumexp_pool", lambda *at: soft(log_sum_exp, *at), temperature=2.0
    ),
    "softmax_pool, overlapping": same(
        "softmax_pool", lambda *at: soft(weighted, *at), temperature=2.0
    ),
    "gem_pool, power of an array": Row("gem_pool", gem, gem_twin),
    "stochastic_pool, mean": Row("stochastic_pool", expected, soft(by_value, *PAIRS)),
    "roi_max_pool, split": Row("roi_max_pool", of_boxes("roi_max_pool", ties="split"), largest),
    "global_max_pool, split": row(
        "global_max_pool", lambda x: greatest(*ALL)(x)[:, 0, 0], ties="split"
    ),
}
