"""Calls with shapes, dtypes and arguments that the samples of the records do not have, against the oracle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.testing import Call, assert_pool_matches, draw_values, pools
from tests.support.later import LATER

pytestmark = pytest.mark.usefixtures("strict")

POOLS = pools()
DTYPES = [
    *[np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64],
    *[jnp.bfloat16, np.float16, np.float64],
    *[getattr(jnp, name) for name in dir(jnp) if name.startswith("float8_")],
]


def check(name, x, /, mode="vjp", **arguments):
    """Compare value, indices and cotangents of one call in one mode."""
    pool = POOLS[name]
    call = Call(pool, pool.given(x, **arguments))
    floats = all(jnp.issubdtype(np.asarray(each).dtype, jnp.floating) for each in call.operands())
    if floats and not pool.marks:
        y = call.answer().y
        dy = draw_values(np.random.default_rng(3), y.shape, y.dtype, "ties")
        call = Call(pool, call.given, dy)
    function = functools.partial(pool.function, autodiff=mode) if pool.modes else pool.function
    assert_pool_matches(function, call, jit=False)


def check_nonfinite_cotangents(name, x, arguments):
    """NaN or infinity times the share 0 of an element would spread over a window."""
    call = Call(POOLS[name], POOLS[name].given(x, **arguments))
    answer = call.answer()
    dy = draw_values(np.random.default_rng(4), answer.y.shape, answer.y.dtype, "special")
    others = call.operands()[1:]
    _, back = jax.vjp(lambda x: jax.tree.leaves(call.pool.run(call.of([x, *others])))[0], x)
    np.testing.assert_allclose(back(dy)[0], answer.cotangents(dy)[0], rtol=1e-5, atol=1e-5)


RNG = np.random.default_rng(5)
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
LARGE_KERNELS = [((1, 8, 9, 2), {"kernel": RNG.integers(-2, 3, (5, 6)).astype(np.float32)})]
PYRAMIDS = [
    ((2, 5, 6, 3), {"levels": (1, 2, 4), "kind": "max"}),
    ((2, 5, 6, 3), {"levels": [4, 1, 2], "kind": "avg"}),
    ((2, 3, 5, 6), {"levels": (1, 2), "axes": (2, 3)}),
    ((2, 7, 3), {"levels": (2,)}),
]
INDICES = [((2, 3, 4), {"window_shape": (3, 2), "axes": axes}) for axes in [(1, 0), (2, 0)]]
CALLS = {
    "adaptive_max_pool_with_argmax": ADAPTIVE,
    "adaptive_avg_pool": ADAPTIVE,
    "fractional_max_pool": FRACTIONAL,
    "fractional_avg_pool": FRACTIONAL,
    "global_max_pool": GLOBAL,
    "global_avg_pool": GLOBAL,
    "cummax": SCANS,
    "cummin": SCANS,
    "cummax_with_argmax": RESETS,
    "max_pool": LONG + LONG_SQUARE + CHANNELS_FIRST,
    "min_pool": LONG + LONG_SQUARE + CHANNELS_FIRST,
    "avg_pool": LONG,
    "sum_pool": LONG,
    "blur_pool": BLURS,
    "dilate": LARGE_KERNELS,
    "erode": LARGE_KERNELS,
    "max_pool_with_argmax": INDICES,
    "spatial_pyramid_pool": PYRAMIDS,
}
MODES_BY_VALUES = {"ties": "vjp", "special": "jvp", "lowest": "vjp", "normal": "jvp"}
# Shapes that broadcast together, and numbers of operands around 8, 16 and 32 tie bits
OPERANDS = [
    *[((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((0, 3), (1, 3))],
    *[((2, 3), (1, 3), (2, 1)), ((5,), (), (1,), (5,)), ((), ())],
    *[((3,),) * count for count in (8, 9, 17, 33)],
]


@pytest.mark.parametrize(
    ("name", "shape", "arguments"),
    [
        pytest.param(name, *call, id=f"{name}-{at}", marks=LATER if at % 2 else ())
        for name, calls in CALLS.items()
        for at, call in enumerate(calls)
    ],
)
def test_chosen_calls(name, shape, arguments):
    """Every rule of ties, for every kind of values."""
    pool, rng = POOLS[name], np.random.default_rng(1)
    for rule in [{"ties": ties} for ties in pool.ties] or [{}]:
        for values in pool.covers if pool.adds else ("ties", "special", "lowest"):
            x = draw_values(rng, shape, np.float32, values)
            check(name, x, MODES_BY_VALUES[values], **arguments, **rule)
        check_nonfinite_cotangents(
            name, draw_values(rng, shape, np.float32, "ties"), arguments | rule
        )


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
                check(name, xs[0], mode, xs=xs, x=xs[0], y=xs[1], ties=ties)


def dtype_cases():
    """Every function runs with one dtype always, with another later, and with the others in the slow tests."""
    count = len(DTYPES)
    for row, (name, pool) in enumerate(POOLS.items()):
        for column, dtype in enumerate(DTYPES):
            if dtype == np.bool_ and (pool.keeps_integers or pool.takes("kernel")):
                continue  # sums of bools raise
            if np.dtype(dtype).name.startswith("float8") and (
                pool.rounds_weights or pool.tolerance
            ):
                continue  # errors of sums in 8 bits are larger than the oracle allows
            turn = (row - column) % count
            marks = () if turn == 0 else LATER if turn == count // 2 else pytest.mark.slow
            yield pytest.param(name, dtype, id=f"{name}-{np.dtype(dtype)}", marks=marks)


@pytest.mark.parametrize(("name", "dtype"), list(dtype_cases()))
def test_dtypes(name, dtype):
    pool = POOLS[name]
    wide = np.dtype(dtype).itemsize == 8
    with jax.enable_x64(wide):
        for values in pool.covers:
            if values != "normal":
                x = draw_values(np.random.default_rng(0), (2, 4, 6, 4), dtype, values)
                check(name, x)


@pytest.mark.parametrize("axis", [0, 3])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, pool in POOLS.items()
        if not (pool.takes("boxes") or pool.takes("segment_ids") or pool.takes("initial"))
        and name not in ("spatial_pyramid_pool", "maxout")
    ],
)
def test_empty_batch_or_channels(name, axis):
    """The result has the shape of other results but for the axis of size 0, and the cotangent the shape of x."""
    shapes = []
    for size in (14, 0):
        x = np.ones([size if each == axis else 4 for each in range(4)], np.float32)
        call = Call(POOLS[name], POOLS[name].given(x))

        def value(*operands, call=call):
            return jax.tree.leaves(call.pool.run(call.of(operands)))[0]

        if POOLS[name].marks:
            y = value(*call.operands())
        else:
            y, back = jax.vjp(value, *map(jnp.asarray, call.operands()))
            assert back(y)[0].shape == np.shape(call.operands()[0])
        shapes.append(y.shape)
    assert shapes[1] == tuple(0 if size == 14 else size for size in shapes[0])
