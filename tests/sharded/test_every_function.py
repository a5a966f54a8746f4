"""Every public function of an array returns for sharded arrays what it returns on one device.

Only for axes that must not be sharded, it raises an error of jaxpool.
"""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpool.testing._record import TUPLE_PARAMETERS
from tests.sharded.cases import (
    KINDS,
    POOLS,
    Call,
    assert_close,
    axis_types,
    collectives,
    compiled_on_mesh,
    mesh_of,
    numbers,
    requires_eight_devices,
    with_gradient,
)

PYRAMID = "spatial_pyramid_pool"  # cells and channels become one axis, which takes an all-gather
SHAPE = (4, 8, 8, 4)
SETTINGS = {
    **{"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"},
    **{"output_shape": (4, 2), "levels": (1, 4), "groups": 4},  # four devices divide these
    "kernel": np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32),
}
ROWS = np.broadcast_to(np.arange(8)[:, None, None], SHAPE)
COLUMNS = np.broadcast_to(np.arange(8)[:, None], SHAPE)
MASKED = {  # `where` masks that are False throughout some windows at the border of shards
    **{
        name: {"where": ROWS % 7 < 2}
        for name, pool in POOLS.items()
        if name in ("logsumexp_pool", "min_pool") or (pool.topic == "rank" and pool.takes("where"))
    },
    "avg_pool": {"where": ROWS % 7 < 2, "count_include_pad": False},
    "softmax_pool": {"where": COLUMNS % 5 > 0},
}


@functools.cache
def call_of(name):
    """Return the call of a function, with windows that cross the border of shards."""
    pool = POOLS[name]
    settings = SETTINGS | MASKED.get(name, {})
    if pool.takes("window_shape", "output_shape"):  # windows at random positions
        settings["window_shape"] = (2, 2)
    given = pool.given(numbers(SHAPE[1:] if pool.takes("boxes") else SHAPE), **settings)
    several = next((name for name in TUPLE_PARAMETERS if name in given), None)
    if several is not None:
        arrays = given.pop(several)[:2]
        given = dict(enumerate(arrays)) | given
    first, *rest = [key for key, value in given.items() if isinstance(value, np.ndarray)]
    alike = given[first].shape
    others = [key for key in rest if isinstance(key, int) or given[key].shape == alike]
    exact = not (name in ("max", "min", PYRAMID) or pool.rounds(given))
    return Call(pool.function, given, exact, first, tuple(others))


def must_raise(name, axes, kind):
    """Return True if the function must raise for an array sharded along `axes`."""
    return any(_must_raise(call_of(name), POOLS[name].takes, axis, kind) for axis in axes)


def _must_raise(call, takes, axis, kind):
    given, axis = call.given, axis % call.x.ndim
    if takes("window_shape", "output_shape"):  # windows at random positions
        return axis in (1, 2)
    if takes("boxes"):
        return kind == "manual" and axis < 2
    if takes("output_shape"):  # four devices do not divide two windows
        return axis in (1, 2) and given["output_shape"][axis - 1] % 4 > 0
    if takes("segment_ids"):
        return kind == "manual" and axis == 0
    along = takes("axis") and axis == given.get("axis", -1) % call.x.ndim
    return bool(along) and (takes("k") or (takes("reverse") and kind == "manual"))


def result_or_none(run):
    """Return the result of `run`, or None if it raises an error of jaxpool."""
    try:
        return run()
    except (TypeError, ValueError) as error:
        if not str(error).startswith("jaxpool."):
            raise
        return None


def spec_of(axes, ndim):
    """Return the spec that shards the array axes `axes`."""
    names = dict(zip([axis % ndim for axis in axes], "ab", strict=False))
    return P(*[names.get(axis) for axis in range(max(names) + 1)])


@pytest.mark.parametrize(("axis", "kind"), [(-1, "explicit"), (1, "auto"), (1, "manual")])
@pytest.mark.parametrize("name", POOLS)
def test_trace(name, axis, kind):
    call = call_of(name)
    x, spec = call.x, spec_of([axis], call.x.ndim)
    mesh = AbstractMesh((4,), ("a",), axis_types=axis_types(1, kind))
    sharding = NamedSharding(mesh, spec) if kind == "explicit" else None
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def traced():
        run = with_gradient(call.on_mesh(mesh, spec, kind))
        return jax.make_jaxpr(run, return_shape=True)(like)

    with jax.sharding.use_abstract_mesh(mesh):
        found = result_or_none(traced)
        assert (found is None) == must_raise(name, [axis], kind)
        if found is None:
            return
        program, shapes = found
        want = jax.eval_shape(with_gradient(call.plain), x)
    assert [y.shape for y in jax.tree.leaves(shapes)] == [y.shape for y in jax.tree.leaves(want)]
    assert name == PYRAMID or "all_gather" not in str(program)


# Results on several devices


@functools.cache
def one_device_result(name):
    call = call_of(name)
    return jax.jit(with_gradient(call.plain))(call.x)


CASES = [
    *((name, (axis,), kind) for name in POOLS for axis in range(4) for kind in KINDS),
    *((name, axes, "mixed") for name in POOLS for axes in ((0,), (1,))),
    *((name, (0, 1), "explicit") for name in POOLS),
]
QUICK = [
    *((name, (1,), "manual") for name, pool in POOLS.items() if pool.takes("key", "padding")),
    ("dilate", (2,), "auto"),
    (PYRAMID, (1,), "manual"),
    ("segment_max", (0, 1), "explicit"),
    ("maximum", (1,), "mixed"),
    ("k_max_pool", (0,), "mixed"),
    ("cummax", (0,), "mixed"),
]


@requires_eight_devices
@pytest.mark.parametrize(
    ("name", "axes", "kind"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
        if max(case[1]) < call_of(case[0]).x.ndim
    ],
)
def test_value_cotangent_and_collectives(name, axes, kind):
    call, spec = call_of(name), spec_of(axes, call_of(name).x.ndim)
    mesh = mesh_of((4,) if len(axes) == 1 and kind in KINDS else (2, 2), kind)
    with jax.set_mesh(mesh):
        found = result_or_none(lambda: compiled_on_mesh([call], mesh, spec, kind))
    assert (found is None) == must_raise(name, axes, kind)
    if found is None:
        return
    program, xs = found
    assert_close(program(xs), [one_device_result(name)], 0.0 if call.exact else 2e-6)
    # XLA decides how a function of boxes or segments is sharded.
    if not (POOLS[name].takes("boxes") or POOLS[name].takes("segment_ids")):
        allowed = {"collective-permute", "all-reduce", *["all-gather"] * (name == PYRAMID)}
        assert {each for each, _ in collectives(program)} <= allowed
