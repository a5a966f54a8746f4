"""Values and gradients of sharded windowed pools equal those of the unsharded functions on the whole array."""

import functools
import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import scipy
from tests.sharded.cases import (
    KINDS,
    POOLS,
    assert_close,
    assert_equal_to_one_device,
    assert_same_on_mesh,
    call,
    mesh_of,
    numbers,
    requires_eight_devices,
    special_numbers,
    unpooled,
    weights,
    with_gradient,
)

pytestmark = [requires_eight_devices, pytest.mark.usefixtures("strict")]

ROWS = P(None, "a")
LAYOUTS = {  # mesh shape, and spec of an array of four axes
    "rows over 8": ((8,), P(None, "a")),
    "rows over 4 x 2": ((4, 2), P(None, ("a", "b"))),
    "rows over 4, columns over 2": ((4, 2), P(None, "a", "b")),
    "batch, rows and columns over 2 each": ((2, 2, 2), P("a", "b", "c")),
    "batch and channels over 2 each": ((2, 2), P("a", None, None, "b")),
}
# 16 rows over 8 devices: a shard has 2 rows, windows of 7 rows reach two shards away, and windows of 21 rows reach all.
EXTREMA = [
    call("max_pool", (3, 3), (1, 1), "SAME"),
    call("max_pool", (3, 3), (1, 1), "SAME", ties="split"),
    call("max_pool", (7, 5), (2, 1), ((2, 4), (2, 2))),
    call("min_pool", (3, 3), (1, 1), "SAME", window_dilation=(3, 1)),
    call("max_pool_with_argmax", (3, 3), (2, 2), "SAME_LOWER"),
    call("global_max_pool"),
    call("adaptive_max_pool", (8, 4)),
    call(unpooled, (16, 16), (3, 3), (2, 2), "SAME"),
    call("rank_pool", rank=1, window_shape=(3, 3), strides=(1, 1), padding="SAME"),
]
SUMS = [
    call("sum_pool", (3, 3), (1, 1), "SAME"),
    call("avg_pool", (3, 3), (2, 2), "SAME"),
    call("avg_pool", (5, 3), (1, 1), "SAME", count_include_pad=False),
    call("lp_pool", 2, (3, 3), (2, 2), "SAME"),
    call("global_avg_pool"),
    call("adaptive_avg_pool", (8, 6)),
]
MORE_EXTREMA = [
    call("max_pool", (3, 3), (1, 1), "SAME", ties="last"),
    call("max_pool", (2, 2), (2, 2)),
    call("max_pool", (2, 2), (2, 2), ties="split"),
    call("max_pool", (21, 3), (1, 1), "SAME"),
    call("max_pool", (21, 21), (1, 1), "SAME", ties="split"),
    call("max_pool", (9, 9), (2, 2), "SAME", ties="last"),
    call("max_pool", (3, 3), (1, 1), ((2, 0), (0, 2))),
    call("max_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    call("max_pool", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    call("min_pool", (3, 3), (1, 1), "SAME", ties="split"),
    call("min_pool", (5, 5), (2, 2), "SAME", ties="last"),
    call("max_pool_with_argmax", (3, 3), (1, 1), "SAME", ties="last"),
    call("max_pool_with_argmax", (7, 7), (1, 1), "SAME", ties="split"),
    call("max_pool_with_argmax", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    call("global_max_pool", ties="last"),
    call("global_max_pool", ties="split"),
    call("global_max_pool", axes=(2, 1)),
    call("adaptive_max_pool", (8, 6), ties="last"),
    call("adaptive_max_pool", (1, 1), ties="split"),
    call("adaptive_max_pool_with_argmax", (8, 6)),
    call("adaptive_max_pool_with_argmax", (8, 4), ties="last"),
    call("adaptive_max_pool_with_argmax", (6, 8), axes=(2, 1), ties="split"),
    call(unpooled, (16, 16), (2, 2), (2, 2)),
    call(unpooled, (16, 16), (3, 3), (1, 1), "SAME", axes=(1, 2)),
]
MORE_SUMS = [
    call("sum_pool", (2, 2), (2, 2)),
    call("sum_pool", (21, 21), (1, 1), "SAME"),
    call("sum_pool", (3, 3), (1, 1), "SAME", window_dilation=3),
    call("avg_pool", (3, 3), (1, 1), "SAME", divisor=2.5),
    call("avg_pool", (9, 9), (2, 2), "SAME", count_include_pad=False),
    call("avg_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    call("lp_pool", np.inf, (3, 3), (1, 1), "SAME"),
    call("lp_pool", 1, (3, 3), (1, 1), "SAME"),
    call("lp_pool", 3.5, (5, 5), (1, 1), "SAME"),
    call("adaptive_avg_pool", (16, 2)),
    call("adaptive_avg_pool", (1, 1)),
]
# Windowed functions other than maxima, minima, sums and averages, by their records.
KERNEL = np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32)
KERNEL_PER_CHANNEL = np.stack([KERNEL, 2 - KERNEL], -1)
OTHERS = [
    name
    for name, record in POOLS.items()
    if record.takes("x", "padding")
    and record.topic not in ("max_pool", "avg_pool", "argmax", "random")
]
HAS_TIES = [name for name in OTHERS if POOLS[name].ties]


@pytest.mark.parametrize("ties", ["first", "split"])
@pytest.mark.parametrize("window_shape", [(3, 3), (21, 3)])
def test_value_without_gradient(window_shape, ties):
    def pool(x):
        return jaxpool.max_pool(x, window_shape, padding="SAME", ties=ties)

    assert_same_on_mesh(pool, [numbers()], [ROWS], (4,))


def call_by_record(name, **settings):
    """Return the call of a function with the `settings` that it takes."""
    given = POOLS[name].given(numbers(), **settings)
    del given["x"]
    return call(name, **given)


def window(shape, strides=(1, 1), padding="SAME", **more):
    return {"window_shape": shape, "strides": strides, "padding": padding, **more}


WINDOWS = [
    window((3, 3), kernel=KERNEL),
    window((3, 3), (2, 2), ties="split", kernel=KERNEL_PER_CHANNEL),
    window((5, 3), (2, 1), ties="last", rank=1, kernel=KERNEL_PER_CHANNEL),
]
MORE_WINDOWS = [
    window((7, 3), padding=((3, 3), (1, 1)), rank=-2),
    window((9, 9)),
    window((3, 3), (2, 2), "SAME_LOWER", kernel=KERNEL_PER_CHANNEL),
    window((3, 1), rank=0, window_dilation=(3, 1), ties="split", kernel=KERNEL_PER_CHANNEL),
    window((2, 3), axes=(2, 1), rank=1),
    window((2, 2), (2, 2), "VALID"),
]
PER_CHANNEL = [WINDOWS[0], window((3, 3), (2, 2), window_dilation=2)]


def normal_numbers(seed=0):
    return np.random.default_rng(seed).standard_normal((2, 16, 16, 2)).astype(np.float32)


GROUPS = {  # values of x, with ties, NaN and windows of -inf alone for the first, and calls
    "extrema": (special_numbers, EXTREMA),
    "sums": (normal_numbers, SUMS),
    "more extrema": (special_numbers, MORE_EXTREMA),
    "more sums": (normal_numbers, MORE_SUMS),
    "others": (
        numbers,
        [call_by_record(name, **each) for name, each in zip(OTHERS, itertools.cycle(WINDOWS))],
    ),
    "more others": (
        numbers,
        [
            call_by_record(name, **each)
            for each, name in zip(MORE_WINDOWS, itertools.cycle(HAS_TIES[::-1]))
        ],
    ),
    "coefficients": (
        numbers,
        [
            call_by_record(name, **each, **{number: np.array([0.5, 2], np.float32)})
            for name, each in zip(OTHERS, itertools.cycle(PER_CHANNEL))
            for number in POOLS[name].coefficients
        ],
    ),
}
# Shards of 5 rows and strides of 4 or 6, so that the first window starts at a different row of each shard.
LATE = ((1, 0), (1, 0))
OFFSET_EXTREMA = [
    call("max_pool", (8, 4), (4, 4)),
    call("max_pool", (3, 3), (6, 6), LATE, ties="split"),
]
OFFSET_SUMS = [
    call("avg_pool", (3, 3), (6, 6), LATE, count_include_pad=False),
    call("sum_pool", (8, 4), (4, 4)),
]
FIVE_ROWS = {
    "offset extrema": (functools.partial(special_numbers, (2, 20, 10, 2)), OFFSET_EXTREMA),
    "offset sums": (functools.partial(numbers, (2, 20, 10, 2)), OFFSET_SUMS),
}
QUICK = [
    ("extrema", "rows over 8", "explicit"),
    ("sums", "rows over 4, columns over 2", "auto"),
    *((group, "rows over 4, columns over 2", "explicit") for group in FIVE_ROWS),
]
# Inside a shard_map over channels, the calls would need arguments per channel of the shard.
PER_CHANNEL_GROUPS = ("others", "more others", "coefficients")
IMPOSSIBLE = [(group, "batch and channels over 2 each", "manual") for group in PER_CHANNEL_GROUPS]
SLOW = set(itertools.product(GROUPS, LAYOUTS, KINDS)) - {*QUICK, *IMPOSSIBLE}


@pytest.mark.parametrize(
    ("group", "layout", "kind"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in sorted(SLOW))],
)
def test_equal_to_one_device(group, layout, kind):
    """Only halos are sent, but global pools add up over devices, as does an unpool to find an index too far away."""
    draw, cases = (GROUPS | FIVE_ROWS)[group]
    shape, spec = LAYOUTS[layout]
    calls = [case.with_x(draw(seed=seed)) for seed, case in enumerate(cases)]
    sent = assert_equal_to_one_device(calls, mesh_of(shape, kind), spec, kind)
    sums = {"all-reduce"} if any(map(adds_over_devices, cases)) else set()
    assert sent - sums == ({"collective-permute"} if spec[1] else set())


def adds_over_devices(case):
    is_global = case.function.__name__.startswith("global")
    return is_global or case.function is unpooled or case.given.get("output_shape") == (1, 1)


def first_quick(first, *rest):
    return [first, *(pytest.param(each, marks=pytest.mark.slow) for each in rest)]


@pytest.mark.parametrize(
    "dtype", ["bool", *first_quick("float8_e4m3fn", "bfloat16", "int8", "float8_e5m2")]
)
def test_other_dtypes(dtype):
    x = jnp.asarray(np.arange(128.0).reshape(2, 16, 4) * 37 % 11 - 5, np.float32).astype(dtype)
    names = ["max_pool", "min_pool", "avg_pool"] + ["sum_pool"] * (dtype != "bool")

    def run(x):
        return [getattr(jaxpool, name)(x, (5,), (1,), "SAME") for name in names]

    assert_same_on_mesh(run, [x], [ROWS])


def test_bfloat16_gradients_within_one_rounding():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 32, 8)), jnp.bfloat16)
    run = with_gradient(lambda x: jaxpool.avg_pool(x, (5,), (1,), "SAME"))
    assert_same_on_mesh(run, [x], [ROWS], tolerance=2**-7)


@pytest.mark.parametrize("ties", ["split", *first_quick("first", "last")])
def test_global_pool_where_mask(ties):
    """The `where` mask is False throughout the shard of one device, and throughout one channel."""
    x, rng = special_numbers((2, 16, 8, 4)), np.random.default_rng(0)
    where = rng.random((2, 16, 8, 4)) < 0.3
    where[:, 4:8] = where[..., 1] = False
    spec, mesh = P(None, "a", "b"), mesh_of((4, 2), "auto")

    def both(platform):
        def run(x):
            finite = jnp.nan_to_num(x, neginf=0)
            largest = platform(jaxpool.global_max_pool)(x, where=where, ties=ties)
            mean = platform(jaxpool.global_avg_pool)(finite, where=where, keepdims=True)
            return largest, mean

        return jax.jit(with_gradient(run))

    given = jax.device_put(jnp.asarray(x), NamedSharding(mesh, spec))
    got = both(functools.partial(jaxpool.sharded, mesh=mesh, spec=spec))(given)
    (largest, (mean,), dx), want = got, both(lambda pool: pool)(jnp.asarray(x))
    assert_close((largest, dx), want[::2], 1e-6 if ties == "split" else 0.0)
    assert_close(mean, *want[1], 1e-6)


@pytest.mark.parametrize("ties", ["split", *first_quick("last", "first")])
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
    mesh, case = mesh_of((2, 4), kind), call("max_pool", (3, 3), (1, 1), "SAME").with_x(numbers())
    spec = P(None, "b") if kind == "auto" else P("a", "b")
    local = case.on_mesh(mesh, spec, kind)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    given = jax.device_put(case.x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(jax.jit(mapped)(given), case.plain(case.x))


@pytest.mark.parametrize("spec", first_quick(P("a", None, "b"), P(None, "a", "b")))
def test_vmap_over_sharded_or_replicated_axis(spec):
    run = jax.vmap(with_gradient(lambda x: jaxpool.max_pool(x, (3,), (1,), "SAME")))
    assert_same_on_mesh(run, [numbers((4, 2, 16, 2))], [spec], (2, 4))


def test_forward_mode_second_order_and_vmap():
    """As on one device, forward mode needs `autodiff="jvp"`."""
    x = np.random.default_rng(0).standard_normal((3, 16, 2)).astype(np.float32)
    mesh, spec = mesh_of((8,), "explicit"), P(None, "a")
    settings = {"window_shape": (3,), "strides": (1,), "padding": "SAME", "rank": 1}
    for name in ("max_pool", "avg_pool", "rank_pool"):
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


@pytest.mark.slow
@pytest.mark.parametrize("key", [jax.random.key(0), None])
def test_random_draws_across_shards(key):
    """The random draw and the expectation equal those on one device."""
    run = with_gradient(POOLS["stochastic_pool"].of(key=key, **window((3,), (2,))))
    assert_same_on_mesh(run, [numbers((2, 16, 2))], [ROWS], tolerance=1e-6)


# The same under automatic sharding, without `jaxpool.sharded`

AUTOMATIC = [
    call("max_pool", (3, 3), (1, 1), "SAME"),
    call("max_pool", (2, 2), (1, 1), ((0, 1), (1, 0)), ties="last"),
    call("min_pool", (5, 5), (2, 2), "SAME"),
    call("avg_pool", (3, 3), (1, 1), "SAME"),
    call(unpooled, (16, 16), (3, 3), (2, 2), "SAME"),
]


@pytest.mark.parametrize("case", first_quick(*AUTOMATIC), ids=str)
def test_automatic_sharding_of_rows(case):
    """The gradient of `lax.reduce_window` is wrong there, on rows next to shard 0."""
    assert_equal_to_one_device([case.with_x(numbers())], mesh_of((8,), "auto"), ROWS, "plain")


# Arguments, and SciPy's filters


@pytest.mark.parametrize("kind", first_quick("explicit", "auto", "manual"))
@pytest.mark.parametrize("kernel", first_quick(KERNEL, KERNEL_PER_CHANNEL))
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


@pytest.mark.parametrize("traced", first_quick(True, False))
def test_broadcast_operands_are_sharded(traced):
    """A temperature per output row, coefficients per channel, a `where` mask, a kernel and a key."""
    heat = np.linspace(1, 2, 16, dtype=np.float32).reshape(1, 16, 1, 1)
    mask, kernel = numbers() > 0, np.ones((3, 3, 2), np.float32)

    def every(platform, x, heat, mask, kernel, key):
        def run(name, **settings):
            record = POOLS[name]
            return platform(record.function)(**record.given(x, **window((3, 3)), **settings))

        return (
            run("logsumexp_pool", temperature=heat),
            [run(n, **{c: jnp.arange(1.0, 3)}) for n in OTHERS for c in POOLS[n].coefficients],
            run("global_avg_pool", where=mask),
            run("dilate", kernel=kernel),
            run("stochastic_pool", key=key),
        )

    given = jnp.asarray(numbers()), heat, mask, kernel, jax.random.key(0)
    want = every(lambda pool: pool, *given)
    across_devices = functools.partial(every, functools.partial(jaxpool.sharded, spec=P(None, "a")))
    with jax.set_mesh(mesh_of((4,), "auto")):
        got = (jax.jit(across_devices) if traced else across_devices)(*given)
    assert_close(got, want, 2e-6)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_tie_order_follows_axis_order(kind, ties):
    """The order of ties follows `axis`, as on one device: with axis=(1, 0), columns come first."""
    x = np.array([[0, 1, 5], [0, 2, 5], [5, 0, 0], [1, 1, 1]], np.float32)
    x = x if kind == "max" else -x
    gradient = jax.jit(jax.grad(lambda x: getattr(jaxpool, kind)(x, (1, 0), ties=ties)))
    dx = gradient(jax.device_put(x, NamedSharding(mesh_of((4,), "explicit"), P("a"))))
    assert np.argwhere(np.asarray(dx)).tolist() == ([[2, 0]] if ties == "first" else [[1, 2]])
    np.testing.assert_array_equal(dx, gradient(x))


@pytest.mark.parametrize("name", [name for name in OTHERS if POOLS[name].topic == "blur"])
def test_reflected_rows_beyond_the_shard_raise(name):
    x = jax.device_put(
        jnp.ones((2, 8, 4, 2)), NamedSharding(mesh_of((8,), "explicit"), P(None, "a"))
    )
    with pytest.raises(
        ValueError, match="of more rows in each of its 8 shards along axis 1, where it is"
    ):
        POOLS[name].of(**window((4, 4)), blur_shape=(4, 4))(x)


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
