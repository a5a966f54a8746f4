"""Arguments, docstrings and error messages of sharded pools, and the sizes of halos. One device suffices."""

import functools
import inspect
import pathlib

import jax
import numpy as np
import pytest
from jax.export import symbolic_shape
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool import sharded
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import sharding_from_type
from jaxpool._geometry.window import make_window
from jaxpool._shards.halo import Halo
from jaxpool._shards.unpool import _check_adjacent as check_near
from jaxpool._shards.unpool import _shard_halo as halo_of
from jaxpool.compat import torch, torchvision
from tests.support import bad_calls
from tests.support.junk import Wrapper


def test_sharded_signature_equals_pool():
    pool = sharded(jaxpool.max_pool)
    assert inspect.signature(pool) == inspect.signature(jaxpool.max_pool)
    assert (pool.__name__, pool.__doc__) == ("max_pool", jaxpool.max_pool.__doc__)


def test_plan_of_reports_one_shard_and_strips():
    where = NamedSharding(rows_mesh(4, AxisType.Explicit), ROWS)
    x = jax.ShapeDtypeStruct((1, 16, 8, 3), np.float32, sharding=where)
    (row,) = jaxpool.plan_of(jaxpool.max_pool)(x, (3, 3), padding="SAME")
    assert (row.devices, row.inputs[0].shape, row.output.shape) == (4, (1, 4, 8, 3), (1, 4, 8, 3))
    shard, *strips = [each for each in row.passes["cpu"].forward if each.terms == 9]
    assert [each.shape for each in shard.writes] == [row.output.shape] * 2
    assert {each.writes[0].shape[1] for each in strips} == {1}
    assert "shard       of one of 4 devices: these are the types of its part" in str(row)
    (whole,) = jaxpool.plan_of(jaxpool.max_pool)(np.ones((1, 16, 8, 3), np.float32), (3, 3))
    assert whole.devices == 1
    assert "shard" not in str(whole)


def test_jax_array_protocol_is_accepted():
    mesh = jax.make_mesh((1,), ("a",), (AxisType.Auto,))
    pool = sharded(jaxpool.adaptive_avg_pool, mesh=mesh, spec=P(None, "a"))
    x = np.arange(16.0, dtype=np.float32).reshape(1, 4, 4, 1)
    y = pool(Wrapper(x), (2, 2))
    np.testing.assert_array_equal(y, jaxpool.adaptive_avg_pool(x, (2, 2)))


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

X = np.zeros((2, 16, 4, 3), np.float32)
ROWS = P(None, "rows")
INDICES = np.zeros(X.shape, np.int32)
KEY = jax.random.key(0)
TABLE = np.ones((1, 5), np.float32)
LEVELS = functools.partial(torchvision.MultiScaleRoIAlign(["0"], 1, 2), boxes=[TABLE[:, 1:]] * 2)
SYMBOLIC = jax.ShapeDtypeStruct(symbolic_shape("b, 4, 2"), np.float32)
BAD_CALLS = bad_calls.read(pathlib.Path(__file__).parent / "bad_calls.txt")


def rows_mesh(count, kind=AxisType.Auto):
    return AbstractMesh((count,), ("rows",), axis_types=(kind,))


def over(count, pool, spec=ROWS):
    return sharded(pool, mesh=rows_mesh(count), spec=spec)


def of_rows(size):
    return np.zeros((2, size, 4, 3), np.float32)


def in_shard_map(function, mesh=None, **more):
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,)) if mesh is None else mesh
    mapped = jax.shard_map(function, mesh=mesh, in_specs=ROWS, out_specs=ROWS, **more)
    return jax.eval_shape(mapped, X)


def with_context(mesh, function, *args):
    with jax.sharding.use_abstract_mesh(mesh):
        return function(*args)


def with_type(function, count=1):
    """Trace a function of an array whose type says that its rows are sharded."""
    mesh = rows_mesh(count, AxisType.Explicit)
    like = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, ROWS))
    return with_context(mesh, jax.eval_shape, function, like)


def with_partly_manual_axes():
    mesh = jax.make_mesh((1, 1), ("rows", "more"), (AxisType.Auto,) * 2)
    pool = sharded(jaxpool.max_pool, spec=P(None, ("rows", "more")))
    return in_shard_map(lambda x: pool(x, (2, 2)), mesh, axis_names={"rows"})


def on_shards_of(spec, function):
    """Trace `function` of a shard in a `shard_map` over four devices."""
    return in_shard_map(sharded(function, spec=spec), rows_mesh(4))


@pytest.mark.parametrize(("call", "parts"), BAD_CALLS)
def test_error_message(call, parts):
    with pytest.raises((TypeError, ValueError)) as raised:
        eval(call, {**vars(jaxpool), **globals(), "torch": torch})
    assert bad_calls.matches_parts(f"{raised.type.__name__}: {raised.value}", parts)


def test_divisible_symbolic_batch():
    x = jax.ShapeDtypeStruct(symbolic_shape("2*b, 4, 2"), np.float32)
    pool = functools.partial(over(2, jaxpool.max_pool, P("rows")), window_shape=(2,))
    assert str(jax.eval_shape(pool, x).shape) == "(2*b, 3, 2)"


def test_unpool_indices_in_adjacent_shard():
    """8 rows in 4 shards with 4 positions each: an index into the previous or next shard is accepted."""
    near = 2 * (np.arange(8).clip(1, 6) + np.array([1, -1] * 4))[None, :, None]
    halos = [halo_of(1, ("rows",), 4, 2)]
    check_near(near, (1, 8, 1), (1,), (16,), halos)
    with pytest.raises(ArgumentError, match="of the shard of its element along axis 1") as raised:
        check_near((near + 8) % 16, (1, 8, 1), (1,), (16,), halos)
    assert raised.value.arg_name == "indices"


def test_symbolic_sizes_have_no_sharding():
    mesh, found = rows_mesh(4, AxisType.Explicit), []
    where = NamedSharding(mesh, P("rows"))
    for size in (8, *symbolic_shape("4*b")):
        x = jax.ShapeDtypeStruct((size, 16, 4, 3), np.float32, sharding=where)
        with jax.sharding.use_abstract_mesh(mesh):
            jax.eval_shape(lambda x: found.append(sharding_from_type(x)), x)
    assert found[0].mesh_axes[0] == ("rows",)
    assert found[1] is None


def test_lp_pool_gradient_of_empty_batch():
    pool = over(2, jaxpool.lp_pool, P("rows"))
    x = jax.ShapeDtypeStruct((0, 8, 4), np.float32)
    dx = jax.eval_shape(jax.grad(lambda x: pool(x, 0.5, (2,)).sum()), x)
    assert dx.shape == x.shape
