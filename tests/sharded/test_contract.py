"""Arguments, docstrings and messages of sharded pools, and the arithmetic of halos; one device is enough."""

import functools
import inspect
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.export import symbolic_shape
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool import sharded
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import make_window
from jaxpool._ops.elementwise import sharded_alike
from jaxpool._shards.halo import Halo
from jaxpool._shards.place import place_by_type
from jaxpool._shards.unpool import Lying
from jaxpool._shards.unpool import _check_near as check_near

NAMES = sharded.__all__


def parameters(function):
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_the_plain_ones_and_where_x_lies(name):
    keyword = inspect.Parameter.KEYWORD_ONLY
    where = [("mesh", keyword, None), ("spec", keyword, None)]
    assert parameters(getattr(sharded, name)) == [*parameters(getattr(jaxpool, name)), *where]


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_tells_arguments_result_errors_an_example_and_its_source(name):
    text = inspect.getdoc(getattr(sharded, name))
    sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert sections == ["Args", "Returns", "Raises", "Example", "References"]
    assert re.search(rf">>> .*jaxpool\.sharded\.{name}\(", text)
    assert "Gradient" in text
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for parameter, _, _ in parameters(getattr(sharded, name)):
        assert re.search(rf"^\s+{parameter}: ", arguments, re.MULTILINE), parameter


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_argument_is_named(name):
    message = f"jaxpool.sharded.{name}: there is no argument `meshes`. Did you mean `mesh`?"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        getattr(sharded, name)(meshes=None)


# Halos


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", ((3, 1),)])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6])
def test_a_halo_is_what_the_windows_of_a_shard_read_elsewhere(stride, padding, count):
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
                outs = range(shard * halo.outs, (shard + 1) * halo.outs)
                reads = [o * stride - dim.low + t for o in outs for t in (0, window - 1)]
                own = shard * halo.own, (shard + 1) * halo.own
                first, last = max(0, min(reads)), min(size - 1, max(reads))
                assert own[0] + halo.starts[shard] == min(reads)
                assert halo.length == max(reads) - min(reads) + 1
                assert halo.before[shard] == max(0, own[0] - first)
                assert halo.after[shard] == max(0, last + 1 - own[1])
            if halo.crossing is not None:
                begins = [o * stride - dim.low for o in range(halo.outs)]
                before = [o for o, n in enumerate(begins) if n < 0]
                after = [o for o, n in enumerate(begins) if n + window > halo.own]
                assert [*map(list, halo.crossing)] == [before, after]
                assert len(before) + len(after) < halo.outs
    assert tried


# Messages


def rows(count, kind=AxisType.Auto):
    return AbstractMesh((count,), ("rows",), axis_types=(kind,))


def message(kind, function, *args, **options):
    with pytest.raises(kind) as raised:
        function(*args, **options)
    return str(raised.value)


X = np.zeros((2, 16, 4, 3), np.float32)


def test_nothing_says_which_mesh():
    assert message(TypeError, sharded.max_pool, X, (2, 2)) == (
        "jaxpool.sharded.max_pool: `mesh` must be given where neither the type of x nor a context "
        "says it; got mesh=None (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). "
        "Pass the mesh over which x is sharded, or call jax.set_mesh."
    )


def test_nothing_says_how_x_is_sharded():
    assert message(TypeError, sharded.avg_pool, X, (2, 2), mesh=rows(4)) == (
        "jaxpool.sharded.avg_pool: `spec` must be given where neither the type of x nor x itself "
        "says how it is sharded; got spec=None (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). "
        'Pass spec=PartitionSpec(None, "rows"), say, one entry an axis of x.'
    )


def test_nothing_says_how_x_is_sharded_inside_a_shard_map():
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,), devices=jax.devices()[:1])
    run = jax.shard_map(
        lambda x: sharded.min_pool(x, (2, 2)), mesh=mesh, in_specs=P(None, "rows"), out_specs=P()
    )
    assert message(TypeError, run, jnp.asarray(X)) == (
        "jaxpool.sharded.min_pool: `spec` must be given inside a shard_map, where types do not say "
        "which axes are sharded; got spec=None (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). "
        'Pass spec=PartitionSpec(None, "rows"), say, one entry an axis of x.'
    )


@pytest.mark.parametrize(
    ("size", "hint"),
    [(20, "Use 16 or 32 there."), (17, "Use 16 or 32 there."), (12, "Use 16 there.")],
)
def test_sizes_that_work(size, hint):
    x = np.zeros((2, size, 4, 3), np.float32)
    out = -(-size // 2)
    found = message(
        ValueError, sharded.sum_pool, x, (3, 3), (2, 2), "SAME", mesh=rows(8), spec=P(None, "rows")
    )
    assert found == (
        f"jaxpool.sharded.sum_pool: `x` must be of a size along axis 1 that its 8 shards divide, as "
        f"they must the {out} of the output; got x.shape[1]={size} (x.shape=(2, {size}, 4, 3), "
        f"window_shape=(3, 3)). {hint}"
    )


def test_no_size_works():
    found = message(ValueError, sharded.max_pool, X, (3, 3), mesh=rows(4), spec=P(None, "rows"))
    assert found == (
        "jaxpool.sharded.max_pool: `x` must be of a size along axis 1 that its 4 shards divide, as "
        "they must the 14 of the output; got x.shape[1]=16 (x.shape=(2, 16, 4, 3), "
        "window_shape=(3, 3)). With this window, stride and padding no size near it works: pad by "
        '"SAME", and use one that 4 divides.'
    )


def test_a_batch_that_does_not_divide():
    found = message(ValueError, sharded.max_pool, X, (2, 2), mesh=rows(4), spec=P("rows"))
    assert found == (
        "jaxpool.sharded.max_pool: `x` must be of a size along axis 0 that its 4 shards divide; got "
        "x.shape[0]=2 (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). Use 4 there."
    )
    found = message(ValueError, sharded.global_max_pool, X, mesh=rows(3), spec=P(None, "rows"))
    assert found == (
        "jaxpool.sharded.global_max_pool: `x` must be of a size along axis 1 that its 3 shards "
        "divide; got x.shape[1]=16 (x.shape=(2, 16, 4, 3)). Use 15 or 18 there."
    )


def test_a_batch_that_nobody_knows():
    """A symbol is a multiple of the shards, or it is refused."""

    def pooled(batch):
        x = jax.ShapeDtypeStruct(symbolic_shape(f"{batch}, 4, 2"), np.float32)
        pool = functools.partial(sharded.max_pool, window_shape=(2,), mesh=mesh, spec=P("rows"))
        return jax.eval_shape(pool, x).shape

    mesh = AbstractMesh((2,), ("rows",))
    assert str(pooled("2*b")) == "(2*b, 3, 2)"
    with pytest.raises(ValueError, match=r"that its 2 shards divide; got .* multiple of 2 there"):
        pooled("b")


def test_numbers_of_adaptive_windows_that_work():
    found = message(
        ValueError, sharded.adaptive_max_pool, X, (6, 2), mesh=rows(4), spec=P(None, "rows")
    )
    assert found == (
        "jaxpool.sharded.adaptive_max_pool: `output_shape` must be of a size along axis 1 that its 4 "
        "shards divide, or 1 along every axis; got output_shape=(6, 2) (x.shape=(2, 16, 4, 3)). "
        "Use 4 or 8 there."
    )
    found = message(
        ValueError,
        sharded.adaptive_max_pool_with_argmax,
        *(X, (1, 1)),
        mesh=rows(4),
        spec=P(None, "rows"),
    )
    assert "that its 4 shards divide; got output_shape=(1, 1)" in found


def test_sizes_and_indices_that_unpooling_takes():
    where = {"mesh": rows(4), "spec": P(None, "rows")}
    indices = np.zeros(X.shape, np.int32)
    found = message(ValueError, sharded.max_unpool, X, indices, (30, 4), **where)
    assert found == (
        "jaxpool.sharded.max_unpool: `spatial_shape` must be of a size along axis 1 that its 4 shards "
        "divide; got spatial_shape=(30, 4) (y.shape=(2, 16, 4, 3)). Use 28 or 32 there."
    )
    found = message(ValueError, sharded.max_unpool, X, indices, (32, 4), **where)
    assert found == (
        "jaxpool.sharded.max_unpool: `indices` must be of the shard of its element along axis 1, or of "
        "one beside it; got indices=0 (y.shape=(2, 16, 4, 3), spatial_shape=(32, 4)). Use fewer than "
        "the 4 shards, or the plain function on one device."
    )
    found = message(ValueError, sharded.max_unpool, X[:, :2], indices[:, :2], (32, 4), **where)
    assert "`y` must be of a size along axis 1 that its 4 shards divide; got y.shape[1]=2" in found
    found = message(ValueError, sharded.max_unpool, X[:, :0], indices[:, :0], (32, 4), **where)
    assert "`y` must be of at least one element along pooled axis 1; got y.shape[1]=0" in found


@pytest.mark.parametrize(
    ("kind", "spec", "rule"),
    [
        (
            TypeError,
            "rows",
            "a jax.sharding.PartitionSpec with one entry an axis of x; got spec='rows'",
        ),
        (
            ValueError,
            P(*[None] * 4, "rows"),
            "a jax.sharding.PartitionSpec with one entry an axis of x, which has 4;",
        ),
        (
            ValueError,
            P(None, "columns"),
            "of distinct axes of the mesh, 'rows'; got spec=P(None, 'columns')",
        ),
        (ValueError, P(None, P.UNCONSTRAINED), "of distinct axes of the mesh, 'rows'; got"),
    ],
)
def test_specs_that_cannot_be_taken(kind, spec, rule):
    found = message(kind, sharded.max_pool, X, (2, 2), mesh=rows(4), spec=spec)
    assert found.startswith(f"jaxpool.sharded.max_pool: `spec` must be {rule}")
    assert found.endswith('Pass PartitionSpec(None, "rows"), say, with names of axes of the mesh.')


def test_a_mesh_that_is_none():
    assert message(TypeError, sharded.max_pool, X, (2, 2), mesh=8, spec=P("rows")) == (
        "jaxpool.sharded.max_pool: `mesh` must be a jax.sharding.Mesh; got mesh=8 "
        "(x.shape=(2, 16, 4, 3), window_shape=(2, 2)). Pass what jax.make_mesh gave."
    )


def test_a_spec_that_is_not_that_of_the_type():
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Explicit,), devices=jax.devices()[:1])
    x = jax.device_put(X, jax.sharding.NamedSharding(mesh, P(None, "rows")))
    found = message(ValueError, sharded.max_pool, x, (2, 2), spec=P(None, None, "rows"))
    assert found == (
        "jaxpool.sharded.max_pool: `spec` must be what the type of x says, P(None, 'rows', None, None); "
        "got spec=P(None, None, 'rows') (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). "
        "Leave it out, or call jax.reshard first."
    )


def test_what_the_plain_functions_refuse():
    where = {"mesh": rows(4), "spec": P(None, "rows")}
    found = message(ValueError, sharded.max_pool, X, (2, 2), ties="both", **where)
    assert found.startswith(
        "jaxpool.sharded.max_pool: `ties` must be 'first', 'last' or 'split'; got"
    )
    found = message(TypeError, sharded.sum_pool, X > 0, (2, 2), (2, 2), **where)
    assert found.startswith(
        "jaxpool.sharded.sum_pool: `x` must be an array of floats or integers; got"
    )
    found = message(ValueError, sharded.lp_pool, X, 0, (2, 2), (2, 2), **where)
    assert found.startswith("jaxpool.sharded.lp_pool: `p` must be a number above 0, or inf; got")
    found = message(TypeError, sharded.avg_pool, X, (2, 2), (2, 2), count_include_pad=1, **where)
    assert found.startswith(
        "jaxpool.sharded.avg_pool: `count_include_pad` must be True or False; got"
    )
    found = message(ValueError, sharded.max_pool_with_argmax, X, (40, 2), **where)
    assert found.startswith("jaxpool.sharded.max_pool_with_argmax: `window_shape` must be at most")


def test_sizes_that_the_window_does_not_fit_are_not_named():
    x = np.zeros((2, 6, 4, 3), np.float32)
    found = message(ValueError, sharded.max_pool, x, (5, 2), mesh=rows(4), spec=P(None, "rows"))
    assert found.endswith("Use 8 there.")


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_a_maximum_of_all_that_is_no_float(dtype):
    mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,), devices=jax.devices()[:1])
    x = np.random.default_rng(0).integers(0, 2, X.shape).astype(dtype)
    y = sharded.global_max_pool(x, mesh=mesh, spec=P(None, "rows"))
    np.testing.assert_array_equal(y, x.max((1, 2)))


def test_indices_beside_the_shard_of_their_element():
    """Of 8 rows in 4 shards that have 4 positions each: a position of the shard before or after is taken."""
    near = 2 * (jnp.arange(8).clip(1, 6) + np.array([1, -1] * 4))[None, :, None]
    lying = [Lying(1, ("rows",), 4)]
    check_near(near, (1, 8, 1), (1,), (16,), lying)
    with pytest.raises(ArgumentError, match="of the shard of its element along axis 1") as raised:
        check_near((near + 8) % 16, (1, 8, 1), (1,), (16,), lying)
    assert raised.value.argument == "indices"


def test_a_spec_of_axes_that_are_manual_in_part():
    kinds = (AxisType.Auto, AxisType.Auto)
    mesh = jax.make_mesh((1, 1), ("rows", "more"), kinds, devices=jax.devices()[:1])
    spec = P(None, ("rows", "more"))
    run = jax.shard_map(
        lambda x: sharded.max_pool(x, (2, 2), spec=spec),
        mesh=mesh,
        in_specs=P(None, "rows"),
        out_specs=P(None, "rows"),
        axis_names={"rows"},
    )
    assert message(ValueError, run, jnp.asarray(X)) == (
        "jaxpool.sharded.max_pool: `spec` must be of axes that are all manual here, ['rows'], or none "
        "of them; got spec=P(None, ('rows', 'more')) (x.shape=(2, 16, 4, 3), window_shape=(2, 2)). "
        "Map the others in the same shard_map."
    )


def test_of_an_array_of_unknown_size_no_type_says_where_it_lies():
    mesh, found = AbstractMesh((4,), ("rows",), axis_types=(AxisType.Explicit,)), []
    where = jax.sharding.NamedSharding(mesh, P("rows"))
    for size in (8, *jax.export.symbolic_shape("4*b")):
        x = jax.ShapeDtypeStruct((size, 16, 4, 3), np.float32, sharding=where)
        with jax.sharding.use_abstract_mesh(mesh):
            jax.eval_shape(lambda x: found.append(place_by_type(x)), x)
    assert found[0].names[0] == ("rows",)
    assert found[1] is None


@pytest.mark.parametrize(
    ("specs", "together"),
    [
        ((P("i"), P(None, "j")), P("i", "j")),
        ((P("i"), P(None, "i")), P("i", None)),  # no mesh axis twice
        ((P("i"), P("j")), P("i", None)),  # as the first
        ((P(), P(None, "j")), P(None, "j")),
    ],
)
def test_operands_are_sharded_as_any_of_them_is(specs, together):
    mesh, found = AbstractMesh((2, 2), ("i", "j"), axis_types=(AxisType.Explicit,) * 2), []
    xs = [
        jax.ShapeDtypeStruct((4, 4), np.float32, sharding=jax.sharding.NamedSharding(mesh, spec))
        for spec in specs
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        jax.eval_shape(lambda *xs: found.extend(map(jax.typeof, sharded_alike(xs))), *xs)
    assert [each.sharding.spec for each in found] == [together, together]


@pytest.mark.parametrize("shape", [(0, 8, 2), (2, 8, 0)])
def test_of_nothing_there_is_nothing_to_unpool(shape):
    where = {"axes": (1,), "mesh": rows(4), "spec": P(None, "rows")}
    y, at = (jax.ShapeDtypeStruct(shape, dtype) for dtype in (np.float32, np.int32))
    x = jax.eval_shape(lambda y, at: sharded.max_unpool(y, at, (16,), **where), y, at)
    assert x.shape == (shape[0], 16, shape[2])
