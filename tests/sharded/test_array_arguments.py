"""Array arguments next to x, such as masks, kernels, boxes and keys, that are not sharded as x is.

Their values may differ between devices (`jax.shard_map`) while those of x do not. Their types may have another
sharding. Their sizes may be those of axes of x.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool._api.sharded import OPERAND_NAMES
from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool.compat import torch
from tests.sharded.cases import (
    POOLS,
    assert_close,
    axis_types,
    is_array,
    mesh_of,
    numbers,
    requires_eight_devices,
    with_gradient,
)
from tests.support.junk import Wrapper
from tests.support.later import later

SHAPE = (2, 4, 4, 2)
PER_CHANNEL = np.array([0.5, 2], np.float32)
MASK = np.arange(64).reshape(SHAPE) % 3 > 0
ARRAYS_OF_X = ("x", "y", "xs", "features")
# Programs of these functions also run in the quick selection of tests.
QUICK = ("cummax_with_argmax", "dilate", "max_unpool", "stochastic_pool")


@functools.cache
def calls_of(name):
    """Return calls of a function, with all of its array arguments, as pairs of arrays and other arguments."""
    pool = POOLS[name]
    x = numbers(SHAPE) if not pool.adds else np.abs(numbers(SHAPE)) + 1
    mask = MASK.reshape(-1, *SHAPE[2:]) if pool.takes("segment_ids") else MASK
    given = pool.given(x, where=mask, reset=MASK, padding="SAME")
    if pool.takes("initial"):
        given |= {"initial": jnp.float32(-1), "axis": (1, 2)}
    calls = [given]
    for coefficient in pool.coefficients:
        per_output = np.broadcast_to(PER_CHANNEL, SHAPE)
        calls = [given | {coefficient: each} for each in (PER_CHANNEL, per_output)]
    if pool.takes("kernel"):
        calls.append(given | {"kernel": np.arange(8, dtype=np.float32).reshape(2, 2, 2)})
    if pool.takes("boxes"):
        del given["batch_indices"]
        boxes = given["boxes"][:2]
        calls = [given | {"boxes": boxes, "batch_indices": np.arange(2, dtype=np.int32)}]
        calls.append(given | {"boxes": np.stack([boxes, boxes + 0.5])})
    if pool.takes("key"):
        calls.append(given | {"key": jax.random.PRNGKey(0)})
    if name == "roi_align":
        calls.append(calls[-1] | {"kind": "max"})
    return [split_arrays(call) for call in calls]


def split_arrays(given):
    """Split the arguments of a call into arrays and others."""
    arrays = {k: v for k, v in given.items() if is_array(v) or isinstance(v, jax.Array)}
    others = {k: v for k, v in given.items() if k not in arrays}
    return jax.tree.map(jnp.asarray, arrays), others


def run_of(name, others, function=None):
    """Return a call of a function with its gradient, as a function of its arrays."""
    return with_gradient(lambda arrays: POOLS[name].run(others | arrays, function))


def has_other_arrays(name):
    return any(set(arrays) - set(ARRAYS_OF_X) for arrays, _ in calls_of(name))


NAMES = [name for name in POOLS if has_other_arrays(name) or POOLS[name].takes("y")]
IN_QUICK = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


def test_all_arrays_are_in_a_call():
    """A new argument of a function must be in `calls_of`, and in `OPERAND_NAMES` if it has the axes of x."""
    names = {key for name in NAMES for arrays, _ in calls_of(name) for key in arrays}
    assert names - set(OPERAND_NAMES) == {
        *("key", "kernel", "boxes", "batch_indices", "segment_ids", "initial")
    }


# Values that differ between the devices of a `shard_map`


def variants_of(value):
    """Return two values of an argument, stacked along a new axis."""
    if value.ndim:
        return jnp.stack([value, value[::-1]])
    return (
        jax.random.split(value) if value.dtype == jax.random.key(0).dtype else value + np.arange(2)
    )


def combinations(arrays):
    """List which leaves of the arrays vary: one, or all but one."""
    count = len(jax.tree.leaves(arrays))
    one = [tuple(i == each for i in range(count)) for each in range(count)]
    return {*one, *(tuple(not flag for flag in flags) for flags in one)} - {(False,) * count}


def varying(run, tree, flags):
    """Return `run` for a `shard_map`: leaves with a flag, and all results, have one more axis, which is sharded."""

    def run_on_device(leaves):
        leaves = [x[0] if flag else x for x, flag in zip(leaves, flags, strict=True)]
        return jax.tree.map(stack, run(jax.tree.unflatten(tree, leaves)))

    def stack(y):
        is_varying = varying_mesh_axes(jax.typeof(y))
        return (y if is_varying else lax.pcast(y, ("a",), to="varying"))[None]

    return run_on_device


def varying_calls(name):
    """Yield each call of a function, and which of its arrays vary, with the function for a `shard_map`."""
    for arrays, others in calls_of(name):
        leaves, tree = jax.tree.flatten(arrays)
        for flags in sorted(combinations(arrays)):
            run = run_of(name, others)
            args = [variants_of(x) if f else x for x, f in zip(leaves, flags, strict=True)]
            specs = [P("a") if flag else P() for flag in flags]
            yield run, tree, flags, args, specs


@pytest.mark.parametrize("other_axes", [None, "auto", later("explicit")])
@pytest.mark.parametrize("name", NAMES)
def test_trace_with_varying_argument(name, other_axes):
    """In a `shard_map` over all axes of the mesh, or over one of two axes."""
    mesh = AbstractMesh((2,), ("a",), axis_types=axis_types(1, "manual"))
    if other_axes:
        mesh = AbstractMesh((2, 2), ("a", "b"), axis_types=axis_types(2, other_axes))
    for run, tree, flags, args, specs in varying_calls(name):
        body = varying(run, tree, flags)
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
        by_a = {"in_specs": (specs,), "out_specs": P("a"), "axis_names": {"a"}}
        jax.eval_shape(jax.shard_map(body, mesh=mesh, **by_a), types)


@requires_eight_devices
@pytest.mark.parametrize("name", IN_QUICK)
def test_varying_argument(name):
    """The gradient of an array that does not vary is the sum over the devices."""
    mesh = mesh_of((2,), "manual")
    for run, tree, flags, args, specs in varying_calls(name):
        body = varying(run, tree, flags)
        mapped = jax.shard_map(body, mesh=mesh, in_specs=(specs,), out_specs=P("a"))
        one_device = [
            run(
                jax.tree.unflatten(
                    tree, [x[n] if f else x for x, f in zip(args, flags, strict=True)]
                )
            )
            for n in range(2)
        ]
        *want, cotangents = jax.tree.map(lambda *ys: np.stack(ys), *one_device)
        of_float = [
            f for x, f in zip(args, flags, strict=True) if jnp.issubdtype(x.dtype, np.floating)
        ]
        summed = [
            dx if flag else np.broadcast_to(dx.sum(0), dx.shape)
            for dx, flag in zip(cotangents, of_float, strict=True)
        ]
        assert_close(jax.jit(mapped)(args), (*want, summed), 1e-5, f"{tree} {flags}")


# Types with different shardings


def sharded_calls(name, x_axis):
    """Yield each call of a function, with x sharded along `x_axis` and another array along each of its axes."""
    for arrays, others in calls_of(name):
        keys = [path[0].key for path, _ in jax.tree_util.tree_leaves_with_path(arrays)]
        x_index = next(n for n, key in enumerate(keys) if key in ARRAYS_OF_X)
        leaves, tree = jax.tree.flatten(arrays)
        specs = [P()] * len(leaves)
        specs[x_index] = P() if x_axis is None else spec_of(x_axis % leaves[x_index].ndim)
        for n, x in enumerate(leaves):
            for axis, size in enumerate(x.shape if n != x_index else ()):
                if size % 2 == 0:
                    new_specs = [*specs[:n], spec_of(axis), *specs[n + 1 :]]
                    yield run_of(name, others), arrays, jax.tree.unflatten(tree, new_specs)


def spec_of(axis):
    return P(*[None] * axis, "a")


@pytest.mark.parametrize("x_axis", [None, later(0), later(-1)])
@pytest.mark.parametrize("name", NAMES)
def test_trace_with_sharded_argument(name, x_axis):
    mesh = AbstractMesh((2,), ("a",), axis_types=axis_types(1, "explicit"))

    def type_of(x, spec):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    for run, arrays, specs in sharded_calls(name, x_axis):
        with jax.sharding.use_abstract_mesh(mesh):
            jax.eval_shape(run, jax.tree.map(type_of, arrays, specs))


@requires_eight_devices
@pytest.mark.parametrize("x_axis", [None, pytest.param(-1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", IN_QUICK)
def test_sharded_argument(name, x_axis):
    mesh = mesh_of((2,), "explicit")
    runs, given, specs = zip(*sharded_calls(name, x_axis), strict=True)
    with jax.set_mesh(mesh):
        placed = [jax.device_put(*each) for each in zip(given, specs, strict=True)]
        got = jax.jit(lambda args: [run(x) for run, x in zip(runs, args, strict=True)])(placed)
    for each, run, arrays, spec in zip(got, runs, given, specs, strict=True):
        assert_close(each, jax.jit(run)(arrays), 1e-5, str(spec))


@requires_eight_devices
@pytest.mark.parametrize("name", IN_QUICK)
def test_eager_calls_with_arrays_of_one_device(name):
    """x is sharded over an explicit mesh, the other arrays are on one device. `jax.numpy` accepts both."""
    mesh = mesh_of((2,), "explicit")
    for arrays, others in calls_of(name):
        key = next(key for key in arrays if key in ARRAYS_OF_X)
        rows = NamedSharding(mesh, P("a"))
        x = jax.tree.map(lambda x, rows=rows: jax.device_put(x, rows), arrays[key])
        got = POOLS[name].run(others | arrays | {key: x})
        assert_close(got, POOLS[name].run(others | arrays), 1e-6, str(list(arrays)))


@requires_eight_devices
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_cotangents_of_broadcast_operand_without_zero(name):
    """Cotangents of float8_e8m0fnu, in which 0 is NaN, are added in float32."""
    function = POOLS[name].function
    x, y = np.float32([[1, 4, 1, 8], [2, 2, 4, 1]]), np.float32([[2], [1]])

    def gradient(x, y):
        x, y = (jnp.asarray(each, jnp.float8_e8m0fnu) for each in (x, y))
        return jax.jit(jax.grad(lambda y: function(x, y).astype(np.float32).sum()))(y)

    mesh = mesh_of((2,), "explicit")
    with jax.set_mesh(mesh):
        got = gradient(*[jax.device_put(each, NamedSharding(mesh, P("a"))) for each in (x, y)])
    want = gradient(x, y).astype(np.float32)
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(got.astype(np.float32), want)


@requires_eight_devices
@pytest.mark.parametrize("name", ["gem_pool", "logsumexp_pool"])
def test_cotangents_of_coefficient_without_zero(name):
    """As above: only one shard contributes to the cotangent of the coefficient."""
    second = 2.0 if name == "gem_pool" else [1024, 1, 1, 1]
    x = jnp.asarray(np.stack(np.broadcast_arrays([1.0, 2, 4, 8], second)), jnp.float8_e8m0fnu)[
        ..., None
    ]
    (coefficient,) = POOLS[name].coefficients

    def gradient(x):
        def total(p):
            settings = {"window_shape": (4,), coefficient: p}
            return POOLS[name].function(x, **settings).astype(np.float32).sum()

        return jax.jit(jax.grad(total))(jnp.asarray(2, x.dtype)).astype(np.float32)

    mesh = mesh_of((2,), "explicit")
    with jax.set_mesh(mesh):
        got = gradient(jax.device_put(x, NamedSharding(mesh, P("a"))))
    assert np.isfinite(gradient(x))
    assert got == gradient(x)


# Sizes that coincide with those of x, in `jaxpool.sharded`

IMAGES = numbers((2, 4, 4, 2)) + 3
ROWS = IMAGES.reshape(4, 4, 4)
KERNEL = np.arange(8, dtype=np.float32).reshape(4, 2)
BOXES = np.array([[0, 0, 3, 2], [1, 0, 4, 4], [0, 1, 2, 3], [1, 1, 2, 2]], np.float32)
INDICES = np.array([0, 1, 1, 0], np.int32)
KEY = jax.random.PRNGKey(0)
# Arrays whose shape is that of the last axes of x, although these axes do not correspond.
CALLS = {
    "key": [{"key": KEY}],
    "kernel": [{"kernel": KERNEL}, {"kernel": np.tile(KERNEL, (4, 1, 1))}],
    "boxes": [
        {"x": ROWS, "boxes": BOXES},
        {"x": IMAGES.reshape(1, 4, 4, 4), "boxes": BOXES, "batch_indices": INDICES * 0},
        {"x": np.stack([ROWS] * 4), "boxes": np.stack([BOXES] * 4)},
    ],
    "features": [{"features": (np.stack([ROWS] * 4),), "boxes": np.stack([BOXES] * 4)}],
    "segment_ids": [{"x": ROWS, "segment_ids": INDICES}],
}
COINCIDING = {
    name: calls
    for name, pool in POOLS.items()
    for key, calls in CALLS.items()
    if pool.takes(key) and (key != "boxes" or not pool.takes("features"))
}
COMPOSITIONS = {
    "lambda": (lambda x, kernel: jaxpool.dilate(x, kernel, padding="SAME"), [IMAGES, KERNEL]),
    "key": (lambda key, x: jaxpool.stochastic_pool(key, x, (2, 2)), [KEY, IMAGES]),
    "key after x": (lambda x, seed: jaxpool.stochastic_pool(seed, x, (2, 2)), [IMAGES, KEY]),
    "product": (
        lambda x, w: jaxpool.max_pool(x @ w, (2, 2)),
        [IMAGES, np.ones((2, 2), np.float32)],
    ),
    "parameters": (lambda x, tree: jaxpool.erode(x, **tree), [IMAGES, {"kernel": KERNEL}]),
    "parameters named p": (
        lambda x, p: jaxpool.max_pool(x @ p["w"].T, (2, 2)),
        [IMAGES, {"w": np.ones((2, 2), np.float32)}],
    ),
    "keywords": (lambda x, **more: jaxpool.min(x, **more, initial=9, axis=1), [IMAGES]),
    "partial": (functools.partial(jaxpool.dilate, kernel=jnp.asarray(KERNEL)), [IMAGES]),
    "mask": (lambda x, where: jaxpool.avg_pool(x, (2, 2), where=where), [IMAGES, MASK]),
}


def test_coinciding_sizes_cover_every_array_argument():
    names = {name for name in NAMES for arrays, _ in calls_of(name) if other_names(arrays)}
    assert names == set(COINCIDING)


def other_names(arrays):
    return set(arrays) - set(OPERAND_NAMES) - {"initial"}  # a scalar


def assert_same_in_sharded(function, call, args, ndim):
    """Compare `call(function, args)` with the same call of `jaxpool.sharded(function)`, with each axis of x sharded."""
    mesh, args = mesh_of((2,), "auto"), jax.tree.map(jnp.asarray, args)
    want = jax.jit(with_gradient(functools.partial(call, function)))(args)
    compared = 0
    for axis in range(ndim):
        function_on_shards = jaxpool.sharded(function, mesh=mesh, spec=spec_of(axis))
        run = with_gradient(functools.partial(call, function_on_shards))
        try:
            got = jax.jit(run)(args)
        except ValueError as error:
            if not str(error).startswith("jaxpool."):
                raise
            continue  # this axis must not be sharded
        assert_close(got, want, 1e-5, f"axis {axis}")
        compared += 1
    assert compared


@requires_eight_devices
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if "roi" in name or "segment" in name else name
        for name in COINCIDING
    ],
)
def test_coinciding_sizes(name):
    pool = POOLS[name]
    for settings in COINCIDING[name]:
        given = pool.given(IMAGES, padding="SAME")
        if "batch_indices" not in settings:
            given.pop("batch_indices", None)
        arrays, others = split_arrays(given | settings)

        def call(function, arrays, others=others):
            return pool.run(others | arrays, function)

        x = jax.tree.leaves([arrays[key] for key in ARRAYS_OF_X if key in arrays])[0]
        assert_same_in_sharded(pool.function, call, arrays, x.ndim)


@pytest.mark.parametrize("name", POOLS)
def test_objects_with_jax_array(name):
    """`sharded` traces objects such as parameters of Flax NNX to the program of the arrays that they hold."""
    mesh = AbstractMesh((2,), ("a",), axis_types=axis_types(1, "auto"))
    for arrays, others in calls_of(name):
        leaves, tree = jax.tree.flatten(arrays)
        x = next(jax.tree.leaves(arrays[key])[0] for key in arrays if key in ARRAYS_OF_X)
        function = jaxpool.sharded(POOLS[name].function, mesh=mesh, spec=spec_of(x.ndim - 1))

        def run(leaves, convert, others=others, tree=tree, function=function):
            arrays = jax.tree.unflatten(tree, map(convert, leaves))
            return POOLS[name].run(others | arrays, function)

        programs = [
            str(jax.make_jaxpr(functools.partial(run, convert=c))(leaves))
            for c in (lambda y: y, Wrapper)
        ]
        assert programs[0] == programs[1]


@requires_eight_devices
def test_object_with_jax_array_is_the_array_with_the_most_axes():
    """Also if the object itself has no `shape`."""
    maximum = jaxpool.sharded(jaxpool.maximum, mesh=mesh_of((2,), "auto"), spec=spec_of(1))
    x, y = jnp.asarray(IMAGES), jnp.arange(2.0)
    for xs in ((Wrapper(x), y), (y, Wrapper(x)), (Wrapper(y), Wrapper(x)), (Wrapper(x), x[:, :1])):
        assert maximum(*xs).sharding.spec == P(None, "a")
        np.testing.assert_array_equal(maximum(*xs), jaxpool.maximum(*xs))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Parameter:
    """A pytree with `__jax_array__`, as parameters of Flax NNX are."""

    value: jax.Array

    def __jax_array__(self):
        return self.value


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Log(Parameter):
    """A pytree that computes its array, as modules of Equinox do."""

    def __jax_array__(self):
        return jnp.exp(self.value)


@requires_eight_devices
def test_compositions_get_modules_and_parameters():
    def pool(x, power, module):
        x = x.value if type(x) is Parameter else x
        return jaxpool.maximum(jaxpool.gem_pool(x, power.value, (2, 2)), module.value)

    def loss(x, p, pool=pool):
        return (pool(Parameter(x), Parameter(p), Log(p)) + pool(Log(x), Parameter(p), Log(p))).sum()

    args = jnp.asarray(IMAGES), jnp.array([2.0, 3.0])
    sharded_pool = jaxpool.sharded(pool, mesh=mesh_of((2,), "auto"), spec=spec_of(3))
    got = jax.jit(jax.value_and_grad(lambda x, p: loss(x, p, sharded_pool), (0, 1)))(*args)
    assert_close(got, jax.value_and_grad(loss, (0, 1))(*args), 1e-5, "composition")


@requires_eight_devices
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_coinciding_sizes_in_composition(name):
    composition, args = COMPOSITIONS[name]
    keywords = {"where": MASK} if name == "keywords" else {}

    def call(function, args):
        return function(*args, **keywords)

    assert_same_in_sharded(composition, call, args, IMAGES.ndim)


@requires_eight_devices
@pytest.mark.parametrize(
    "function", [jaxpool.maximum, jaxpool.minimum, jaxpool.fmax, jaxpool.fmin, torch.maximum]
)
@pytest.mark.parametrize("axis", range(4))
def test_operand_that_broadcasts_comes_first(function, axis):
    xs = [jnp.asarray(IMAGES[:1, :, :1]), jnp.asarray(IMAGES)]
    y = jaxpool.sharded(function, mesh=mesh_of((2,), "auto"), spec=spec_of(axis))(*xs)
    assert y.sharding.spec[axis] == "a"
    np.testing.assert_array_equal(y, function(*xs))


@requires_eight_devices
@pytest.mark.parametrize("name", ["kernel", "where"])
def test_the_same_array_twice(name):
    """The name of an argument decides whether it is sharded like x."""
    specs = []

    def pool(x, **more):
        specs.append(jax.typeof(more[name]).sharding.spec)
        return jaxpool.max_pool(x, (2,), padding="SAME", axes=(0,))

    pool_on_shards = jaxpool.sharded(pool, mesh=mesh_of((2,), "auto"), spec=P("a"))
    jax.jit(lambda x: pool_on_shards(x, **{name: x}))(IMAGES[0] > 3)
    assert specs == [P("a" if name == "where" else None, None, None)]


@requires_eight_devices
def test_other_arrays_keep_their_sharding():
    """A mask that is sharded like x stays so, whatever a composition calls it."""
    rows = NamedSharding(jax.make_mesh((8,), ("rows",), (AxisType.Auto,)), P(None, "rows"))
    x = jax.device_put(jnp.ones((2, 16, 8, 3)), rows)
    specs = []

    def pool(x, mask):
        specs.append(jax.typeof(mask).sharding.spec)
        return jaxpool.max_pool(x, (2, 2), (2, 2), where=mask)

    y = jaxpool.sharded(pool)(x, x > 0)
    assert specs == [P(None, "rows", None, None)]
    assert y.sharding.spec == P(None, "rows")
