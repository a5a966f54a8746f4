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
from jaxpool.testing import pools
from tests.sharded.cases import (
    KINDS,
    LAYOUTS,
    assert_close,
    assert_same,
    assert_same_on_mesh,
    compare,
    mesh_of,
    numbers,
    pool,
    requires_eight_devices,
    special_numbers,
    weights,
    with_gradient,
)

pytestmark = [requires_eight_devices, pytest.mark.usefixtures("strict")]

# 16 rows over 8 devices: a shard has 2 rows, windows of 7 rows reach two shards away, and windows of 21 rows reach all.
EXTREMA = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (3, 3), (1, 1), "SAME", ties="split"),
    pool("max_pool", (7, 5), (2, 1), ((2, 4), (2, 2))),
    pool("min_pool", (3, 3), (1, 1), "SAME", window_dilation=(3, 1)),
    pool("max_pool_with_argmax", (3, 3), (2, 2), "SAME_LOWER"),
    pool("global_max_pool"),
    pool("adaptive_max_pool", (8, 4)),
    pool("max_unpool", (16, 16), (3, 3), (2, 2), "SAME"),
    pool("rank_pool", rank=1, window_shape=(3, 3), strides=(1, 1), padding="SAME", exact=True),
]
SUMS = [
    pool("sum_pool", (3, 3), (1, 1), "SAME"),
    pool("avg_pool", (3, 3), (2, 2), "SAME"),
    pool("avg_pool", (5, 3), (1, 1), "SAME", count_include_pad=False),
    pool("lp_pool", 2, (3, 3), (2, 2), "SAME"),
    pool("global_avg_pool"),
    pool("adaptive_avg_pool", (8, 6)),
]
MORE_EXTREMA = [
    pool("max_pool", (3, 3), (1, 1), "SAME", ties="last"),
    pool("max_pool", (2, 2), (2, 2)),
    pool("max_pool", (2, 2), (2, 2), ties="split"),
    pool("max_pool", (21, 3), (1, 1), "SAME"),
    pool("max_pool", (21, 21), (1, 1), "SAME", ties="split"),
    pool("max_pool", (9, 9), (2, 2), "SAME", ties="last"),
    pool("max_pool", (3, 3), (1, 1), ((2, 0), (0, 2))),
    pool("max_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    pool("max_pool", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    pool("min_pool", (3, 3), (1, 1), "SAME", ties="split"),
    pool("min_pool", (5, 5), (2, 2), "SAME", ties="last"),
    pool("max_pool_with_argmax", (3, 3), (1, 1), "SAME", ties="last"),
    pool("max_pool_with_argmax", (7, 7), (1, 1), "SAME", ties="split"),
    pool("max_pool_with_argmax", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    pool("global_max_pool", ties="last"),
    pool("global_max_pool", ties="split"),
    pool("global_max_pool", axes=(2, 1)),
    pool("adaptive_max_pool", (8, 6), ties="last"),
    pool("adaptive_max_pool", (1, 1), ties="split"),
    pool("adaptive_max_pool_with_argmax", (8, 6)),
    pool("adaptive_max_pool_with_argmax", (8, 4), ties="last"),
    pool("adaptive_max_pool_with_argmax", (6, 8), axes=(2, 1), ties="split"),
    pool("max_unpool", (16, 16), (2, 2), (2, 2)),
    pool("max_unpool", (16, 16), (3, 3), (1, 1), "SAME", axes=(1, 2)),
]
MORE_SUMS = [
    pool("sum_pool", (2, 2), (2, 2)),
    pool("sum_pool", (21, 21), (1, 1), "SAME"),
    pool("sum_pool", (3, 3), (1, 1), "SAME", window_dilation=3),
    pool("avg_pool", (3, 3), (1, 1), "SAME", divisor=2.5),
    pool("avg_pool", (9, 9), (2, 2), "SAME", count_include_pad=False),
    pool("avg_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    pool("lp_pool", np.inf, (3, 3), (1, 1), "SAME"),
    pool("lp_pool", 1, (3, 3), (1, 1), "SAME"),
    pool("lp_pool", 3.5, (5, 5), (1, 1), "SAME"),
    pool("adaptive_avg_pool", (16, 2)),
    pool("adaptive_avg_pool", (1, 1)),
]
# Windowed functions other than maxima, minima, sums and averages, by their records.
KERNEL = np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32)
KERNEL_PER_CHANNEL = np.stack([KERNEL, 2 - KERNEL], -1)
RECORDS = pools()
OTHERS = [
    name
    for name, record in RECORDS.items()
    if record.takes("x", "padding")
    and record.topic not in ("max_pool", "avg_pool", "argmax", "random")
]
HAS_TIES = [name for name in OTHERS if RECORDS[name].ties]


def make_pool(name, **settings):
    """Return a call of a function by its record, with the `settings` that it accepts."""
    given = RECORDS[name].given(numbers(), **settings)
    del given["x"]
    return pool(name, exact=not RECORDS[name].rounds(given), **given)


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
        [make_pool(name, **each) for name, each in zip(OTHERS, itertools.cycle(WINDOWS))],
    ),
    "more others": (
        numbers,
        [
            make_pool(name, **each)
            for each, name in zip(MORE_WINDOWS, itertools.cycle(HAS_TIES[::-1]))
        ],
    ),
    "coefficients": (
        numbers,
        [
            make_pool(name, **each, **{number: np.array([0.5, 2], np.float32)})
            for name, each in zip(OTHERS, itertools.cycle(PER_CHANNEL))
            for number in RECORDS[name].coefficients
        ],
    ),
}
QUICK = [
    ("extrema", "rows over 8", "explicit"),
    ("sums", "rows over 4, columns over 2", "auto"),
]


@pytest.mark.parametrize(
    ("group", "layout", "kind"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(GROUPS, LAYOUTS, KINDS)
    ],
)
def test_equal_to_one_device(group, layout, kind):
    draw, cases = GROUPS[group]
    assert_same(cases, layout, kind, [draw(seed=seed) for seed, _ in enumerate(cases)])


def test_window_offsets_differ_between_shards():
    """Shards of 5 rows and strides of 4 or 6, so that the first window starts at a different row of each shard."""
    late = ((1, 0), (1, 0))
    cases = [
        pool("max_pool", (8, 4), (4, 4)),
        pool("max_pool", (3, 3), (6, 6), late, ties="split"),
        pool("avg_pool", (3, 3), (6, 6), late, count_include_pad=False, exact=False),
        pool("sum_pool", (8, 4), (4, 4)),
    ]
    shape = (2, 20, 10, 2)
    hard = [special_numbers(shape, seed) for seed in range(2)]
    xs = [*hard, *(numbers(shape, seed) for seed in range(2))]
    assert_same(cases, "rows over 4, columns over 2", "explicit", xs)


def first_quick(first, *rest):
    return [first, *(pytest.param(each, marks=pytest.mark.slow) for each in rest)]


@pytest.mark.parametrize(
    "dtype", ["bool", *first_quick("float8_e4m3fn", "bfloat16", "int8", "float8_e5m2")]
)
def test_other_dtypes(dtype):
    x = np.arange(2 * 16 * 4).reshape(2, 16, 4) * 37 % 11 - 5
    names = ["max_pool", "min_pool", "avg_pool"] + ["sum_pool"] * (dtype != "bool")
    for name in names:
        run = functools.partial(
            getattr(jaxpool, name), window_shape=(5,), strides=(1,), padding="SAME"
        )
        x = jnp.asarray(x, np.float32).astype(dtype)
        assert_same_on_mesh(run, x, mesh_of((8,), "explicit"), P(None, "a"))


def test_bfloat16_gradients_within_one_rounding():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 32, 8)), jnp.bfloat16)
    run = with_gradient(lambda x: jaxpool.avg_pool(x, (5,), (1,), "SAME"))
    assert_same_on_mesh(run, x, mesh_of((8,), "explicit"), P(None, "a"), 2**-7)


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

    assert_same_on_mesh(with_signs, x, mesh_of((8,), "explicit"), P(None, "a"))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_shard_map_over_batch_only(kind):
    """`jaxpool.sharded` maps the pooled axis inside the shard_map, or the type still carries its sharding there."""
    mesh, x, case = mesh_of((2, 4), kind), numbers(), pool("max_pool", (3, 3), (1, 1), "SAME")
    spec = P(None, "b") if kind == "auto" else P("a", "b")
    local = case.plain if kind == "explicit" else functools.partial(case.sharded, spec=spec)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    given = jax.device_put(x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(jax.jit(mapped)(given), case.plain(x))


@pytest.mark.parametrize("spec", first_quick(P("a", None, "b"), P(None, "a", "b")))
def test_vmap_over_sharded_or_replicated_axis(spec):
    run = jax.vmap(with_gradient(pool("max_pool", (3,), (1,), "SAME").plain))
    assert_same_on_mesh(run, numbers((4, 2, 16, 2)), mesh_of((2, 4), "explicit"), spec)


def test_forward_mode_second_order_and_vmap():
    """As on one device, forward mode needs `autodiff="jvp"`."""
    x = np.random.default_rng(0).standard_normal((3, 16, 2)).astype(np.float32)
    mesh, spec = mesh_of((8,), "explicit"), P(None, "a")
    settings = {"window_shape": (3,), "strides": (1,), "padding": "SAME", "rank": 1}
    for name in ("max_pool", "avg_pool", "rank_pool"):
        given = jax.device_put(x, NamedSharding(mesh, spec))
        with pytest.raises(TypeError, match=f"^jaxpool.{name}: `autodiff` must be 'jvp' for forw"):
            jax.jvp(RECORDS[name].of(**settings), (given,), (given,))
        run = RECORDS[name].of(autodiff="jvp", **settings)

        def loss(x, run=run):
            return (run(x) ** 3).sum()

        def all_of(x, run=run, loss=loss):
            forward = jax.jvp(loss, (x,), (jnp.sin(x),))[1]
            twice = jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum())(x)
            return forward, twice, jax.vmap(run)(jnp.stack([x, -x]))

        assert_same_on_mesh(all_of, x, mesh, spec, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("key", [jax.random.key(0), None])
def test_random_draws_across_shards(key):
    """The random draw and the expectation equal those on one device."""
    run = with_gradient(RECORDS["stochastic_pool"].of(key=key, **window((3,), (2,))))
    assert_same_on_mesh(run, numbers((2, 16, 2)), mesh_of((8,), "explicit"), P(None, "a"), 1e-6)


# The same under automatic sharding, without `jaxpool.sharded`

AUTOMATIC = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (2, 2), (1, 1), ((0, 1), (1, 0)), ties="last"),
    pool("min_pool", (5, 5), (2, 2), "SAME"),
    pool("avg_pool", (3, 3), (1, 1), "SAME"),
    pool("max_unpool", (16, 16), (3, 3), (2, 2), "SAME"),
]


@pytest.mark.parametrize("case", first_quick(*AUTOMATIC), ids=str)
def test_automatic_sharding_of_rows(case):
    """The gradient of `lax.reduce_window` is wrong there, on rows next to shard 0."""
    x, mesh = jnp.asarray(numbers()), mesh_of((8,), "auto")
    run = jax.jit(with_gradient(case.plain))
    compare(case, run(jax.device_put(x, NamedSharding(mesh, P(None, "a")))), run(x))


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
            record = RECORDS[name]
            return platform(record.function)(**record.given(x, **window((3, 3)), **settings))

        return (
            run("logsumexp_pool", temperature=heat),
            [run(n, **{c: jnp.arange(1.0, 3)}) for n in OTHERS for c in RECORDS[n].coefficients],
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


@pytest.mark.parametrize("name", [name for name in OTHERS if RECORDS[name].topic == "blur"])
def test_reflected_rows_beyond_the_shard_raise(name):
    x = jax.device_put(
        jnp.ones((2, 8, 4, 2)), NamedSharding(mesh_of((8,), "explicit"), P(None, "a"))
    )
    with pytest.raises(
        ValueError, match="of more rows in each of its 8 shards along axis 1, where it is"
    ):
        make_pool(name, **window((4, 4)), blur_shape=(4, 4)).plain(x)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "origin"), [("reflect", 0), ("mirror", 1), ("nearest", -1)])
def test_scipy_filters(mode, origin):
    x, mesh = numbers((32, 6)), mesh_of((8,), "explicit")
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
        assert_same_on_mesh(both, x, mesh, P("a"), 1e-6)
    with pytest.raises(ValueError, match="`mode` must be another where axis 0 of input lies on"):
        scipy.median_filter(jax.device_put(x, NamedSharding(mesh, P("a"))), 3, mode="wrap")
