"""Every public function of an array returns for sharded arrays what it returns on one device.

Only for axes that must not be sharded, it raises an error of jaxpool.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import (
    KINDS,
    POOLS,
    assert_close,
    axis_types,
    call_of,
    collectives,
    compiled_on_mesh,
    mesh_of,
    numbers,
    requires_eight_devices,
    shard_counts,
    special_numbers,
    types_of,
    with_gradient,
)
from tests.support.later import later

pytestmark = pytest.mark.usefixtures("strict")

SHAPE = (4, 16, 16, 4)
MASK = np.broadcast_to(np.arange(16)[:, None, None] % 7 < 2, SHAPE)


def window(shape, strides=(1, 1), padding="SAME", **more):
    kernel = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 3
    return {"window_shape": shape, "strides": strides, "padding": padding, "kernel": kernel, **more}


# Settings of windowed functions, which ignore those that they do not take. Over 8 devices, a shard has 2 rows: windows
# of 7 rows reach two shards away, and windows of 21 rows reach all.
WINDOWS = [
    window((3, 3), (2, 2), p=2, where=MASK, count_include_pad=False),
    window((3, 3), ties="split", key=None),
    window((5, 3), (2, 1), ties="last", rank=1, p=1, divisor=2.5),
]
MORE_WINDOWS = [
    window((7, 5), (2, 1), ((2, 4), (2, 2)), rank=-2, p=3.5),
    window((3, 3), (2, 2), "SAME_LOWER", p=np.inf),
    window((3, 1), rank=0, window_dilation=(3, 1), ties="split"),
    window((2, 3), axes=(2, 1), rank=1, ties="last"),
    window((2, 2), (2, 2), "VALID", ties="split"),
]
LARGE_WINDOWS = [
    window((9, 9), (2, 2), ties="last", count_include_pad=False),
    window((3, 3), padding=((2, 0), (0, 2))),
    window((3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    window((21, 3)),
    window((21, 21), ties="split"),
]
OUTPUTS = [
    {"output_shape": (8, 6)},
    {"output_shape": (8, 4), "ties": "last"},
    {"output_shape": (6, 8), "axes": (2, 1), "ties": "split"},
]
GLOBAL = [
    {"ties": "last", "where": MASK},
    {"ties": "split", "keepdims": True},
    {"ties": "first", "axes": (2, 1)},
]
REDUCTIONS = [
    {"axis": None, "ties": "first"},
    {"axis": 0, "where": MASK, "initial": -1.0},
    {"axis": (1, 3), "ties": "split"},
    {"axis": (2, 1, 0), "ties": "last"},
]
OTHERS = {"levels": (1, 4), "groups": 4, "output_shape": (4, 2)}  # four devices divide these
PER_CHANNEL = np.array([0.5, 2, 1, 3], np.float32)
HAS_HALO = [  # functions that pool rows and columns of images
    name
    for name, pool in POOLS.items()
    if pool.takes("padding")
    or pool.takes("spatial_shape")
    or (pool.topic == "adaptive" and not pool.takes("levels"))
]


def settings_of(name):
    """Return the settings of the calls of a function. Windows cross the borders of shards."""
    pool = POOLS[name]
    if name in ("max_pool", "avg_pool"):
        return [*WINDOWS, *MORE_WINDOWS, *LARGE_WINDOWS]
    if name in ("min_pool", "max_pool_with_argmax", "rank_pool", "erode", "sum_pool", "lp_pool"):
        return [*WINDOWS, *MORE_WINDOWS]
    if pool.takes("padding"):
        return [*WINDOWS, *(WINDOWS[1] | {each: PER_CHANNEL} for each in pool.coefficients)]
    if pool.takes("spatial_shape"):
        return [unpooling((2, 2), (2, 2)), unpooling((3, 3), (2, 2)), unpooling((3, 3), (1, 1))]
    if pool.takes("output_shape") and name in HAS_HALO:
        return OUTPUTS if "argmax" in name else [*OUTPUTS, {"output_shape": (1, 1)}]
    if pool.takes("reset"):
        return [{"axis": -1}, {"axis": 1, "reset": MASK, "reverse": True, "ties": "last"}]
    if pool.takes("axis", "where"):
        return REDUCTIONS
    return GLOBAL if name.startswith("global") else [OTHERS]


def unpooling(window_shape, strides):
    """Return the settings that undo a max pool."""
    y, indices = jaxpool.max_pool_with_argmax(special_numbers(SHAPE), window_shape, strides, "SAME")
    return {"y": np.asarray(y), "indices": np.asarray(indices), "spatial_shape": SHAPE[1:3]}


@functools.cache
def calls_of(name):
    """Return calls of a function. If it selects elements, images have NaN, and windows of -inf alone."""
    pool = POOLS[name]
    draw = numbers if pool.adds else special_numbers
    shape = SHAPE[1:] if pool.takes("boxes") else SHAPE
    return [call_of(name, draw(shape, seed), **s) for seed, s in enumerate(settings_of(name))]


def must_raise(call, counts, kind):
    """Return True if the function must raise for arrays with these numbers of shards by axis."""
    return any(_must_raise(call, axis % call.x.ndim, counts[axis], kind) for axis in counts)


def _must_raise(call, axis, count, kind):
    takes, given = POOLS[call.name].takes, call.given
    if count == 1:
        return False
    if takes("window_shape", "output_shape"):  # windows at random positions
        return axis in (1, 2)
    if takes("boxes"):
        return kind == "manual" and axis < 2
    if takes("output_shape"):
        sizes = dict(zip(given.get("axes", (1, 2)), given["output_shape"], strict=True))
        return given["output_shape"] != (1, 1) and sizes.get(axis, count) % count > 0
    if takes("segment_ids"):
        return kind == "manual" and axis == 0
    raises = takes("k") or (takes("reverse") and kind == "manual")
    return raises and axis == given.get("axis", -1) % call.x.ndim


def result_or_none(run):
    """Return the result of `run`, or None if it raises an error of jaxpool."""
    try:
        return run()
    except (TypeError, ValueError) as error:
        if not str(error).startswith("jaxpool."):
            raise
        return None


@pytest.mark.parametrize(
    ("count", "axis", "kind"),
    [
        *((4, -1, "explicit"), (4, 1, "auto"), (4, 1, "manual")),
        *(later(1, 1, "explicit"), later(1, -1, "auto")),
    ],
)
@pytest.mark.parametrize("name", POOLS)
def test_trace(name, count, axis, kind):
    call = calls_of(name)[0]
    spec = P(*[None] * (axis % call.x.ndim), "a")
    mesh = AbstractMesh((count,), ("a",), axis_types=axis_types(1, kind))
    like = types_of(call.arrays, NamedSharding(mesh, spec) if kind == "explicit" else None)

    def traced():
        run = with_gradient(call.on_mesh(mesh, spec, kind))
        return jax.make_jaxpr(run, return_shape=True)(like)

    with jax.sharding.use_abstract_mesh(mesh):
        found = result_or_none(traced)
        assert (found is None) == must_raise(call, {axis: count}, kind)
        if found is None:
            return
        program, shapes = found
        want = jax.eval_shape(with_gradient(call.run), types_of(call.arrays))
    assert [y.shape for y in jax.tree.leaves(shapes)] == [y.shape for y in jax.tree.leaves(want)]
    assert POOLS[name].takes("levels") or "all_gather" not in str(program)


# Results on several devices

LAYOUTS = {  # mesh shape, and spec of an array
    "batch": ((4,), P("a")),
    "rows": ((4,), P(None, "a")),
    "columns": ((4,), P(None, None, "a")),
    "channels": ((4,), P(None, None, None, "a")),
    "batch and rows": ((2, 2), P("a", "b")),
}
IMAGE_LAYOUTS = {
    "rows over 8": ((8,), P(None, "a")),
    "rows over 4 x 2": ((4, 2), P(None, ("a", "b"))),
    "rows over 4, columns over 2": ((4, 2), P(None, "a", "b")),
    "batch, rows and columns": ((2, 2, 2), P("a", "b", "c")),
    "batch and channels": ((4, 2), P("a", None, None, "b")),
}
MIXED_LAYOUTS = {"batch, mixed": ((2, 2), P("a")), "rows, mixed": ((2, 2), P(None, "a"))}
ALL_LAYOUTS = LAYOUTS | IMAGE_LAYOUTS | MIXED_LAYOUTS
CASES = [
    *itertools.product(POOLS, LAYOUTS, KINDS),
    *itertools.product(POOLS, MIXED_LAYOUTS, ["mixed"]),
    *itertools.product(HAS_HALO, IMAGE_LAYOUTS, KINDS),
    *itertools.product(
        ["max_pool", "min_pool", "avg_pool", "max_unpool"], ["rows over 8"], ["plain"]
    ),
]
QUICK = [
    ("max_pool", "rows over 8", "explicit"),
    ("min_pool", "rows over 8", "plain"),
    ("avg_pool", "rows over 4, columns over 2", "auto"),
    ("adaptive_max_pool", "rows over 4, columns over 2", "explicit"),
    ("adaptive_avg_pool", "rows over 4 x 2", "auto"),
    ("global_max_pool", "rows over 8", "explicit"),
    ("global_avg_pool", "rows over 4 x 2", "auto"),
    ("max_unpool", "rows over 8", "explicit"),
    ("adaptive_max_pool", "batch and channels", "manual"),
    ("logsumexp_pool", "batch and channels", "explicit"),
    ("stochastic_pool", "rows", "manual"),
    ("dilate", "columns", "auto"),
    ("spatial_pyramid_pool", "rows", "manual"),
    ("segment_max", "batch and rows", "explicit"),
    ("maximum", "rows, mixed", "mixed"),
    ("k_max_pool", "batch, mixed", "mixed"),
    ("cummax", "batch, mixed", "mixed"),
    ("max", "batch and rows", "explicit"),
]


@functools.cache
def one_device_results(name):
    calls = calls_of(name)
    program = jax.jit(lambda xs: [with_gradient(c.run)(x) for c, x in zip(calls, xs, strict=True)])
    return program([call.arrays for call in calls])


def has_axes(name, layout):
    return len(ALL_LAYOUTS[layout][1]) <= calls_of(name)[0].x.ndim


@requires_eight_devices
@pytest.mark.parametrize(
    ("name", "layout", "kind"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
        if has_axes(*case[:2])
    ],
)
def test_value_cotangents_and_collectives(name, layout, kind):
    shape, spec = ALL_LAYOUTS[layout]
    mesh = mesh_of(shape, kind)
    counts = shard_counts(mesh, spec)
    calls, wanted = calls_of(name), one_device_results(name)
    if kind == "manual" and 3 in counts and POOLS[name].coefficients:
        # A shard would need the coefficients of its channels.
        calls, wanted = calls[:-1], wanted[:-1]
    found = result_or_none(lambda: compiled_on_mesh(calls, mesh, spec, kind))
    assert (found is None) == any(must_raise(call, counts, kind) for call in calls)
    if found is None:
        return
    program, xs = found
    for call, got, want in zip(calls, program(xs), wanted, strict=True):
        assert_close(got, want, 0.0 if call.exact else 2e-5, str(call))
        if name in HAS_HALO and kind != "plain":  # otherwise XLA chooses the sharding
            same = NamedSharding(mesh, spec).is_equivalent_to
            assert all(same(dx.sharding, dx.ndim) for dx in got[2]), str(call)
    if kind != "plain":
        check_collectives(name, {name for name, _ in collectives(program)}, counts)


def check_collectives(name, sent, counts):
    pool = POOLS[name]
    if pool.takes("boxes") or pool.takes("segment_ids"):  # XLA decides how these are sharded
        return
    if name in HAS_HALO and not {1, 2} & counts.keys():
        assert sent == set()
    elif pool.takes("padding"):
        assert sent == {"collective-permute"}
    else:  # cells and channels of a pyramid become one axis, which takes an all-gather
        gathered = {"all-gather"} if pool.takes("levels") else set()
        assert sent <= {"collective-permute", "all-reduce"} | gathered


OFTEN_WITHOUT_ZERO = {
    *((name, "rows") for name in ("min", "avg_pool", "dilate", "erode", "max_pool")),
    *(("segment_logsumexp", "batch"), ("segment_softmax", "batch"), ("segment_sum", "batch")),
    ("maxout", "channels"),
}


@requires_eight_devices
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        case if case in OFTEN_WITHOUT_ZERO else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(POOLS, ("batch", "rows", "columns", "channels"))
    ],
)
def test_values_and_gradients_of_a_dtype_without_zero_and_sign(name, layout):
    """float8_e8m0fnu, powers of two and NaN: padding of 0, masks, halos and negation have no value in it.

    Values are those of one device, also by `jaxpool.sharded`. Gradients are those of float32, rounded once, where
    these are positive and large.
    """
    shape, spec = LAYOUTS[layout]
    mesh, pool = mesh_of(shape, "explicit"), POOLS[name]
    counts = shard_counts(mesh, spec)
    x = np.exp2(numbers((4, 16, 16, 4))).astype(jnp.float8_e8m0fnu)
    kernel = np.array([[1, 0.5, 1], [2, 1, 1], [1, 4, 1]]).astype(x.dtype)
    settings = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME", "kernel": kernel}
    mask = np.arange(16)[:, None] % 7 < 2
    calls = [
        call_of(name, x, **settings, **OTHERS),
        call_of(name, x, **settings, **OTHERS, axis=(1, 2), where=mask, initial=0.5)
        if pool.takes("where")
        else call_of(name, x, **settings, **OTHERS, ties="last"),
    ]
    for call in calls:
        if len(spec) > call.x.ndim or must_raise(call, counts, "explicit"):
            continue
        whole = {key: call.given[key] for key in pool.operands if key in call.given}

        def value_and_gradient(operands, call=call):
            def total(operands):
                y = pool.run(call.given | operands)
                first = jax.tree.leaves(y)[0].astype(np.float32)
                weights = np.exp2(np.arange(first.size) % 3).reshape(first.shape)
                return (first * weights.astype(first.dtype)).sum(), y

            return jax.grad(total, allow_int=True, has_aux=True)(operands)

        run = jax.jit(value_and_gradient)
        operands = call.arrays | whole
        gradient_of_one, value = run(operands)
        wide = {key: as_float32(operand) for key, operand in operands.items()}
        want, _ = run(wide)
        sharding = NamedSharding(mesh, spec)
        with jax.set_mesh(mesh):
            gradient, sharded_value = run(jax.device_put(call.arrays, sharding) | whole)
        values = [sharded_value]
        if not must_raise(call, counts, "auto"):
            auto = mesh_of(shape, "auto")
            arrays = jax.device_put(call.arrays, NamedSharding(auto, spec))
            values.append(jax.jit(call.on_mesh(auto, spec, "auto"))(arrays))
        for got in values:
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(value), strict=True):
                assert a.dtype == b.dtype
                a, b = (np.asarray(each).astype(np.float64) for each in (a, b))
                np.testing.assert_allclose(a, b, rtol=0 if call.exact else 0.6, err_msg=str(call))
        for got in (gradient_of_one, gradient):
            assert_large_numbers_match(got, want, str(call))


def as_float32(operand):
    """Return an array of float8_e8m0fnu, or several, as float32, and other arrays as they are."""
    return jax.tree.map(
        lambda x: x.astype(np.float32) if x.dtype == jnp.float8_e8m0fnu else x, operand
    )


def assert_large_numbers_match(got, want, what):
    """Assert that arrays of float8_e8m0fnu equal float32 arrays up to rounding, where these are positive and large."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if b.dtype == np.float32:
            a, b = (np.asarray(each).astype(np.float64) for each in (a, b))
            is_large = b > 1e-6 * b.max()  # smaller numbers may be rounding errors
            np.testing.assert_allclose(a[is_large], b[is_large], rtol=0.4, err_msg=what)
