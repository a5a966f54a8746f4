"""Calls with shapes, dtypes and arguments that the samples of the records do not have, against the oracle."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.testing import Call, assert_pool_matches, draw_values, pools
from tests.search.programs import on_platform
from tests.support.compilation import FAST_COMPILE
from tests.support.later import LATER, first_values

pytestmark = pytest.mark.usefixtures("strict")

POOLS = pools()
DTYPES = [
    *[np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64],
    *[jnp.bfloat16, np.float16, np.float64],
    *[jnp.int2, jnp.uint2, jnp.int4, jnp.uint4, jnp.float4_e2m1fn],
    *[getattr(jnp, name) for name in dir(jnp) if name.startswith("float8_")],
]


def has_derivative(call):
    floats = all(jnp.issubdtype(np.asarray(each).dtype, jnp.floating) for each in call.operands())
    return floats and not call.pool.marks


def check(name, x, /, mode="vjp", cotangents="ties", **arguments):
    """Compare value, indices and cotangents of one call in one mode, for a dy of the kind `cotangents`."""
    pool = POOLS[name]
    call = Call(pool, pool.given(x, **arguments))
    if has_derivative(call):
        y = call.answer().y
        dy = draw_values(np.random.default_rng(3), y.shape, y.dtype, cotangents)
        call = Call(pool, call.given, dy)
    function = functools.partial(pool.function, autodiff=mode) if pool.modes else pool.function
    assert_pool_matches(function, call, jit=False)


def check_tangents_and_nonfinite_cotangents(name, x, arguments, compile_fn=lambda fn: fn):
    """Compare tangents, and cotangents of x where dy has NaN and infinities.

    NaN or infinity times the share 0 of an element would spread over a window. `compile_fn` is `jax.jit` to compile
    for another platform, and by default nothing, because eager calls reuse programs.
    """
    pool = POOLS[name]
    call = Call(pool, pool.given(x, **arguments))
    if not has_derivative(call):
        return
    answer, rng = call.answer(), np.random.default_rng(4)

    def value(*operands, **mode):
        return jax.tree.leaves(pool.run(call.of(operands) | mode))[0]

    operands = [jnp.asarray(each) for each in call.operands()]
    # A softmax divides by the sum over its segment, so that each share depends on every row.
    kind = "normal" if name == "segment_softmax" else "special"
    dy = draw_values(rng, answer.y.shape, answer.y.dtype, kind)
    dxs = [draw_values(rng, each.shape, each.dtype, "normal") for each in operands]
    forward = functools.partial(value, autodiff="jvp") if pool.modes else value
    tolerance = {"rtol": 1e-5, "atol": max(1e-5, float(jnp.finfo(x.dtype).eps))}
    tangent = compile_fn(lambda *xs: jax.jvp(forward, *xs)[1])(operands, dxs)
    np.testing.assert_allclose(np.float64(tangent), np.float64(answer.tangent(*dxs)), **tolerance)
    dx = compile_fn(lambda dy, *xs: jax.vjp(value, *xs)[1](dy)[0])(dy, *operands)
    np.testing.assert_allclose(np.float64(dx), np.float64(answer.cotangents(dy)[0]), **tolerance)


RNG = np.random.default_rng(5)
inf = np.inf
MASKS = {
    "every element": RNG.random((3, 4, 5, 2)) < 0.4,
    "one for all channels": RNG.random((3, 4, 5, 1)) < 0.3,
    "an example of nothing": np.arange(3).reshape(3, 1, 1, 1) > 0,
    "columns": np.arange(5)[:, None] < 3,
}
EPISODES = np.array([0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0], bool)[:, None]
# Windows of adaptive pools: more than elements, fewer, and both; one even and one uneven axis; long ones.
ADAPTIVE = [
    ((2, 7, 3), {"output_shape": (5,)}),
    ((3, 3, 2), {"output_shape": (8,)}),
    ((1, 3, 2), {"output_shape": (100,)}),
    ((2, 5, 7, 2), {"output_shape": (3, 4)}),
    ((2, 6, 5), {"output_shape": (8, 3), "axes": (-1, 1)}),
    ((2, 3, 4, 6), {"output_shape": (3, 6), "axes": (2, 3)}),
    ((3, 4, 2, 5, 1), {"output_shape": (2, None, 3)}),
    ((1, 201, 2, 2), {"output_shape": (3, 1)}),
    ((1, 33, 35, 1), {"output_shape": (2, 2)}),
    ((2, 4, 5, 2), {"output_shape": (1, 1)}),
]
FRACTIONAL = [
    ((2, 9, 3), {"window_shape": (2,), "output_shape": (5,), "axes": (1,)}),
    ((2, 7, 9, 2), {"window_shape": (3, 2), "output_shape": (5, 4), "axes": (2, 1)}),
    ((5, 2, 2, 6), {"window_shape": (2, 2), "output_shape": (4, 1), "axes": (3, 0)}),
    ((2, 4, 5, 3, 1), {"window_shape": (2, 1, 3), "output_shape": (2, 5, 1)}),
    ((1, 4, 1), {"window_shape": (2,), "output_shape": (3,)}),
]
GLOBAL = [((3, 4, 5, 2), {"where": mask}) for mask in MASKS.values()]
GLOBAL += [((3, 4, 5, 2), {"axes": axes}) for axes in [(2, 1), (-1,), (0, 1, 2, 3)]]
SCANS = [((size,), {"axis": 0}) for size in (1, 2, 9, 40)]
SCANS += [((0, 2), {"axis": 0, "reverse": reverse}) for reverse in (False, True)]
SCANS += [((3, 7, 4), {"axis": -2, "reverse": True}), ((3, 7, 4), {"axis": -1})]
RESETS = [
    ((11, 2), {"axis": 0, "reset": EPISODES, "reverse": reverse}) for reverse in (False, True)
]
# Windows of odd and prime lengths, one above half of the array, which are built by doubling.
LONG = [((2, 40, 2), {"window_shape": n, "padding": "SAME", "axes": (1,)}) for n in (5, 13, 31)]
LONG_SQUARE = [((20, 20, 1), {"window_shape": (17, 17), "strides": (3, 3)})]
# Strides along the last axis, which is read and written in strided slices; one is shorter than its stride.
CHANNELS_FIRST = [
    ((1, 1, 8, 1), {"window_shape": (3, 3), "strides": (2, 3), "padding": ((1, 1), (1, 1))}),
    ((2, 2, 7, 9), {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}),
    ((1, 2, 4, 22), {"window_shape": (2, 2), "strides": (2, 2)}),
    ((1, 1, 5, 20), {"window_shape": (1, 5), "strides": (1, 3), "window_dilation": (1, 2)}),
]
CHANNELS_FIRST = [(shape, arguments | {"axes": (2, 3)}) for shape, arguments in CHANNELS_FIRST]
BLURS = [
    ((1, 19, 23, 1), {"window_shape": (17, 12), "strides": (4, 5), "axes": (1, 2)}),
    ((9, 2, 8, 5), {"window_shape": (2, 5, 3), "strides": (1, 3, 2), "axes": (3, 0, 2)}),
    ((70, 1), {"window_shape": (63,), "strides": (40,), "axes": (0,)}),
]
# More taps than are unrolled, so that a loop runs, forward and backward.
KERNEL = RNG.integers(-2, 3, (5, 6, 2))
KERNEL[0, 0] = -100
LARGE_KERNELS = [
    ((1, 8, 9, 2), {"kernel": KERNEL[..., 0]}),
    ((1, 7, 9, 2), {"kernel": KERNEL, "padding": "SAME", "strides": (2, 3)}),
    ((2, 9, 11, 1), {"kernel": KERNEL[..., 0], "strides": (7, 9), "axes": (2, 1), "padding": 1}),
    ((1, 6, 9, 2), {"kernel": KERNEL, "padding": "SAME", "window_dilation": (1, 2)}),
    ((1, 3, 7, 6), {"kernel": KERNEL, "axes": (3, 2, 1), "strides": (2, 1, 2)}),
]
LARGE_KERNELS = [
    (shape, arguments | {"kernel": arguments["kernel"].astype(dtype)}, dtype)
    for dtype in (np.float32, np.int32, np.uint8)
    for shape, arguments in LARGE_KERNELS[: 5 if dtype == np.float32 else 2]
]
PYRAMIDS = [
    ((2, 5, 6, 3), {"levels": (1, 2, 4), "kind": "max"}),
    ((2, 5, 6, 3), {"levels": [4, 1, 2], "kind": "avg"}),
    ((2, 3, 5, 6), {"levels": (1, 2), "axes": (2, 3)}),
    ((2, 7, 3), {"levels": (2,)}),
]
INDICES = [((2, 3, 4), {"window_shape": (3, 2), "axes": axes}) for axes in [(1, 0), (2, 0)]]
# More than 256 taps and more than 2**16 positions
INDICES += [((300, 300, 1), {"window_shape": (15, 20), "strides": (15, 20)})]
SMALL = (3, 5, 4)
MASKED = {"axis": (1, 2), "where": np.arange(20).reshape(5, 4) % 3 > 0}
REDUCTIONS = [
    *[(SMALL, {}), (SMALL, {"axis": 1}), (SMALL, {"axis": -1, "keepdims": True})],
    *[(SMALL, {"axis": axis}) for axis in [(-1, 0), [0, 1], ()]],
    *[(SMALL, {"axis": 1, "initial": initial}) for initial in (0, inf, -inf)],
    *[
        (SMALL, mask | {"initial": initial})
        for mask in (MASKED, {"axis": 1, "where": MASKS["an example of nothing"][..., 0]})
        for initial in (1, inf, -inf)
    ],
    *[(SMALL, MASKED | {"initial": 1}, dtype) for dtype in (np.bool_, np.int8, jnp.bfloat16)],
    (SMALL, MASKED | {"initial": 1}, jnp.float8_e4m3fn),
    *[(SMALL, {"axis": 1, "initial": n}, np.bool_) for n in (0, False, True, np.int32(1))],
    # Short and missing blocks of bits, and the range of a byte
    *[((2, size), {"axis": 1}) for size in (1, 7, 9, 15, 256, 257)],
    ((3, 0, 2), {"axis": 1, "initial": 2}),
]
MAXOUTS = [(SMALL, {"groups": groups, "axis": axis}) for groups, axis in [(4, 2), (1, 1), (3, 0)]]
PEAKS = [((2, 5, 6, 2), {"window_shape": window}) for window in [(3, 3), (2, 3), (5, 1)]]
PEAKS += [((5, 6), {"window_shape": (3, 2), "axes": (1, 0)})]
# Medians in several steps, of more than one word of bits, walked back, and counted
MEDIANS = [
    ((1, 7, 7, 1), (5, 5), (1, 1)),
    ((1, 8, 7, 1), (6, 7), (2, 1)),
    ((1, 9, 9, 2), (9, 8), (2, 3)),
    ((1, 15, 9, 2), (17, 8), (2, 3)),
    ((1, 26, 24, 2), (13, 12), (13, 12)),
]
MEDIANS = [
    (shape, {"window_shape": window, "strides": strides, "padding": "SAME"})
    for shape, window, strides in MEDIANS
]
MIDPOINTS = [((1, 9, 9, 4), {"window_shape": (2, 4), "method": "midpoint"}, jnp.bfloat16)]
# Some windows have too few unmasked elements for the rank: the output is 0, without gradient.
MASKED_RANKS = [
    ((2, 5, 6, 2), {"window_shape": window, "where": RNG.random((2, 5, 6, 1)) < 0.4})
    for window in [(2, 3), (5, 6)]
]
# Ids out of range and empty segments, and masks of elements, rows, columns, and of nothing
IDS = np.array([3, 0, -1, 3, 1, 9, 0, 3, 1, 3, 0, 5])
ROW_MASKS = [RNG.random(shape) < 0.6 for shape in [(12, 2, 3), (12, 1, 1), (3,)]]
SEGMENTS = [
    ((12, 2, 3), {"segment_ids": ids, "num_segments": 5, "indices_are_sorted": is_sorted} | mask)
    for ids, is_sorted in [(IDS, False), (np.sort(IDS), True)]
    for mask in [{}, *[{"where": mask} for mask in (*ROW_MASKS, np.False_)]]
]
EMPTY_SEGMENTS = {"segment_ids": np.array([1, 1, -1]), "num_segments": 3}
SEGMENTS += [((3, 1, 1), EMPTY_SEGMENTS, dtype) for dtype in (np.int16, np.uint8)]
# Sums of more numbers than a sequential sum in the dtype can add, forward or backward
FLOAT8 = jnp.float8_e4m3fn
NARROW_WINDOWS = [((40, 1), {"window_shape": (21,)}, FLOAT8)]
NARROW_ADAPTIVE = [
    ((40,), {"output_shape": 1, "axes": (0,)}, FLOAT8),
    ((2,), {"output_shape": 41, "axes": (0,)}, FLOAT8),
]
NARROW_FRACTIONAL = [((40, 1), {"window_shape": (21,), "output_shape": (20,)}, FLOAT8)]
NARROW_GLOBAL = [((1, 40, 1), {}, FLOAT8)]
NARROW_SCANS = [((40,), {"axis": 0}, FLOAT8)]
NARROW_SEGMENT = [((40, 1, 1), {"segment_ids": np.zeros(40, np.uint32), "num_segments": 1}, FLOAT8)]
NARROW_OPERANDS = np.zeros(40, FLOAT8), np.ones((), FLOAT8)
# Boxes by image, to the last of 257 pixels, in several chunks, and cells whose bounds float32 rounds
IMAGE_BOXES = np.float32([[[1, 1, 3, 3]]] * 2)
BOXES = [
    ((2, 6, 5, 1), {"boxes": IMAGE_BOXES, "output_shape": (1, 1)}),
    (
        (2, 6, 5, 1),
        {"boxes": IMAGE_BOXES, "output_shape": (1, 1), "batch_indices": np.array([[1], [0]])},
    ),
    *[
        ((2, 6, 5, 1), {"boxes": IMAGE_BOXES.astype(dtype), "output_shape": (2, 3)})
        for dtype in (np.float16, np.int32)
    ],
]
# Boxes inside, across and outside the image, some reversed or without area. Quarters of a pixel have exact weights.
SOME_BOXES = np.round(RNG.uniform(-3, 9, (9, 4)) * 4).astype(np.float32) / 4
SOME_BOXES[:4] = np.sort(SOME_BOXES[:4].reshape(4, 2, 2), 1).reshape(4, 4)
SOME_BOXES[-1, 2] = SOME_BOXES[-1, 0]
SOME_BOXES = {"boxes": SOME_BOXES, "batch_indices": np.arange(9) % 2, "output_shape": (2, 4)}
ALIGN_BOXES = [
    ((2, 6, 5, 2), SOME_BOXES | options)
    for options in (
        {},
        {"aligned": False, "samples": 1, "spatial_scale": 0.5},
        {"kind": "max", "spatial_scale": 2.0},
    )
]
MAX_BOXES = [
    *[((2, 6, 5, 2), SOME_BOXES | {"spatial_scale": scale}) for scale in (1.0, 0.5, 2.0)],
    ((1, 257, 1), {"boxes": np.float32([[0, 0, 0, 256]]), "output_shape": (1, 1)}),
    (
        (2, 20, 40, 1),
        {
            "boxes": np.float32([[0, 0, 19, 39]] * 2),
            "output_shape": (4, 5),
            "batch_indices": np.array([1, 0]),
        },
    ),
    *[
        (
            (n + 3, 1, 2),
            {"boxes": np.float32([[0, 0, n - 1, 0], [1, 0, n, 0]]), "output_shape": out},
        )
        for n, out in [(57, (7, 1)), (62, (14, 1))]
    ],
]
# Masked elements are never selected, even if every other element equals their replacement, -inf.
FEW = np.zeros((1, 9, 40, 1), bool)
FEW[0, 2:4, 5:8] = True
MASKED_WINDOWS = [
    ((1, 9, 40, 1), {"window_shape": window, "strides": window, "where": FEW})
    for window in [(1, 4), (3, 30)]
]
MASKED_WINDOWS += [((1, 9, 9, 1), {"window_shape": (9, 9), "where": FEW[:, :, :9]})]
CALLS = {
    "adaptive_max_pool_with_argmax": ADAPTIVE + NARROW_ADAPTIVE,
    "adaptive_avg_pool": ADAPTIVE + NARROW_ADAPTIVE,
    "fractional_max_pool": FRACTIONAL + NARROW_FRACTIONAL,
    "fractional_avg_pool": FRACTIONAL,
    "global_max_pool": GLOBAL,
    "global_avg_pool": GLOBAL + NARROW_GLOBAL,
    "cummax": SCANS + NARROW_SCANS,
    "cummin": SCANS,
    "cummax_with_argmax": RESETS,
    "max_pool": LONG + LONG_SQUARE + CHANNELS_FIRST + MASKED_WINDOWS + NARROW_WINDOWS,
    "min_pool": LONG + LONG_SQUARE + CHANNELS_FIRST + MASKED_WINDOWS + NARROW_WINDOWS,
    "avg_pool": LONG + NARROW_WINDOWS,
    "sum_pool": LONG + NARROW_WINDOWS,
    "maximum": [((), {"xs": NARROW_OPERANDS}, FLOAT8)],
    "fmax": [((), {"y": NARROW_OPERANDS[0]}, FLOAT8)],
    "blur_pool": BLURS,
    "dilate": LARGE_KERNELS,
    "erode": LARGE_KERNELS,
    "max_pool_with_argmax": INDICES,
    "max": REDUCTIONS,
    "min": REDUCTIONS,
    "maxout": MAXOUTS,
    "roi_align": BOXES + ALIGN_BOXES,
    "multilevel_roi_align": BOXES,
    "roi_max_pool": BOXES + MAX_BOXES,
    "local_maxima": PEAKS,
    "local_minima": PEAKS,
    "k_max_pool": [
        ((2, 90), {"k": 80, "axis": 1}),
        *[((3, 40), {"k": 5, "axis": 1}, t) for t in (jnp.int2, jnp.uint2, jnp.int4, jnp.uint4)],
    ],
    "median_pool": MIDPOINTS
    + MEDIANS
    + [
        (shape, arguments | {"method": method})
        for shape, arguments in MASKED_RANKS
        for method in ("lower", "midpoint")
    ]
    + [
        ((1, 4, 5, 1), {"method": method}, dtype)
        for method in ("lower", "midpoint")
        for dtype in (np.int32, np.bool_)
    ],
    "rank_pool": [
        (shape, arguments | {"rank": rank}) for shape, arguments in MASKED_RANKS for rank in (1, -2)
    ],
    "spatial_pyramid_pool": PYRAMIDS,
    **{name: SEGMENTS for name, pool in POOLS.items() if pool.takes("segment_ids")},
    "segment_sum": SEGMENTS + NARROW_SEGMENT,
    "segment_mean": SEGMENTS + NARROW_SEGMENT,
}
MODES_BY_VALUES = {"ties": "vjp", "special": "jvp", "lowest": "vjp", "normal": "jvp"}
# Shapes that broadcast together, and numbers of operands around 8, 16 and 32 tie bits
OPERANDS = [
    *[((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((0, 3), (1, 3))],
    *[((2, 3), (1, 3), (2, 1)), ((5,), (), (1,), (5,)), ((), ())],
    *[((3,),) * count for count in (8, 9, 17, 33)],
]


def is_later(at, call):
    """Return True for every other call, all after the ninth, boxes, kernels after the first, and large windows."""
    is_slow = "boxes" in call[1] or np.prod(call[1].get("window_shape", 1)) > 30
    return at % 2 or at > 8 or is_slow or (at > 0 and "kernel" in call[1])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param(name, call, id=f"{name}-{at}", marks=LATER if is_later(at, call) else ())
        for name, calls in CALLS.items()
        for at, call in enumerate(calls)
    ],
)
def test_chosen_calls(name, call):
    """Every rule of ties, for every kind of values."""
    shape, arguments, dtype = (*call, np.float32)[:3]
    pool, rng = POOLS[name], np.random.default_rng(1)
    cotangents = "ties" if pool.tolerance or pool.rounds_weights else "normal"
    for rule in [{"ties": ties} for ties in pool.ties] or [{}]:
        for values in pool.covers if pool.adds else ("ties", "special", "lowest"):
            x = draw_values(rng, shape, dtype, values, greatest="min" in name)
            check(name, x, MODES_BY_VALUES[values], cotangents, **arguments, **rule)
        for values in ("ties",) if pool.adds else ("ties", "special", "lowest"):
            x = draw_values(rng, shape, dtype, values)
            check_tangents_and_nonfinite_cotangents(name, x, arguments | rule)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        pytest.param(name, at, marks=() if at == 0 else LATER)
        for name in ("roi_align", "multilevel_roi_align")
        for at in range(len(CALLS[name]))
    ],
)
def test_nonfinite_numbers_in_products_of_matrices(name, at):
    """The plan of GPUs, where boxes are products of matrices. A weight of 0 times infinity would be NaN."""
    shape, arguments = CALLS[name][at][:2]
    for values in ("ties", "special"):
        x = draw_values(np.random.default_rng(1), shape, np.float32, values)
        with on_platform("gpu"):
            check_tangents_and_nonfinite_cotangents(name, x, arguments, jax.jit)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [(name, shapes) for name in ("maximum", "minimum") for shapes in OPERANDS]
    + [(name, shapes) for name in ("fmax", "fmin") for shapes in OPERANDS if len(shapes) == 2],
)
def test_broadcast_operands(name, shapes):
    rng = np.random.default_rng(2)
    with jax.numpy_rank_promotion("allow"):
        for ties in POOLS[name].ties:
            for values, mode in MODES_BY_VALUES.items():
                xs = tuple(draw_values(rng, shape, np.float32, values) for shape in shapes)
                arguments = {"xs": xs, "x": xs[0], "y": xs[1], "ties": ties}
                check(name, xs[0], mode, **arguments)
                check_tangents_and_nonfinite_cotangents(name, xs[0], arguments)


CI_NAMES = ("max_pool", "min_pool", "avg_pool", "sum_pool", "maximum", "minimum")


def is_float8(dtype):
    return np.dtype(dtype).name.startswith("float8")


def is_left_out(pool, dtype):
    """Return True for a function and a dtype without an exact oracle."""
    if dtype == np.bool_:  # sums of bools raise
        return pool.keeps_integers or pool.takes("kernel")
    if pool.name == "stochastic_pool":  # the oracle draws other numbers
        return dtype in (np.int64, np.uint64)
    # Without XLA's fusion emitters (tests/support/compilation.py) tiny negative numbers become NaN in these dtypes.
    if pool.name == "gem_pool":
        return dtype.name.endswith("fnuz")
    # Shares are rounded to powers of two, and large integers to float32 before they are compared.
    return pool.name == "segment_softmax" and dtype.name in ("float8_e8m0fnu", "uint32")


def dtype_cases():
    """Yield a function and a dtype: one pair per function runs always, some later, and the rest in slow tests."""
    count = len(DTYPES)
    for row, (name, pool) in enumerate(POOLS.items()):
        for column, dtype in enumerate(DTYPES):
            if is_left_out(pool, np.dtype(dtype)):
                continue
            turn = (row - column) % count
            is_later = turn == count // 2 or dtype == jnp.int4 or name in CI_NAMES
            marks = () if turn == 0 else LATER if is_later else pytest.mark.slow
            yield pytest.param(name, dtype, id=f"{name}-{np.dtype(dtype)}", marks=marks)


PADDED = {"window_shape": (3, 3), "padding": ((1, 1), (1, 1))}


@pytest.mark.parametrize(("name", "dtype"), list(dtype_cases()))
def test_dtypes(name, dtype):
    """Overlapping and padded windows, if the function has windows."""
    pool = POOLS[name]
    kinds = [values for values in pool.covers if values != "normal"] or ["normal"]
    if is_float8(dtype) and (pool.rounds_weights or pool.tolerance):
        kinds = kinds[:1]  # errors of sums of other values are larger than the oracle allows
    wide = np.dtype(dtype).itemsize == 8
    cotangents = "ties" if pool.tolerance or pool.rounds_weights else "normal"
    with jax.enable_x64(wide):
        for at, values in enumerate(kinds):
            x = draw_values(np.random.default_rng(0), (2, 4, 6, 4), dtype, values)
            ties = {"ties": pool.ties[at % len(pool.ties)]} if pool.ties else {}
            padded = PADDED if pool.takes("window_shape") else {}
            check(name, x, cotangents=cotangents, **padded, **ties)


# float32 holds only every other integer in this range.
INTEGERS = 2**24 + np.arange(2 * 6 * 6 * 2).reshape(2, 6, 6, 2) % 5
AVERAGES = [n for n, p in POOLS.items() if p.averages(p.given(INTEGERS))]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_integers_have_the_dtype_of_jnp_mean(name):
    for wide, dtype in itertools.product((False, True), (np.int64, np.int8, np.bool_)):
        with jax.enable_x64(wide):
            x = jnp.asarray((INTEGERS % 5).astype(dtype))
            found, want = (jax.eval_shape(f, x).dtype for f in (POOLS[name].of(), jnp.mean))
            assert found == want


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.usefixtures("x64")
def test_integers_not_rounded_to_float32_before_division(name):
    f = POOLS[name].of()
    run = jax.jit(lambda x: (f(x), f(x.astype(np.float64))), compiler_options=FAST_COMPILE)
    np.testing.assert_array_equal(*run(INTEGERS.astype(np.int64)))


@pytest.mark.parametrize("shape", first_values(1, [(0, 4, 6, 4), (2, 4, 6, 0), (0, 4, 6, 0)]))
@pytest.mark.parametrize(
    "name",
    [n for n, pool in POOLS.items() if not pool.takes("boxes") and not pool.takes("segment_ids")],
)
def test_empty_batch_or_channels(name, shape):
    """The value has the shape of the twin's value, and each cotangent the shape of its operand."""
    pool = POOLS[name]
    more = {"initial": 0.5} | ({"axis": 1} if pool.takes("groups") else {})
    call = Call(pool, pool.given(np.zeros(shape, np.float32), **more))
    operands = [jnp.asarray(each) for each in call.operands()]

    def first_result(*operands, function=None):
        return jax.tree.leaves(pool.run(call.of(operands), function))[0]

    with jax.numpy_rank_promotion("allow"):  # twins are written for users without that check
        want = jax.eval_shape(functools.partial(first_result, function=pool.twin), *operands)
    if pool.marks:
        assert first_result(*operands).shape == want.shape
        return
    y, pullback = jax.vjp(first_result, *operands)
    assert y.shape == want.shape
    assert [dx.shape for dx in pullback(y)] == [each.shape for each in operands]
