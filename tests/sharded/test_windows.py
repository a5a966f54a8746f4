"""Sharded windowed pools equal the unsharded functions: dtypes, transformations, kernels and other operands.

`test_every_function.py` compares windows, ties and meshes.
"""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import scipy, torch, torchvision
from tests.sharded.cases import (
    POOLS,
    assert_close,
    assert_same_on_mesh,
    mesh_of,
    numbers,
    requires_eight_devices,
    special_numbers,
    weights,
    with_gradient,
)

pytestmark = [requires_eight_devices, pytest.mark.usefixtures("strict")]

ROWS = P(None, "a")
KERNEL = np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32)
KERNEL_PER_CHANNEL = np.stack([KERNEL, 2 - KERNEL], -1)


@pytest.mark.parametrize("ties", ["first", "split"])
@pytest.mark.parametrize("window_shape", [(3, 3), (21, 3)])
def test_value_without_gradient(window_shape, ties):
    def pool(x):
        return jaxpool.max_pool(x, window_shape, padding="SAME", ties=ties)

    assert_same_on_mesh(pool, [numbers()], [ROWS], (4,))


def window(shape, strides=(1, 1), padding="SAME", **more):
    return {"window_shape": shape, "strides": strides, "padding": padding, **more}


# Shards of 5 rows and strides of 4 or 6, so that the first window starts at a different row of each shard.
LATE = ((1, 0), (1, 0))
OFFSET = [
    ("max_pool", special_numbers, window((8, 4), (4, 4), "VALID")),
    ("max_pool", special_numbers, window((3, 3), (6, 6), LATE, ties="split")),
    ("avg_pool", numbers, window((3, 3), (6, 6), LATE, count_include_pad=False)),
    ("sum_pool", numbers, window((8, 4), (4, 4), "VALID")),
]


@pytest.mark.parametrize(("name", "draw", "settings"), OFFSET)
def test_windows_start_at_different_rows_of_shards(name, draw, settings):
    run = with_gradient(POOLS[name].of(**settings))
    spec = P(None, "a", "b")
    assert_same_on_mesh(run, [draw((2, 20, 10, 2))], [spec], (4, 2), tolerance=2e-5)


# The first or last window takes a single position from each tap.
ONE_POSITION = [
    ("avg_pool", (2, 16, 16, 8), window((3, 3), (3, 3))),
    ("sum_pool", (2, 4, 13, 1), window((2, 5), (4, 1))),
    ("logsumexp_pool", (1, 4, 20, 8), window((2, 6), (4, 3), "VALID")),
]


@pytest.mark.parametrize(("name", "shape", "settings"), ONE_POSITION)
def test_slices_of_one_position_under_jit_alone(name, shape, settings):
    both = with_gradient(lambda x: POOLS[name].function(x, **settings))
    assert_same_on_mesh(both, [numbers(shape)], [ROWS], (4,), 1e-5, kind="auto")


@pytest.mark.parametrize("dtype", ["bool", "float8_e4m3fn", "bfloat16", "int8", "float8_e5m2"])
def test_other_dtypes(dtype):
    x = jnp.asarray(np.arange(128.0).reshape(2, 16, 4) * 37 % 11 - 5, np.float32).astype(dtype)
    names = ["max_pool", "min_pool", "avg_pool"] + ["sum_pool"] * (dtype != "bool")

    def run(x):
        pooled = [getattr(jaxpool, name)(x, (5,), (1,), "SAME") for name in names]
        return [*pooled, jaxpool.global_max_pool(x), jaxpool.global_avg_pool(x)]

    assert_same_on_mesh(run, [x], [ROWS])


def test_global_pools_of_integers_over_unsharded_axis():
    x = (np.arange(256).reshape(8, 8, 4) * 37 % 11 - 5).astype(np.int8)
    pools = jaxpool.global_max_pool, jaxpool.global_avg_pool
    assert_same_on_mesh(lambda x: [pool(x) for pool in pools], [x], [P("a")])


def test_bfloat16_gradients_within_one_rounding():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 32, 8)), jnp.bfloat16)
    run = with_gradient(lambda x: jaxpool.avg_pool(x, (5,), (1,), "SAME"))
    assert_same_on_mesh(run, [x], [ROWS], tolerance=2**-7)


@pytest.mark.parametrize("ties", ["split", "last", "first"])
def test_global_max_pool_bfloat16(ties):
    """Value and gradient equal those of one device, including the sign of -0."""
    x = jnp.asarray(-(np.arange(32.0).reshape(1, 16, 2) // 2 % 5), jnp.bfloat16)
    run = with_gradient(lambda x: jaxpool.global_max_pool(x, ties=ties))

    def with_signs(x):
        found = run(x)
        return found, jax.tree.map(jnp.signbit, found)

    assert_same_on_mesh(with_signs, [x], [ROWS])


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_shard_map_over_batch_only(kind):
    """`jaxpool.sharded` maps the pooled axis inside the shard_map, or the type still carries its sharding there."""
    mesh, x = mesh_of((2, 4), kind), numbers()
    spec, pool = P("a", "b"), jaxpool.max_pool
    if kind == "auto":
        spec = P(None, "b")
        pool = jaxpool.sharded(pool, spec=spec)
    local = functools.partial(pool, **window((3, 3)))
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    given = jax.device_put(x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(jax.jit(mapped)(given), jaxpool.max_pool(x, **window((3, 3))))


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize(
    "spec", [P("a", None, "b"), P(None, "a", "b"), P("a", "b"), P("a", *[None, None, "b"])]
)
def test_vmap_over_sharded_or_replicated_axis(spec, name):
    def pool(x):
        return POOLS[name].function(x, (3,), (1,), "SAME")

    x = [numbers((4, 4, 16, 4))]
    assert_same_on_mesh(jax.vmap(with_gradient(pool)), x, [spec], (2, 4), 1e-6)
    run = with_gradient(jax.vmap(jax.jit(pool)))
    assert_same_on_mesh(run, x, [spec], (2, 4), 1e-6)


def test_vmap_over_a_sharded_axis_of_tiles():
    """Under `vmap`, types have no sharding, and JAX splits only one axis of a sharded array at a time."""

    def pool(x):
        return POOLS["max_pool"].function(x, (8, 16), (8, 16), axes=(0, 1))

    x = [numbers((4, 32, 64, 32))]
    assert_same_on_mesh(jax.vmap(with_gradient(pool)), x, [P("a")], (2, 4), 1e-6)


def test_forward_mode_second_order_and_vmap():
    """As on one device, forward mode needs `autodiff="jvp"`."""
    x = np.random.default_rng(0).standard_normal((3, 16, 2)).astype(np.float32)
    mesh, spec = mesh_of((8,), "explicit"), P(None, "a")
    settings = window((3,), (1,), rank=1, axis=1, ties="first")
    for name in ("max_pool", "avg_pool", "rank_pool", "max"):
        given = jax.device_put(x, NamedSharding(mesh, spec))
        with pytest.raises(TypeError, match=f"^jaxpool.{name}: `autodiff` must be 'jvp' for forw"):
            jax.jvp(POOLS[name].of(**settings), (given,), (given,))
        run = POOLS[name].of(autodiff="jvp", **settings)

        def loss(x, run=run):
            return (run(x) ** 3).sum()

        def all_of(x, run=run, loss=loss):
            forward = jax.jvp(loss, (x,), (jnp.sin(x),))[1]
            twice = jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum())(x)
            return forward, twice, jax.vmap(run)(jnp.stack([x, -x]))

        assert_same_on_mesh(all_of, [x], [spec], tolerance=1e-5)


# Arguments, and SciPy's filters


@pytest.mark.parametrize("kind", ["explicit", "auto", "manual"])
@pytest.mark.parametrize("kernel", [KERNEL, KERNEL_PER_CHANNEL])
def test_kernel_cotangent_sums_over_devices(kind, kernel):
    """The cotangent of the kernel sums over all devices, also with sharded channels."""
    spec, mesh = P(None, "a", None, "b"), mesh_of((4, 2), kind)
    x, kernel = jnp.asarray(numbers()), jnp.asarray(kernel)
    geometry = {"strides": (1, 1), "padding": "SAME"}
    dilate = functools.partial(jaxpool.sharded(jaxpool.dilate, spec=spec), **geometry)
    if kind == "manual":
        of_kernel = P(None, None, "b") if kernel.ndim == 3 else P()
        specs = {"in_specs": (spec, of_kernel), "out_specs": spec}
        dilate = jax.shard_map(dilate, mesh=mesh, **specs)

    def gradient(dilate, x, kernel):
        def loss(x, kernel):
            y = dilate(x, kernel)
            return (y * weights(y)).sum()

        return jax.grad(loss, (0, 1))(x, kernel)

    given = jax.device_put(x, NamedSharding(mesh, spec))
    with jax.set_mesh(mesh):
        got = jax.jit(functools.partial(gradient, dilate))(given, kernel)
    assert_close(got, gradient(functools.partial(jaxpool.dilate, **geometry), x, kernel))


def test_temperature_per_output_row():
    x, temperature = numbers(), np.linspace(1, 2, 16, dtype=np.float32).reshape(1, 16, 1, 1)

    def run(pool, x):
        return pool(x, **window((3, 3)), temperature=temperature)

    sharded = jaxpool.sharded(jaxpool.logsumexp_pool, spec=ROWS)
    with jax.set_mesh(mesh_of((4,), "auto")):
        got = jax.jit(functools.partial(run, sharded))(x)
    assert_close(got, run(jaxpool.logsumexp_pool, x), 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "origin"), [("reflect", 0), ("mirror", 1), ("nearest", -1)])
def test_scipy_filters(mode, origin):
    x = numbers((32, 6))
    filters = {
        "median_filter": (3,),
        "rank_filter": (1, 4),
        "maximum_filter": (3,),
        "uniform_filter": (4,),
        "grey_opening": (3,),
    }
    for name, args in filters.items():
        run = functools.partial(getattr(scipy, name), mode=mode, origin=origin)
        both = with_gradient(lambda x, run=run, args=args: run(x, *args))
        assert_same_on_mesh(both, [x], [P("a")], tolerance=1e-6)
    given = jax.device_put(x, NamedSharding(mesh_of((8,), "explicit"), P("a")))
    with pytest.raises(ValueError, match="`mode` must be another where axis 0 of input lies on"):
        scipy.median_filter(given, 3, mode="wrap")


@pytest.mark.parametrize("spec", [P("a"), P(None, "a")])
@pytest.mark.parametrize("name", ["grey_dilation", "grey_erosion", "morphological_gradient"])
def test_scipy_sharded_structure(name, spec):
    """Of floats, with gradients of input and of the structure, and of integers."""
    function = getattr(scipy, name)
    xs, rows = (numbers((8, 8)), numbers((4, 4))), [P("a"), spec]
    gradient = jax.grad(lambda x, kernel: (function(x, structure=kernel) ** 2).sum(), (0, 1))
    assert_same_on_mesh(gradient, xs, rows, (2, 1), 1e-5)
    integers = [np.rint(x).astype(np.int32) for x in xs]
    assert_same_on_mesh(lambda x, kernel: function(x, structure=kernel), integers, rows, (2, 1))


def boxes_of(n):
    return np.float32([[0, 0, 4 + n, 5], [1 + n, 2, 6, 6]])


X_OF_TORCH = np.arange(128, dtype=np.float32).reshape(1, 2, 8, 8) % 7
DROP_INS_WITH_OTHER_ARRAYS = {  # x, another array for each of two devices, and a function of both
    "roi_align": (X_OF_TORCH, boxes_of, lambda x, boxes: torchvision.roi_align(x, [boxes], 2)),
    "roi_pool": (X_OF_TORCH, boxes_of, lambda x, boxes: torchvision.roi_pool(x, [boxes], 2)),
    "max_unpool2d": (
        X_OF_TORCH[..., :2, :2],
        lambda n: np.broadcast_to(np.int32([[0, 9], [20, 30]]) + np.int32(n), (1, 2, 2, 2)),
        lambda x, indices: torch.max_unpool2d(x, indices, 4),
    ),
    "fractional_max_pool2d": (
        X_OF_TORCH,
        jax.random.PRNGKey,
        lambda x, key: torch.fractional_max_pool2d(x, 2, 3, key=key),
    ),
    "grey_dilation": (
        X_OF_TORCH[0, 0],
        lambda n: KERNEL * np.float32(n + 1),
        lambda x, structure: scipy.grey_dilation(x, structure=structure),
    ),
}


@pytest.mark.parametrize("name", DROP_INS_WITH_OTHER_ARRAYS)
def test_drop_ins_with_varying_argument(name):
    """In a `shard_map`, x is replicated and the other array varies: the gradient of x is the sum over the devices."""
    x, other_of, function = DROP_INS_WITH_OTHER_ARRAYS[name]
    others = np.stack([other_of(n) for n in range(2)])
    gradient = jax.value_and_grad(lambda x, other: (function(x, other) ** 2).sum())

    def body(x, others):
        value, dx = gradient(x, others[0])
        return value[None], dx

    run = jax.shard_map(
        body, mesh=mesh_of((2,), "manual"), in_specs=(P(), P("a")), out_specs=(P("a"), P())
    )
    values, gradients = zip(*[gradient(x, other) for other in others], strict=True)
    want = np.stack(values), sum(gradients)
    assert_close(jax.jit(run)(x, others), want, 1e-5)


SAVES_NO_X = ("avg_pool", "blur_pool", "max_blur_pool", "sum_pool")


@pytest.mark.parametrize(
    ("name", "has_mask"),
    [
        (name, has_mask)
        for name, pool in POOLS.items()
        if pool.takes("padding")
        for has_mask in (False, True)[: 1 + pool.takes("where")]
    ],
)
def test_one_copy_of_x_is_saved(name, has_mask):
    """The residual has x with its halo once, not once for each branch: of the first, the middle and the last shard."""
    mesh = mesh_of((4,), "explicit")
    x = jax.device_put(numbers(), NamedSharding(mesh, ROWS))
    settings = {"ties": "split", "key": None, "kernel": np.ones((9, 9), np.float32)}
    settings["where"] = np.ones((16, 1, 1), bool) if has_mask else None
    pool = POOLS[name].of(**window((9, 9), **settings))

    def residual_of(x):
        return jax.vjp(lambda x: jax.tree.leaves(pool(x))[0], x)[1]

    with jax.set_mesh(mesh):
        residual = jax.eval_shape(residual_of, x)
    with_halo = 3 * x.size  # a shard has four rows and a halo of eight
    saved = [leaf.size for leaf in jax.tree.leaves(residual) if leaf.size > x.size]
    assert saved == [with_halo] * (name not in SAVES_NO_X)
