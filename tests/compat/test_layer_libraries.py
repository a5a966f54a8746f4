"""The drop-ins for Flax, Haiku and Equinox, compared with the originals: values, gradients, errors and differences."""

import importlib
import inspect
import itertools
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import jaxpool
from tests.support.compat_cases import (
    Call,
    assert_arrays_match,
    assert_same_error,
    compare,
    drawn_calls,
    geometries,
    ints,
    random_dtype,
)

pytestmark = [  # of Haiku about sizes that are an int, and of Equinox about sizes that are arrays
    pytest.mark.filterwarnings("ignore:.*vmap:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*static:UserWarning"),
]

LIBRARIES = {"flax": "flax.linen.pooling", "haiku": "haiku", "equinox": "equinox.nn"}
X = jnp.arange(24.0).reshape(4, 6)

every_library = pytest.mark.parametrize("library", LIBRARIES)


def both_modules(library):
    """The module of drop-ins, and the original."""
    theirs = pytest.importorskip(LIBRARIES[library])
    return importlib.import_module(f"jaxpool.compat.{library}"), theirs


def pool_with(module, name, *args, **kwargs):
    """A function, or a layer made with the arguments, as a function of the array alone."""
    pool = getattr(module, name)
    if inspect.isclass(pool):
        return lambda x: pool(*args, **kwargs)(x)
    return lambda x: pool(x, *args, **kwargs)


def call(library, name, shape, *args, **options):
    pools = [pool_with(module, name, *args) for module in both_modules(library)]
    return Call(*pools, shape, f"{library} {name}{shape, *args}", **options)


# Random calls


def random_reduction(rng):
    return [(-np.inf, lax.max), (np.float32(np.inf), lax.min), (0.0, lax.add)][rng.integers(3)]


def random_sizes(rng, count, least, greatest):
    """An int, or a tuple or list of `count` ints."""
    if rng.random() < 0.4:
        return int(rng.integers(least, greatest + 1))
    sizes = ints(rng, count, least, greatest)
    return list(sizes) if rng.random() < 0.2 else sizes


def draw_flax(name, rng):
    rank, batch = rng.integers(1, 4), rng.integers(0, 3)
    shape = (*ints(rng, batch, 1, 2), *ints(rng, rank, 3, 7 if rank < 3 else 4), 2)
    padding = str(rng.choice(["VALID", "SAME", "SAME_LOWER", "same"]))
    if batch < 2 and rng.random() < 0.4:
        padding = tuple(ints(rng, 2, 0, 3) for _ in range(rank))
    args = ints(rng, rank, 1, 3), None if rng.random() < 0.2 else ints(rng, rank, 1, 3), padding
    if name == "avg_pool":
        args = (*args, bool(rng.integers(2)))
    elif name == "pool":
        return call("flax", name, shape, *random_reduction(rng), *args)
    options = {"exact": name != "avg_pool", "dtype": random_dtype(rng, np.uint8)}
    return call("flax", name, shape, *args, **options)


def draw_haiku(name, rng):
    ndim = int(rng.integers(2, 5))
    sizes = [random_sizes(rng, rng.integers(1, ndim + 1), 1, 3) for _ in range(2)]
    axis = rng.choice([-1, -1, 1, 0, 1 - ndim, ndim - 1])
    args = (*sizes, str(rng.choice(["SAME", "VALID"])), None if rng.random() < 0.2 else int(axis))
    options = {"exact": name == "max_pool", "dtype": random_dtype(rng, np.uint8)}
    return call("haiku", name, ints(rng, ndim, 2, 6), *args, **options)


def draw_equinox(name, rng):
    """A pool of random rank. Equinox refuses some paddings: those are drawn again."""
    rank = int(rng.integers(1, 4))
    while True:
        shape = (int(rng.integers(1, 3)), *ints(rng, rank, 2, 7 if rank < 3 else 5))
        padding = random_sizes(rng, rank, 0, 2)
        if rng.random() < 0.3:
            padding = tuple(ints(rng, 2, 0, 2) for _ in range(rank))
        args = random_sizes(rng, rank, 1, 3), random_sizes(rng, rank, 1, 3), padding
        args = (*args, bool(rng.integers(2)))
        options = {"exact": name == "MaxPool", "dtype": random_dtype(rng)}
        if name == "Pool":
            each = call("equinox", name, shape, *random_reduction(rng), rank, *args)
        else:
            each = call("equinox", f"{name}{rank}d", shape, *args, **options)
        try:
            jax.eval_shape(each.theirs, jax.ShapeDtypeStruct(shape, np.float32))
        except RuntimeError:
            continue
        return each


def draw_equinox_adaptive(name, rng):
    rank = int(rng.integers(1, 4))
    shape = (int(rng.integers(1, 3)), *ints(rng, rank, 2, 9 if rank < 3 else 5))
    target = tuple(int(rng.integers(1, size + 1)) for size in shape[1:])
    target = min(target) if rng.random() < 0.3 else target
    options = {"exact": "Max" in name, "dtype": random_dtype(rng)}
    return call("equinox", f"{name}{rank}d", shape, target, **options)


DRAWN = {
    draw_flax: ("max_pool", "min_pool", "avg_pool", "pool"),
    draw_haiku: ("max_pool", "avg_pool"),
    draw_equinox: ("MaxPool", "AvgPool", "Pool"),
    draw_equinox_adaptive: ("AdaptiveMaxPool", "AdaptiveAvgPool"),
}
# (function that draws a call, name of the pool)
DRAWN_POOLS = [(draw, name) for draw, names in DRAWN.items() for name in names]


@drawn_calls
@pytest.mark.parametrize(("draw", "name"), DRAWN_POOLS, ids=lambda x: getattr(x, "__name__", x))
def test_random_calls(draw, name, calls):
    compare(draw(name, rng) for rng in geometries(calls))


# Odd arguments

IMAGES = X[None, :, :, None]
ODD_ARRAYS = [None, "image", [[1.0, 2.0], [3.0, 4.0]], np.float64([[1.0, 2.0]]), jnp.float32(3)]
ODD_ARRAYS += [X[:, 0], X, X[None], IMAGES, IMAGES[None], IMAGES[None, None], X > 3]
ODD_ARRAYS += [IMAGES.astype(jnp.float8_e5m2)]
ODD_ARRAYS += [jnp.zeros(shape) for shape in ((0, 4, 6), (1, 0, 6), (0, 4, 6, 1), (1, 0, 6, 1))]
ODD_VALUES = [0, 2, 4, -1, -4, 2.0, True, None, "22", "SAME", "same"]
ODD_VALUES += [(), (2,), (0, 1), (-1, 2), (2.5, 1), (True, 2), [2, 1], np.array([2, 2]), (9, 9)]
ODD_VALUES += [(1, 1, 1), (2, 2, 2), (1, 1, 1, 1), (1, 1, 1, 1, 1), (np.int64(2), np.int32(1))]
ODD_VALUES += [((1, 1),), ((1, 1), (1, 1)), ((1, 1, 1), (1, 1, 1)), np.ones((2, 2), int)]
ODD_VALUES += [((3, 4), (0, 0)), ((-1, 0), (-3, 2)), ((-4, 0), (0, 0))]

FLAX = {"window_shape": (2, 2), "strides": None, "padding": "VALID"}
HAIKU = {"window_shape": (2, 1), "strides": (1, 1), "padding": "SAME", "channel_axis": -1}
EQUINOX = {"kernel_size": 2, "stride": 1, "padding": 0, "use_ceil": False}
USUAL_CALLS = {
    ("flax", "max_pool"): (IMAGES, FLAX),
    ("flax", "avg_pool"): (IMAGES, FLAX | {"count_include_pad": False}),
    ("haiku", "max_pool"): (IMAGES, HAIKU),
    ("haiku", "avg_pool"): (IMAGES, HAIKU),
    ("equinox", "MaxPool2d"): (X[None], EQUINOX),
    ("equinox", "AvgPool2d"): (X[None], EQUINOX),
    ("equinox", "AdaptiveMaxPool2d"): (X[None], {"target_shape": 2}),
    ("equinox", "AdaptiveAvgPool2d"): (X[None], {"target_shape": 2}),
}


def outcome(pool, x):
    """The value, or the error."""
    try:
        return pool(x)
    except Exception as error:
        return error


@pytest.mark.parametrize(("library", "name"), USUAL_CALLS)
def test_odd_arguments(library, name):
    """For each odd value of each argument, the library and jaxpool return the same value or raise the same error."""
    x, usual = USUAL_CALLS[library, name]
    calls = [(array, usual) for array in ODD_ARRAYS]
    calls += [(x, usual | {argument: value}) for argument in usual for value in ODD_VALUES]
    for array, args in calls:
        got, want = (
            outcome(pool_with(module, name, **args), array) for module in both_modules(library)
        )
        says = f"{library} {name} of {array} with {args}"
        if not isinstance(want, Exception):
            assert_arrays_match(got, want, 1e-6, says)
        elif "Adaptive" in name:
            assert isinstance(got, (TypeError, ValueError, RuntimeError)), says
        else:
            assert (type(got), str(got)) == (type(want), str(want)), says


# Behaviour of all libraries


def matrix_pool(module, name, window, strides=(1, 1), padding="VALID"):
    """A pool of a matrix: "max" or "avg" of either module of a library."""
    if "equinox" in module.__name__:
        pads = tuple(size // 2 if padding == "SAME" else 0 for size in window)
        layer = getattr(module, f"{name.title()}Pool2d")(window, strides, pads)
        return lambda x: layer(x[None])[0]
    if "haiku" in module.__name__:
        window, strides = (*window, 1), (*strides, 1)
    pool = pool_with(module, f"{name}_pool", window, strides, padding)
    return lambda x: pool(x[..., None])[..., 0]


def gradients(library, x, *args):
    """The gradients of the sum of our pool and of the original."""
    pools = [matrix_pool(module, *args) for module in both_modules(library)]
    return [jax.grad(lambda x, pool=pool: pool(x).sum())(x) for pool in pools]


@every_library
def test_signatures(library):
    ours, theirs = both_modules(library)
    for name in ours.__all__:
        functions = [getattr(module, name) for module in (ours, theirs)]
        if inspect.isclass(functions[0]):
            functions += [cls.__call__ for cls in functions]
        signatures = [
            [(p.name, p.kind, p.default) for p in inspect.signature(fn).parameters.values()]
            for fn in functions
        ]
        assert signatures[::2] == signatures[1::2]


def uses_lax(pool, x):
    program = str(jax.make_jaxpr(jax.grad(lambda x: pool(x).sum()))(x))
    return "reduce_window" in program or "scatter" in program


@every_library
@pytest.mark.parametrize("name", ["max", "avg"])
def test_jaxpool_kernels_and_forward_mode(library, name):
    ours, theirs = both_modules(library)
    for window in ((2, 2), (2, 1), (4, 6)):
        assert not uses_lax(matrix_pool(ours, name, window), X)
    got, want = (
        jax.jvp(matrix_pool(module, name, (2, 3), (2, 1)), (X,), (jnp.sin(X),))[1]
        for module in (ours, theirs)
    )
    assert_arrays_match(got, want, 1e-6, name)


@pytest.mark.parametrize(
    ("init", "reduction"),
    [(1.0, lax.mul), (-jnp.inf, jnp.maximum), (0.0, lax.max), (5.0, lax.add)],
)
@pytest.mark.parametrize("library", ["flax", "equinox"])
def test_other_reductions_use_lax(library, init, reduction):
    def pooled(module):
        if library == "flax":
            return module.pool(X[..., None], init, reduction, (2, 2), None, "SAME")
        return module.Pool(init, reduction, 2, 2, 1, 1)(X[None])

    got, want = map(pooled, both_modules(library))
    assert_arrays_match(got, want, 0, "value")


@every_library
def test_missing_library_error_names_pip_extra(monkeypatch, library):
    for module in list(sys.modules):
        if module.split(".")[0] == library or module == f"jaxpool.compat.{library}":
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"needs \w+: pip install 'jaxpool\[{library}\]'$"):
        importlib.import_module(f"jaxpool.compat.{library}")


# Documented differences


@every_library
def test_nan_receives_window_cotangent(library):
    x = jnp.array([[jnp.nan], [5.0], [2.0]])
    got, want = gradients(library, x, "max", (3, 1))
    np.testing.assert_array_equal(got.ravel(), [1, 0, 0])
    np.testing.assert_array_equal(want.ravel(), [0, 1, 0])


@every_library
def test_minus_inf_next_to_padding_keeps_cotangent(library):
    x = jnp.full((3, 1), -jnp.inf)
    got, want = gradients(library, x, "max", (3, 1), (1, 1), "SAME")
    np.testing.assert_array_equal(got.ravel(), [2, 1, 0])
    np.testing.assert_array_equal(want.ravel(), [1, 1, 0])


@every_library
def test_low_precision_averages_round_once(library):
    """The sum of the original may saturate: at 256 in bfloat16."""
    ours, _ = both_modules(library)
    for x in (
        jnp.ones((512, 1), jnp.bfloat16),
        jnp.full((512, 1), 300, jnp.float16),
        jnp.arange(512, dtype=jnp.bfloat16)[:, None],
    ):
        want = np.mean(np.asarray(x, np.float32)).astype(x.dtype)
        assert matrix_pool(ours, "avg", (512, 1))(x)[0, 0] == want


# Flax alone


def test_average_of_windows_of_padding_in_flax():
    """The first window is NaN, without an effect on the gradient."""
    each = call("flax", "avg_pool", (4, 6), (2,), None, ((3, 0),), False)
    compare([each], ("normal",))
    assert np.isnan(each.ours(jnp.ones((4, 6)))[0]).all()


def test_sizes_of_invalid_types_raise_like_flax_after_a_cached_call():
    ours, theirs = both_modules("flax")
    ours.max_pool(IMAGES, (3, 2), (3, 1))  # no other test calls Flax with these sizes
    assert_same_error(ours.max_pool, theirs.max_pool, IMAGES, (3, 2), (3.0, 1))
    assert_same_error(ours.max_pool, theirs.max_pool, IMAGES, (jnp.int32(2), 2))


def test_drop_ins_replace_flax_functions(monkeypatch):
    ours, theirs = both_modules("flax")
    for name in ours.__all__:
        monkeypatch.setattr(theirs, name, getattr(ours, name))
    x = IMAGES[:, :2] + 1  # a shape that no other test has traced
    np.testing.assert_array_equal(ours.max_pool(x, (2, 2)), x[:, 1:, 1:])
    assert ours.avg_pool(x, (2, 6)).shape == (1, 1, 1, 1)


def test_strict_promotion_matches_flax():
    accepted = []
    names = ["float16", "bfloat16", "float32", "int8", "int32"]
    ours, theirs = both_modules("flax")
    with jax.numpy_dtype_promotion("strict"):
        for name, counted in itertools.product(names, (True, False)):
            args = (IMAGES.astype(name), (2, 2), None, "SAME", counted)
            try:
                want = theirs.avg_pool(*args)
            except ValueError:
                continue
            accepted.append((name, counted))
            assert_arrays_match(ours.avg_pool(*args), want, 1e-6, args)
    assert ("float32", False) in accepted


def test_padding_of_flax_is_not_selected_without_infinity():
    ours, _ = both_modules("flax")
    x = jnp.array([[-3.0], [-2.0]]).astype(jnp.float8_e4m3fn)
    y = ours.max_pool(x, (3,), None, ((1, 1),))
    np.testing.assert_array_equal(y.astype(jnp.float32).ravel(), [-2, -2])


def test_traced_initial_value_of_flax_uses_lax():
    def pooled(module):
        pool = jax.jit(lambda start: module.pool(IMAGES, start, lax.max, (2, 2), None, "SAME"))
        return pool(np.float32(5))

    np.testing.assert_array_equal(*map(pooled, both_modules("flax")))


def test_invalid_initial_value_raises_like_flax():
    init = np.zeros(1, np.float32)
    ours, theirs = both_modules("flax")
    assert_same_error(ours.pool, theirs.pool, IMAGES, init, lax.max, (2, 2), None, "SAME")


def test_uneven_shards_raise_lax_error():
    mesh = AbstractMesh((4,), ("rows",), axis_types=(AxisType.Explicit,))
    where = NamedSharding(mesh, PartitionSpec(None, "rows"))
    x = jax.ShapeDtypeStruct((1, 16, 4, 1), np.float32, sharding=where)

    def refused(module):
        with jax.sharding.use_abstract_mesh(mesh), pytest.raises(Exception, match="14") as raised:
            jax.eval_shape(lambda x: module.max_pool(x, (3, 3)), x)
        return str(raised.value)

    ours, theirs = both_modules("flax")
    assert refused(ours) == refused(theirs)


def test_dtype_of_flax_pools_follows_x64_mode_between_calls():
    x = np.ones((1, 4, 4, 1), np.float32)
    for wide in (False, True, False):
        with jax.enable_x64(wide):
            one, other = (
                module.avg_pool(x, (2, 2), count_include_pad=False)
                for module in both_modules("flax")
            )
        assert one.dtype == other.dtype


# Haiku alone


@pytest.mark.parametrize("name", ["MaxPool", "AvgPool"])
def test_haiku_modules(name):
    hk = pytest.importorskip("haiku")

    def net(module):
        def run(x):
            layer = getattr(module, name)(2, (2, 1, 1), padding="SAME", channel_axis=-1)
            named = getattr(module, name)((2, 1), 1, "VALID", name="named")
            assert isinstance(layer, hk.Module)
            assert isinstance(repr(layer), str)
            return named(layer(x)), layer.module_name, named.module_name

        return hk.transform(run)

    mine, original = map(net, both_modules("haiku"))
    assert mine.init(None, IMAGES) == original.init(None, IMAGES) == {}
    (y, *names), (want, *want_names) = (each.apply({}, None, IMAGES) for each in (mine, original))
    assert_arrays_match(y, want, 1e-6, name)
    assert names == want_names


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_int_sizes_warn_like_haiku(name):
    x = IMAGES[:, :3]  # a shape that no other test has traced
    for module in both_modules("haiku"):
        for sizes in [(2, (1, 1)), ((2, 1), 3)]:
            with pytest.warns(DeprecationWarning, match="vmap"):
                getattr(module, name)(x, *sizes, "SAME")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(module, name)(x, 1, (2, 1), "SAME")


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_haiku_pool_along_sharded_axis(name):
    mesh, spec = AbstractMesh((2,), ("a",)), PartitionSpec(None, "a")
    pool = jaxpool.sharded(getattr(both_modules("haiku")[0], name), mesh=mesh, spec=spec)
    with pytest.raises(ValueError, match=r"^jaxpool\.sharded: `x` must be of a size along axis 1"):
        pool(jnp.ones((2, 8, 8, 2)), (2, 2, 1), (1, 1, 1), "VALID")


# Equinox alone


def test_equinox_class_hierarchy():
    ours, theirs = both_modules("equinox")
    for name in ours.__all__:
        mine = getattr(ours, name)
        assert issubclass(mine, getattr(theirs, name))
        assert issubclass(mine, ours.AdaptivePool if "Adaptive" in name else ours.Pool)


@pytest.mark.parametrize(
    ("name", "args"),
    [("MaxPool2d", (3, 2, 1, True)), ("AvgPool1d", (2,)), ("AdaptiveMaxPool2d", (3,))],
)
def test_module_tree_matches_equinox(name, args):
    mine, original = (getattr(module, name)(*args) for module in both_modules("equinox"))
    assert jax.tree.leaves(mine) == jax.tree.leaves(original)
    assert repr(mine) == repr(original)
    assert vars(mine) == vars(original)
    assert mine == type(mine)(*args)


def test_adaptive_operations_of_equinox():
    compare(
        [
            call("equinox", "AdaptivePool", (2, 7, 6), (3, 4), 2, operation)
            for operation in (jnp.max, jnp.min, jnp.mean, jnp.sum, jnp.median, jnp.amax)
        ],
        ("normal", "ties"),
    )


@pytest.mark.parametrize("name", ["AdaptiveMaxPool2d", "AdaptiveAvgPool2d"])
def test_adaptive_kernels_and_forward_mode(name):
    x = X[None]
    each = call("equinox", name, x.shape, 2)
    assert not uses_lax(each.ours, x)
    got, want = (jax.jvp(fn, (x,), (jnp.sin(x),))[1] for fn in (each.ours, each.theirs))
    assert_arrays_match(got, want, 1e-6, name)


def test_nan_receives_cotangent_of_adaptive_window():
    """A documented difference: all gradients of Equinox are NaN."""
    x = jnp.array([[jnp.nan, 5.0, 2.0]])
    got, want = (
        jax.grad(lambda x, m=m: m.AdaptiveMaxPool1d(1)(x).sum())(x) for m in both_modules("equinox")
    )
    np.testing.assert_array_equal(got[0], [1, 0, 0])
    np.testing.assert_array_equal(want[0], [np.nan] * 3)
