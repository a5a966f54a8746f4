"""Arguments, docstrings and error messages of sharded pools, and the sizes of halos. One device suffices."""

import functools
import inspect

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.export import symbolic_shape
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool import sharded
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import make_window
from jaxpool._ops.elementwise import match_shardings
from jaxpool._shards.halo import Halo
from jaxpool._shards.split import sharding_from_type
from jaxpool._shards.unpool import _check_adjacent as check_near
from jaxpool._shards.unpool import _shard_halo as halo_of
from jaxpool.testing import pools
from tests.support.junk import Wrapper


def test_sharded_signature_equals_pool():
    pool = sharded(jaxpool.max_pool)
    assert inspect.signature(pool) == inspect.signature(jaxpool.max_pool)
    assert (pool.__name__, pool.__doc__) == ("max_pool", jaxpool.max_pool.__doc__)


def test_invalid_arguments_raise_pool_error():
    assert error_message(TypeError, sharded(jaxpool.max_pool), windows=2) == (
        error_message(TypeError, jaxpool.max_pool, windows=2)
    )
    assert error_message(TypeError, sharded(jaxpool.max_pool), [[1.0]], 2) == (
        error_message(TypeError, jaxpool.max_pool, [[1.0]], 2)
    )
    assert error_message(TypeError, sharded, 3) == (
        "jaxpool.sharded: `pool` must be a function of an array; got pool=3. Pass jaxpool.max_pool, say."
    )


def test_plan_of_reports_one_shard():
    types = {"axis_types": (AxisType.Explicit,)}
    mesh = AbstractMesh((4,), ("a",), **types)
    x = jax.ShapeDtypeStruct((1, 16, 8, 3), np.float32, sharding=NamedSharding(mesh, P(None, "a")))
    (row,) = jaxpool.plan_of(jaxpool.max_pool)(x, (3, 3), padding="SAME")
    assert (row.devices, row.output.shape) == (4, (1, 4, 8, 3))
    assert "shard       of one of 4 devices: these are the types of its part" in str(row)
    (whole,) = jaxpool.plan_of(jaxpool.max_pool)(np.ones((1, 16, 8, 3), np.float32), (3, 3))
    assert whole.devices == 1
    assert "shard" not in str(whole)


# Halos


def test_jax_array_protocol_is_accepted():
    mesh = jax.make_mesh((1,), ("a",), (AxisType.Auto,))
    pool = sharded(jaxpool.adaptive_avg_pool, mesh=mesh, spec=P(None, "a"))
    x = np.arange(16.0, dtype=np.float32).reshape(1, 4, 4, 1)
    y = pool(Wrapper(x), (2, 2))
    np.testing.assert_array_equal(y, jaxpool.adaptive_avg_pool(x, (2, 2)))


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pyramid_on_one_device_mesh_axis(kind):
    mesh = jax.make_mesh((1,), ("a",), (AxisType.Explicit,))
    x = np.arange(40.0, dtype=np.float32).reshape(1, 4, 5, 2)
    lying = jax.device_put(x, NamedSharding(mesh, P(None, "a")))
    with jax.set_mesh(mesh):
        y = jaxpool.spatial_pyramid_pool(lying, (2, 3), kind=kind)
    np.testing.assert_array_equal(y, jaxpool.spatial_pyramid_pool(x, (2, 3), kind=kind))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", ((3, 1),)])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6])
def test_halo_covers_rows_read_from_other_shards(stride, padding, count):
    tried = 0
    for size in range(count, 40, count):
        for window in range(1, 14):
            try:
                (dim,) = make_window((size, 1), (window,), (stride,), padding).dims
            except Exception:
                continue
            if dim.out % count:
                continue
            tried += 1
            halo = Halo(dim, ("a",), count)
            for shard in range(count):
                outs = range(shard * halo.num_windows, (shard + 1) * halo.num_windows)
                reads = [o * stride - dim.low + t for o in outs for t in (0, window - 1)]
                own = shard * halo.shard_size, (shard + 1) * halo.shard_size
                first, last = max(0, min(reads)), min(size - 1, max(reads))
                assert own[0] + halo.starts[shard] == min(reads)
                assert halo.num_rows == max(reads) - min(reads) + 1
                assert halo.rows_before[shard] == max(0, own[0] - first)
                assert halo.rows_after[shard] == max(0, last + 1 - own[1])
            if halo.crossing_windows is not None:
                begins = [o * stride - dim.low for o in range(halo.num_windows)]
                before = [o for o, n in enumerate(begins) if n < 0]
                after = [o for o, n in enumerate(begins) if n + window > halo.shard_size]
                assert [*map(list, halo.crossing_windows)] == [before, after]
                assert len(before) + len(after) < halo.num_windows
    assert tried


# Messages


def rows_mesh(count, kind=AxisType.Auto):
    return AbstractMesh((count,), ("rows",), axis_types=(kind,))


def error_message(kind, function, *args, **options):
    with pytest.raises(kind) as raised:
        function(*args, **options)
    return str(raised.value)


X = np.zeros((2, 16, 4, 3), np.float32)
ROWS = P(None, "rows")


def sharded_error_message(kind, pool, *args, mesh=None, spec=None, **options):
    """Return the error message of a call of `jaxpool.sharded(pool, mesh=mesh, spec=spec)`."""
    return error_message(kind, sharded(pool, mesh=mesh, spec=spec), *args, **options)


def test_missing_mesh_raises():
    assert sharded_error_message(TypeError, jaxpool.max_pool, X, (2, 2)) == (
        "jaxpool.sharded: `mesh` must be given where neither the type of x nor a context says it; got "
        "mesh=None (x.shape=(2, 16, 4, 3)). Pass the mesh over which x is sharded, or call jax.set_mesh."
    )


def test_missing_spec_raises():
    assert sharded_error_message(TypeError, jaxpool.avg_pool, X, (2, 2), mesh=rows_mesh(4)) == (
        "jaxpool.sharded: `spec` must be given where neither the type of x nor x itself says how it is "
        "sharded; got spec=None (x.shape=(2, 16, 4, 3)). "
        'Pass spec=PartitionSpec(None, "rows"), say, one entry for each axis of x.'
    )


def test_missing_spec_in_shard_map_raises():
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,), devices=jax.devices()[:1])
    local = functools.partial(sharded(jaxpool.min_pool), window_shape=(2, 2))
    run = jax.shard_map(local, mesh=mesh, in_specs=ROWS, out_specs=P())
    assert error_message(TypeError, run, jnp.asarray(X)) == (
        "jaxpool.sharded: `spec` must be given inside a shard_map, where types do not say which axes are "
        "sharded; got spec=None (x.shape=(2, 16, 4, 3)). "
        'Pass spec=PartitionSpec(None, "rows"), say, one entry for each axis of x.'
    )


@pytest.mark.parametrize(("size", "hint"), [(17, "Use 16 or 24 there."), (6, "Use 8 there.")])
def test_indivisible_size_raises(size, hint):
    x = np.zeros((2, size, 4, 3), np.float32)
    found = sharded_error_message(ValueError, jaxpool.sum_pool, x, 3, mesh=rows_mesh(8), spec=ROWS)
    assert found == (
        f"jaxpool.sharded: `x` must be of a size along axis 1 that its 8 shards divide; got "
        f"x.shape[1]={size} (x.shape=(2, {size}, 4, 3)). {hint}"
    )


@pytest.mark.parametrize(("size", "hint"), [(24, "Use 16 or 32 there."), (8, "Use 16 there.")])
def test_indivisible_output_size_raises(size, hint):
    x = np.zeros((2, size, 4, 3), np.float32)
    options = {"mesh": rows_mesh(8), "spec": ROWS}
    found = sharded_error_message(
        ValueError, jaxpool.sum_pool, x, (3, 3), (2, 2), "SAME", **options
    )
    assert found == (
        f"jaxpool.sum_pool: `x` must be of a size along axis 1 that its 8 shards divide, as they must the "
        f"{size // 2} of the output; got x.shape[1]={size} (x.shape=(2, {size}, 4, 3), "
        f"window_shape=(3, 3)). {hint}"
    )


def test_error_when_no_size_is_divisible():
    found = sharded_error_message(
        ValueError, jaxpool.max_pool, X, (3, 3), mesh=rows_mesh(4), spec=ROWS
    )
    assert found == (
        "jaxpool.max_pool: `x` must be of a size along axis 1 that its 4 shards divide, as they must the "
        "14 of the output; got x.shape[1]=16 (x.shape=(2, 16, 4, 3), window_shape=(3, 3)). With this "
        'window, stride and padding no size near it works: pad by "SAME", and use one that 4 divides.'
    )


def test_indivisible_batch_raises():
    found = sharded_error_message(
        ValueError, jaxpool.max_pool, X, (2, 2), mesh=rows_mesh(4), spec=P("rows")
    )
    assert found == (
        "jaxpool.sharded: `x` must be of a size along axis 0 that its 4 shards divide; got "
        "x.shape[0]=2 (x.shape=(2, 16, 4, 3)). Use 4 there."
    )


def test_symbolic_batch_must_be_divisible():
    """A symbolic batch size must be a multiple of the number of shards."""

    def pooled(batch):
        x = jax.ShapeDtypeStruct(symbolic_shape(f"{batch}, 4, 2"), np.float32)
        pool = sharded(jaxpool.max_pool, mesh=mesh, spec=P("rows"))
        return jax.eval_shape(functools.partial(pool, window_shape=(2,)), x).shape

    mesh = AbstractMesh((2,), ("rows",))
    assert str(pooled("2*b")) == "(2*b, 3, 2)"
    with pytest.raises(ValueError, match=r"that its 2 shards divide; got .* multiple of 2 there"):
        pooled("b")


def test_indivisible_adaptive_output_shape_raises():
    where = {"mesh": rows_mesh(4), "spec": ROWS}
    assert sharded_error_message(ValueError, jaxpool.adaptive_max_pool, X, (6, 2), **where) == (
        "jaxpool.adaptive_max_pool: `output_shape` must be of a size along axis 1 that its 4 shards "
        "divide, or 1 along every axis; got output_shape=(6, 2) (x.shape=(2, 16, 4, 3)). "
        "Use 4 or 8 there."
    )
    found = sharded_error_message(
        ValueError, jaxpool.adaptive_max_pool_with_argmax, X, (1, 1), **where
    )
    assert "that its 4 shards divide; got output_shape=(1, 1)" in found


def test_indivisible_groups_raise():
    where = {"mesh": rows_mesh(4), "spec": P(None, None, None, "rows")}
    x = np.zeros((2, 4, 4, 12), np.float32)
    assert sharded_error_message(ValueError, jaxpool.maxout, x, 6, **where) == (
        "jaxpool.maxout: `groups` must be a positive int that divides the axis of size 12, a multiple of "
        "its 4 shards; got groups=6 (x.shape=(2, 4, 4, 12)). Each group has as many elements."
    )


def test_unshardable_axis_raises():
    """An axis that must not be sharded raises, both under `jaxpool.sharded` and inside a shard_map."""
    (pool,) = (pool for pool in pools().values() if pool.takes("k"))
    assert sharded_error_message(
        ValueError, pool.function, X, 3, axis=1, mesh=rows_mesh(4), spec=ROWS
    ) == (
        f"jaxpool.{pool.name}: `x` must be whole along axis 1, not in 4 shards; got a spec of "
        "P(None, 'rows', None, None) (x.shape=(2, 16, 4, 3)). Give a spec that has None for axis 1, to "
        "jax.reshard or to jaxpool.sharded."
    )
    run = jax.shard_map(
        sharded(functools.partial(jaxpool.cummax, axis=1), spec=ROWS),
        mesh=rows_mesh(4),
        in_specs=ROWS,
        out_specs=ROWS,
    )
    assert error_message(ValueError, jax.eval_shape, run, X) == (
        "jaxpool.cummax: `x` must be whole along axis 1, not in 4 shards; got a spec of "
        "P(None, 'rows', None, None) (x.shape=(2, 4, 4, 3)). Call "
        "jax.lax.all_gather(x, ('rows',), axis=1, tiled=True) before it."
    )


def test_max_unpool_invalid_arguments_raise():
    where = {"mesh": rows_mesh(4), "spec": ROWS}
    indices = np.zeros(X.shape, np.int32)
    assert sharded_error_message(ValueError, jaxpool.max_unpool, X, indices, (30, 4), **where) == (
        "jaxpool.max_unpool: `spatial_shape` must be of a size along axis 1 that its 4 shards "
        "divide; got spatial_shape=(30, 4) (y.shape=(2, 16, 4, 3)). Use 28 or 32 there."
    )
    assert sharded_error_message(ValueError, jaxpool.max_unpool, X, indices, (32, 4), **where) == (
        "jaxpool.max_unpool: `indices` must be of the shard of its element along axis 1, or of "
        "one beside it; got indices=0 (y.shape=(2, 16, 4, 3), spatial_shape=(32, 4)). Use fewer than "
        "the 4 shards, or the plain function on one device."
    )
    found = sharded_error_message(
        ValueError, jaxpool.max_unpool, X[:, :0], indices[:, :0], (32, 4), **where
    )
    assert "`y` must be of at least one element along pooled axis 1; got y.shape[1]=0" in found


@pytest.mark.parametrize(
    ("kind", "spec", "rule"),
    [
        (TypeError, "rows", "with one entry for each axis of the array; got spec='rows'"),
        (
            ValueError,
            P(*[None] * 4, "rows"),
            "with one entry for each axis of the array, which has 4;",
        ),
    ],
)
def test_invalid_spec_raises(kind, spec, rule):
    found = sharded_error_message(kind, jaxpool.max_pool, X, (2, 2), mesh=rows_mesh(4), spec=spec)
    assert found.startswith(f"jaxpool.sharded: `spec` must be a jax.sharding.PartitionSpec {rule}")
    assert found.endswith('Pass PartitionSpec(None, "rows"), say, with names of axes of the mesh.')


@pytest.mark.parametrize("spec", [P(None, "columns"), P(None, P.UNCONSTRAINED), P("rows", "rows")])
def test_spec_with_unknown_mesh_axis_raises(spec):
    found = sharded_error_message(
        ValueError, jaxpool.max_pool, X, (2, 2), mesh=rows_mesh(4), spec=spec
    )
    rule = "of distinct axes of the mesh, 'rows'; got spec=P("
    assert found.startswith(f"jaxpool.sharded: `spec` must be {rule}")


def test_invalid_mesh_raises():
    assert sharded_error_message(
        TypeError, jaxpool.max_pool, X, (2, 2), mesh=8, spec=P("rows")
    ) == (
        "jaxpool.sharded: `mesh` must be a jax.sharding.Mesh; got mesh=8 (x.shape=(2, 16, 4, 3)). "
        "Pass what jax.make_mesh gave."
    )
    with jax.sharding.use_abstract_mesh(rows_mesh(4)):
        other = AbstractMesh((4,), ("columns",))
        found = sharded_error_message(
            ValueError, jaxpool.max_pool, X, (2, 2), mesh=other, spec=P("columns")
        )
    assert found.startswith("jaxpool.sharded: `mesh` must be that of the context, AbstractMesh(")


def test_spec_must_match_array_type():
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Explicit,), devices=jax.devices()[:1])
    x = jax.device_put(X, jax.sharding.NamedSharding(mesh, ROWS))
    assert sharded_error_message(
        ValueError, jaxpool.max_pool, x, (2, 2), spec=P(None, None, "rows")
    ) == (
        "jaxpool.sharded: `spec` must be what the type of x says, P(None, 'rows', None, None); "
        "got spec=P(None, None, 'rows') (x.shape=(2, 16, 4, 3)). "
        "Leave it out, or call jax.reshard first."
    )


def test_hint_omits_sizes_below_window():
    x = np.zeros((2, 8, 4, 3), np.float32)
    found = sharded_error_message(
        ValueError, jaxpool.max_pool, x, (6, 2), (4, 1), mesh=rows_mesh(4), spec=ROWS
    )
    assert found.endswith("Use 20 there.")


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_global_max_pool_non_float_dtypes(dtype):
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,), devices=jax.devices()[:1])
    x = np.random.default_rng(0).integers(0, 2, X.shape).astype(dtype)
    y = sharded(jaxpool.global_max_pool, mesh=mesh, spec=ROWS)(x)
    np.testing.assert_array_equal(y, x.max((1, 2)))


def test_unpool_indices_in_adjacent_shard():
    """8 rows in 4 shards with 4 positions each: an index into the previous or next shard is accepted."""
    near = 2 * (jnp.arange(8).clip(1, 6) + np.array([1, -1] * 4))[None, :, None]
    halos = [halo_of(1, ("rows",), 4, 2)]
    check_near(near, (1, 8, 1), (1,), (16,), halos)
    with pytest.raises(ArgumentError, match="of the shard of its element along axis 1") as raised:
        check_near((near + 8) % 16, (1, 8, 1), (1,), (16,), halos)
    assert raised.value.arg_name == "indices"


def test_spec_with_partly_manual_axes_raises():
    kinds = (AxisType.Auto, AxisType.Auto)
    mesh = jax.make_mesh((1, 1), ("rows", "more"), kinds, devices=jax.devices()[:1])
    spec = P(None, ("rows", "more"))
    run = jax.shard_map(
        functools.partial(sharded(jaxpool.max_pool, spec=spec), window_shape=(2, 2)),
        mesh=mesh,
        in_specs=P(None, "rows"),
        out_specs=P(None, "rows"),
        axis_names={"rows"},
    )
    assert error_message(ValueError, run, jnp.asarray(X)) == (
        "jaxpool.sharded: `spec` must be of axes that are all manual here, ['rows'], or none "
        "of them; got spec=P(None, ('rows', 'more')) (x.shape=(2, 16, 4, 3)). "
        "Map the others in the same shard_map."
    )


def test_symbolic_sizes_have_no_sharding():
    mesh, found = AbstractMesh((4,), ("rows",), axis_types=(AxisType.Explicit,)), []
    where = jax.sharding.NamedSharding(mesh, P("rows"))
    for size in (8, *jax.export.symbolic_shape("4*b")):
        x = jax.ShapeDtypeStruct((size, 16, 4, 3), np.float32, sharding=where)
        with jax.sharding.use_abstract_mesh(mesh):
            jax.eval_shape(lambda x: found.append(sharding_from_type(x)), x)
    assert found[0].mesh_axes[0] == ("rows",)
    assert found[1] is None


@pytest.mark.parametrize(
    ("specs", "together"),
    [
        ((P("i"), P(None, "j")), P("i", "j")),
        # a mesh axis is used once; the first operand has priority
        ((P("i"), P(None, "i")), P("i", None)),
        ((P("i"), P("j")), P("i", None)),
        ((P(), P(None, "j")), P(None, "j")),
    ],
)
def test_match_shardings_of_operands(specs, together):
    mesh, found = AbstractMesh((2, 2), ("i", "j"), axis_types=(AxisType.Explicit,) * 2), []
    xs = [
        jax.ShapeDtypeStruct((4, 4), np.float32, sharding=jax.sharding.NamedSharding(mesh, spec))
        for spec in specs
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        jax.eval_shape(lambda *xs: found.extend(map(jax.typeof, match_shardings(xs))), *xs)
    assert [each.sharding.spec for each in found] == [together, together]


@pytest.mark.parametrize("shape", [(0, 8, 2), (2, 8, 0)])
def test_max_unpool_of_empty_array(shape):
    unpool = sharded(jaxpool.max_unpool, mesh=rows_mesh(4), spec=ROWS)
    y, at = (jax.ShapeDtypeStruct(shape, dtype) for dtype in (np.float32, np.int32))
    x = jax.eval_shape(lambda y, at: unpool(y, at, (16,), axes=(1,)), y, at)
    assert x.shape == (shape[0], 16, shape[2])


@pytest.mark.parametrize("ties", ["first", "split"])
@pytest.mark.parametrize(("name", "over"), [("max", {}), ("maxout", {"groups": 1})])
def test_gradient_on_one_device_mesh_axis(name, over, ties):
    pool = sharded(getattr(jaxpool, name), mesh=rows_mesh(1), spec=P("rows"))
    x = jax.ShapeDtypeStruct((2, 4), np.float32)
    dx = jax.eval_shape(jax.grad(lambda x: pool(x, axis=0, ties=ties, **over).sum()), x)
    assert dx.shape == x.shape


def test_lp_pool_gradient_of_empty_batch():
    pool = sharded(jaxpool.lp_pool, mesh=rows_mesh(2), spec=P("rows"))
    x = jax.ShapeDtypeStruct((0, 8, 4), np.float32)
    dx = jax.eval_shape(jax.grad(lambda x: pool(x, 0.5, (2,)).sum()), x)
    assert dx.shape == x.shape
