"""`accelerate` on programs of jax alone: which it takes over, in every nesting, and which it leaves."""

import functools
import inspect
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.lax import reduce_window  # by name, before any call of accelerate

import jaxpool
from jaxpool import accelerate

P = jax.sharding.PartitionSpec


def max_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def min_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, jnp.inf, lax.min, window, strides, padding)


def sum_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, 0.0, lax.add, window, strides, padding)


def numbers(*shape, dtype=np.float32):
    """Distinct numbers."""
    size = int(np.prod(shape))
    return jnp.asarray(np.random.default_rng(0).permutation(size).reshape(shape) - size // 2, dtype)


X = numbers(4, 4)


def program(fn, *args):
    return str(jax.make_jaxpr(fn)(*args))


def taken_over(fn, *args):
    """Whether nothing of lax's pools is left in the program of `fn`, derivatives included."""
    text = program(fn, *args)
    return "reduce_window" not in text and "select_and" not in text


# Every nesting


def twice(x):
    return 2 * max_pool(x)


def scanned(x):
    step = jax.checkpoint(jax.jit(lambda total, row: (total + max_pool(row).sum(), min_pool(row))))
    return lax.scan(step, 0.0, jnp.stack([x, -x]))


@jax.custom_jvp
def with_jvp(x):
    return max_pool(x) ** 2


@with_jvp.defjvp
def _with_jvp(primals, tangents):
    y, y_dot = jax.jvp(max_pool, primals, tangents)
    return y**2, 2 * y * y_dot


@jax.custom_vjp
def with_vjp(x):
    return max_pool(x)


with_vjp.defvjp(lambda x: jax.vjp(max_pool, x), lambda pullback, dy: pullback(3 * dy))


def sharded(x):
    mesh = jax.make_mesh((1,), ("i",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:1])
    return jax.shard_map(max_pool, mesh=mesh, in_specs=P("i"), out_specs=P("i"))(x)


def nested_grad(x):
    return jax.grad(lambda x: (max_pool(x) ** 2).sum())(x) + jax.grad(lambda x: sum_pool(x)[0, 0])(
        x
    )


NESTINGS = {
    "plain": twice,
    "by name": lambda x: reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"),
    "jit": jax.jit(twice),
    "checkpoint": jax.checkpoint(twice),
    "jit in scan in checkpoint": scanned,
    "map": lambda x: lax.map(max_pool, jnp.stack([x, -x])),
    "fori": lambda x: lax.fori_loop(0, 2, lambda i, y: y + max_pool(y).sum(), x),
    "cond": lambda x: lax.cond(x.sum() > 0, max_pool, min_pool, x),
    "switch": lambda x: lax.switch(1, [min_pool, max_pool, sum_pool], x),
    "custom_jvp": with_jvp,
    "custom_vjp": with_vjp,
    "vmap": lambda x: jax.vmap(jax.vmap(max_pool, 2, 1))(jnp.stack([x, -x], 2)[None]),
    "shard_map": sharded,
    "grad": nested_grad,
    "jvp": lambda x: jax.jvp(lambda x: max_pool(x) * sum_pool(x), (x,), (x[::-1],))[1],
    "all kinds": lambda x: {"max": max_pool(x), "rest": [min_pool(x), (None, sum_pool(x))]},
}


@pytest.mark.parametrize("name", NESTINGS)  # on whole numbers, whose sums are exact
def test_every_nesting_is_taken_over_and_equal(name):
    def loss(x):
        leaves = [leaf.ravel() for leaf in jax.tree.leaves(NESTINGS[name](x))]
        return sum(jnp.vdot(leaf, jnp.arange(leaf.size) % 5 - 1.5) for leaf in leaves)

    step = jax.jit(jax.value_and_grad(loss))
    before = step(X)  # jitted, and every cache of jax filled, before it is accelerated
    assert not taken_over(step, X)

    jax.tree.map(np.testing.assert_array_equal, accelerate(step)(X), before)
    for form in (
        accelerate(step),
        accelerate(jax.value_and_grad(loss)),
        jax.value_and_grad(accelerate(loss)),
        jax.jit(jax.value_and_grad(accelerate(jax.jit(loss)))),
    ):
        assert taken_over(form, X)
    assert not taken_over(step, X)  # and nothing of it is left behind


def test_a_while_loop_is_taken_over():
    def halve(x):
        return lax.while_loop(lambda x: max_pool(x).sum() > 1, lambda x: x - sum_pool(x).sum(), x)

    assert not taken_over(halve, X)
    assert taken_over(accelerate(halve), X)


def test_transformations_from_outside():
    def energy(x):
        return (max_pool(x) ** 3).sum()

    fast = accelerate(energy)
    for transform in (
        lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),)),
        lambda f: lambda x: jax.linearize(f, x)[1](jnp.cos(x)),
        jax.jacfwd,
        jax.jacrev,
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (jnp.cos(x),)),
    ):
        assert taken_over(transform(fast), X)
    assert taken_over(jax.vmap(jax.vmap(fast, 2)), jnp.ones((3, 4, 4, 2)))
    for second in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        want = jnp.diag(6 * X.ravel()) * (jax.grad(energy)(X) != 0).ravel()
        np.testing.assert_array_equal(second(fast)(X).reshape(16, 16), want)
    pooled = accelerate(sum_pool)
    (dx,) = jax.linear_transpose(pooled, X)(numbers(2, 2))
    np.testing.assert_array_equal(dx, jnp.kron(numbers(2, 2), jnp.ones((2, 2))))


def test_a_jaxpr_traced_before():
    before = jax.make_jaxpr(jax.jit(lambda x: max_pool(jnp.sin(x))))(X)
    flat = jax.make_jaxpr(max_pool)(X)

    def run(traced, x):
        return jax.core.eval_jaxpr(traced.jaxpr, traced.consts, x)[0].sum()

    assert taken_over(accelerate(functools.partial(run, flat)), X)
    assert taken_over(accelerate(jax.grad(functools.partial(run, before))), X)


# Programs that stay as they are


def test_a_program_without_pools_is_untouched():
    def step(w, x):
        return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), jnp.sort(x), jnp.cumsum(x, 1)

    assert program(accelerate(step), X, X) == program(step, X, X)
    assert taken_over(accelerate(lambda x: x), X)


def test_cumulative_operations_lower_as_before():
    def cumulative(x):
        return lax.cummax(x), jnp.cumsum(x), lax.cumlogsumexp(x)

    x, fast = numbers(9), accelerate(jax.jit(cumulative))
    assert fast.lower(x).as_text() == jax.jit(cumulative).lower(x).as_text()


KEPT = {
    "base_dilation is not 1": lambda x: lax.reduce_window(
        x, 0.0, lax.add, (2, 2), (1, 1), "VALID", base_dilation=(2, 2)
    ),
    "negative padding": lambda x: max_pool(x, padding=((-1, 0), (0, 0))),
    "every window is one element": lambda x: max_pool(x, (1, 1), (1, 1)),
    "complex64 has no sum here": lambda x: lax.reduce_window(
        x + 1j, 0.0, lax.add, (2, 2), (1, 1), "VALID"
    ),
    "the reduction is no max, min or sum of two numbers": lambda x: lax.reduce_window(
        x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"
    ),
    "a running reduction: so lax computes cumsum and cummax": lambda x: max_pool(
        x, (4, 1), (1, 1), ((3, 0), (0, 0))
    ),
    "window_shape is not at most the padded input, 4 along axis 0 (it spans 5)": (
        lambda x: max_pool(x, (5, 1))
    ),
    "the initial value of a padded sum may not be 0": lambda x: lax.reduce_window(
        x, x[0, 0], lax.add, (2, 2), (1, 1), "SAME"
    ),
}


@pytest.mark.parametrize("reason", KEPT)
def test_what_is_left_runs_as_before_and_says_why(reason):
    found = []
    assert program(accelerate(KEPT[reason], report=found.append), X) == program(KEPT[reason], X)
    assert [(left.taken_over, left.reason) for left in found] == [(False, reason)]


def test_several_operands_are_left():
    def both(x):
        def join(a, b):
            return jax.tree.map(lambda a, b: lax.select(a > b, a, b), a, b)

        return lax.reduce_window((x, x), (-jnp.inf, -jnp.inf), join, (2, 2), (2, 2), "VALID")

    assert program(accelerate(both), X) == program(both, X)


def test_sharded_along_a_pooled_axis_is_left():
    mesh = jax.make_mesh((1,), ("i",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    found = []
    with jax.set_mesh(mesh):
        fast = accelerate(max_pool, report=found.append)
        for spec in (P("i"), P()):
            fast(jax.device_put(X, jax.NamedSharding(mesh, spec)))
    assert [left.reason for left in found] == ["sharded along a pooled axis", None]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: max_pool(x, (2,)),
        lambda x: max_pool(x, (0, 1)),
        lambda x: max_pool(x, (2, 2), (2,)),
        lambda x: max_pool(["a"]),
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1), (1, 1), "FULL"),
        lambda x: lax.reduce_window(x.astype(jnp.bfloat16), jnp.inf, jnp.minimum, (2, 2)),
        lambda x: lax.reduce_window(x > 0, False, lax.add, (2, 2)),
    ],
)
def test_errors_are_those_of_lax(wrong):
    def raised(fn):
        with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)) as error:
            fn(X)
        return error.type, str(error.value)

    assert raised(accelerate(wrong)) == raised(wrong)


# Numbers: lax's, but where lax is wrong

GEOMETRIES = {
    "overlapping": ((3, 2), (1, 1), "SAME"),
    "with gaps": ((2, 1), (3, 2), "VALID"),
    "padded": ((3, 3), (2, 2), ((1, 2), (0, 1))),
    "a window of padding": ((2, 2), (2, 2), ((4, 0), (0, 3))),
    "subsampled": ((1, 1), (2, 3), ((0, 1), (0, 0))),
    "long": ((1, 6), (1, 1), "SAME_LOWER"),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_values_and_gradients_are_those_of_lax(name):
    x = numbers(7, 6)

    @jax.jit
    def pools(x):
        def every(x):
            y = max_pool(x, *GEOMETRIES[name]), min_pool(x, *GEOMETRIES[name])
            return [*y, sum_pool(x, *GEOMETRIES[name])]

        y, pullback = jax.vjp(every, x)
        dys = [jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) for y in y]
        return y, pullback([dys[0], dys[1], dys[2]])

    assert taken_over(accelerate(pools), x)
    want, got = pools(x), accelerate(pools)(x)
    for wanted, given in zip(want[0], got[0], strict=True):
        np.testing.assert_array_equal(given, wanted)
    np.testing.assert_allclose(got[1][0], want[1][0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, bool, jnp.bfloat16, np.float16])
def test_every_dtype(dtype):
    x = numbers(4, 4).astype(dtype)
    low, high = (False, True) if dtype is bool else (-jnp.inf, jnp.inf)
    if jnp.issubdtype(dtype, jnp.integer):
        low, high = (dtype(getattr(jnp.iinfo(dtype), end)) for end in ("min", "max"))

    def pools(x):
        y = [lax.reduce_window(x, low, lax.max, (2, 3), (1, 1), "SAME")]
        y += [lax.reduce_window(x, high, lax.min, (2, 3), (1, 1), "SAME")]
        return y if dtype is bool else [*y, lax.reduce_window(x, dtype(0), lax.add, (2, 2))]

    assert taken_over(accelerate(pools), x)
    for given, wanted in zip(accelerate(jax.jit(pools))(x), pools(x), strict=True):
        assert given.dtype == wanted.dtype
        np.testing.assert_array_equal(given, wanted)


def test_general_reductions_that_are_a_max_min_or_sum():
    @jax.jit
    def pools(x, start):
        given = jnp.array(-jnp.inf)  # traced: jax no longer knows its value
        return (
            lax.reduce_window(x, -jnp.inf, jnp.maximum, (2, 2), (2, 2), "SAME"),
            lax.reduce_window(x, np.float32(np.inf), lambda a, b: lax.min(b, a), (2, 2)),
            lax.reduce_window(x, 0.0, jnp.add, (3, 2), (1, 1), "SAME"),
            lax.reduce_window(x, given, lax.max, (2, 2), (2, 2), ((0, 2), (1, 1))),
            lax.reduce_window(x, start, lax.max, (2, 2), (2, 2), ((0, 2), (0, 0))),
            lax.reduce_window(x, start, lax.min, (2, 2), (2, 2)),
            lax.reduce_window(x, start, lax.add, (2, 2), (2, 2)),
        )

    fast, y, least = accelerate(pools), np.asarray(max_pool(X)), np.asarray(min_pool(X))
    start = y[0, 0]  # ties with a maximum, which then gets the cotangent
    assert taken_over(fast, X, start)
    for given, wanted in zip(fast(X, start), pools(X, start), strict=True):
        np.testing.assert_array_equal(given, wanted)
    dx, dstart = jax.grad(lambda *args: sum(map(jnp.sum, fast(*args)[4:])), (0, 1))(X, start)
    chosen = (y >= start).sum() + (least <= start).sum()
    assert dx.sum() == 16 + chosen
    assert dstart == 4 + (2 + 4 + 4 - chosen)  # two windows hold only padding


def test_where_lax_is_wrong_the_numbers_are_ours():
    def routed(x, window, padding):
        pool = accelerate(lambda x: max_pool(x, window, (1,), padding).sum())
        return jax.grad(pool)(jnp.array(x)).tolist()

    assert routed([jnp.nan, 5.0, 2.0], (3,), "VALID") == [1, 0, 0]
    assert routed([-jnp.inf] * 3, (3,), ((1, 1),)) == [2, 1, 0]
    assert routed([1.0], (1,), ((2, 0),)) == [1]  # two windows of padding: their cotangent is lost
    ones = jnp.ones(512, jnp.bfloat16)
    assert accelerate(sum_pool)(ones, (512,), (1,))[0] == 512
    eighths = jnp.ones(3).astype(jnp.float8_e4m3fn)
    pooled = accelerate(max_pool)(eighths, (3,), (1,), "SAME")
    np.testing.assert_array_equal(pooled.astype(np.float32), 1)


def test_weak_types_stay_weak():
    weak = jnp.broadcast_to(1.0, (4, 4))
    for pool in (max_pool, sum_pool):
        for fast in (accelerate(pool), accelerate(jax.jit(pool)), jax.jit(accelerate(pool))):
            assert jax.typeof(fast(weak)).weak_type
        assert not jax.typeof(accelerate(pool)(X)).weak_type
        pushed = jax.jvp(accelerate(pool), (weak,), (weak,))
        assert [jax.typeof(y).weak_type for y in pushed] == [True, True]


def test_symbolic_batch_sizes():
    (batch,) = jax.export.symbolic_shape("batch")

    def exported(fn, *shape):
        spec = jax.ShapeDtypeStruct(shape, np.float32)
        return jax.export.export(jax.jit(fn))(spec)

    found = []
    pool = accelerate(lambda x: max_pool(x, (1, 2), (1, 2)), report=found.append)
    np.testing.assert_array_equal(exported(pool, batch, 4).call(X), max_pool(X, (1, 2), (1, 2)))
    exported(accelerate(max_pool, report=found.append), batch, 4)
    assert [left.reason for left in found] == [
        None,
        "x is not of known size along pooled axis 0",
    ]


# What goes in and comes out


def test_structure_keys_and_none():
    @accelerate
    def step(state, *, key, nothing):
        noise = jax.random.normal(key, (2, 2))
        return {"x": max_pool(state["x"]) + noise, "key": jax.random.split(key), "none": nothing}

    key = jax.random.key(0)
    for run in (step, jax.jit(step)):
        out = run({"x": X, "other": (1, [])}, key=key, nothing=None)
        assert out["none"] is None
        assert jnp.issubdtype(out["key"].dtype, jax.dtypes.prng_key)
        np.testing.assert_array_equal(out["x"], max_pool(X) + jax.random.normal(key, (2, 2)))


def test_objects_pass_through_by_identity():
    marker, seen = object(), []
    assert accelerate(lambda thing: seen.append(thing) or thing)(marker) is marker
    assert seen == [marker]


def test_closures_over_arrays():
    weights = numbers(2, 2)
    fast = accelerate(jax.jit(lambda x: max_pool(x) @ weights))
    np.testing.assert_array_equal(fast(X), max_pool(X) @ weights)


def test_donation_and_static_arguments_stay():
    @functools.partial(jax.jit, donate_argnums=0, static_argnames="kind")
    def step(x, kind):
        return x + {"max": max_pool, "sum": sum_pool}[kind](x).sum()

    fast = accelerate(step)
    assert taken_over(functools.partial(fast, kind="max"), X)
    given = jnp.array(X)
    want = X + max_pool(X).sum()
    np.testing.assert_array_equal(fast(given, kind="max"), want)
    assert given.is_deleted()
    given = jnp.array(X)
    jax.jit(accelerate(lambda x: x + max_pool(x).sum()), donate_argnums=0)(given)
    assert given.is_deleted()


def test_names_and_signatures_stay():
    def train_step(x, *, window=(2, 2)):
        """Steps."""
        return max_pool(x, window)

    for fn in (train_step, jax.jit(train_step)):
        fast = accelerate(fn)
        assert (fast.__name__, fast.__doc__) == ("train_step", "Steps.")
        assert inspect.signature(fast) == inspect.signature(train_step)
    assert "name=train_step" in program(jax.jit(accelerate(train_step)), X)
    assert accelerate(functools.partial(train_step, window=(1, 2))).__name__ == "train_step"
    assert accelerate(jax.jit(train_step)).eval_shape(X).shape == (2, 2)
    assert "reduce_window" not in str(accelerate(jax.jit(train_step)).trace(X).jaxpr)
    assert "reduce_window" not in accelerate(jax.jit(train_step)).lower(X).as_text()


def test_methods():
    class Model:
        scale = 3

        @accelerate
        def __call__(self, x):
            return self.scale * max_pool(x)

        def plain(self, x):
            return self.scale * max_pool(x)

    assert taken_over(Model().__call__, X)
    assert taken_over(accelerate(Model().plain), X)


def test_a_partial_that_is_a_pytree_stays_one():
    fast = accelerate(jax.tree_util.Partial(lambda w, x: w * max_pool(x), 2.0))

    def loss(f):
        return f(X).sum()

    assert jax.jit(jax.grad(loss))(fast).args == (max_pool(X).sum(),)
    assert taken_over(loss, fast)


# Where it begins and ends


def test_a_function_is_traced_once_more_and_then_cached():
    traces = []

    @jax.jit
    def pool(x):
        traces.append(taken_over(lambda x: max_pool(x), x))
        return max_pool(x)

    pool(X)
    for _ in range(2):
        accelerate(pool)(X)
        accelerate(lambda x: pool(x))(X)
        pool(X)
    assert traces == [False, True]


def test_it_ends_with_an_exception():
    @accelerate
    def fails(x):
        assert taken_over(max_pool, x)
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            fails(X)
        with pytest.raises(KeyError, match="mine"):
            jax.jit(fails)(X)
        assert not taken_over(max_pool, X)


def test_it_nests():
    found = []

    def outer(x):
        within = accelerate(max_pool)(x)
        return within.sum() + min_pool(x).sum()

    assert taken_over(accelerate(outer, report=found.append), X)
    assert [reduction.kind for reduction in found] == ["max", "min"]
    assert accelerate(lambda: accelerate(lambda: taken_over(sum_pool, X))())()
    assert not taken_over(min_pool, X)


def test_other_threads_are_left_alone():
    inside, leave, results = threading.Event(), threading.Event(), {}

    def held(x):
        inside.set()
        assert leave.wait(60)
        return taken_over(max_pool, x)

    def run(name, fn):
        results[name] = fn(X)

    one = threading.Thread(target=run, args=("one", accelerate(held)))
    one.start()
    assert inside.wait(60)
    results["here"] = taken_over(max_pool, X)
    two = threading.Thread(target=run, args=("two", lambda x: taken_over(max_pool, x)))
    two.start()
    two.join()
    results["there"] = accelerate(lambda x: taken_over(max_pool, x))(X)
    leave.set()
    one.join()
    assert results == {"one": True, "here": False, "two": False, "there": True}


def test_importing_jaxpool_changes_nothing():
    code = """
import sys, jax, jaxpool
assert "bind" not in vars(jax.lax.reduce_window_max_p)
assert not {"flax", "haiku", "equinox", "keras"} & set(sys.modules)
jaxpool.accelerate(abs)
assert "bind" in vars(jax.lax.reduce_window_max_p)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# The report


def test_the_report_names_each_reduction_once_with_its_place():
    found = []

    @jax.jit
    def pools(x):
        for _ in range(3):
            x = max_pool(x, (2, 3), (1, 1), ((0, 1), (1, 1)))  # the line that is reported
        return lax.reduce_window(x, 1.0, lax.mul, (2, 1)), sum_pool(x)

    pools(X)
    accelerate(pools)(X)  # jitted and accelerated before: nothing is missed
    fast = accelerate(pools, report=found.append)
    fast(X)
    fast(X)
    assert [(entry.kind, entry.taken_over) for entry in found] == [
        ("max", True),
        ("other", False),
        ("sum", True),
    ]
    lines, first = inspect.getsourcelines(max_pool)
    place = f"test_accelerate.py:{first + len(lines) - 1} (max_pool)"
    assert str(found[0]) == (
        f"{place}: max of float32[4, 4], window (2, 3), padding ((0, 1), (1, 1)): taken over"
    )
    assert str(found[1]).endswith(
        ": other of float32[4, 4], window (2, 1): left to lax "
        "(the reduction is no max, min or sum of two numbers)"
    )
    assert "strides (2, 2)" in str(found[2])


def test_the_report_of_a_program_that_is_never_run():
    found = []
    jax.eval_shape(accelerate(jax.grad(lambda x: max_pool(x).sum()), report=found.append), X)
    assert [entry.taken_over for entry in found] == [True]


# What is refused

COMPILED = jax.jit(lambda x: x).lower(1.0).compile()


class Model:
    def __call__(self, x):
        return x


async def coroutine(x):
    return x


def generator(x):
    yield x


class Weights:
    def __init__(self):
        self.w = X

    def __call__(self, x):
        return x * self.w


jax.tree_util.register_pytree_node(Weights, lambda it: ((it.w,), None), lambda _, w: Weights())


@pytest.mark.parametrize(
    ("fn", "hint"),
    [
        (Model, "Pass a function that makes and calls it."),
        (COMPILED, "It is compiled already: accelerate the function, then compile that."),
        (generator, "A generator runs after its call: accelerate the function that it calls."),
        (coroutine, "A coroutine runs after its call: accelerate the function that it awaits."),
        (
            Weights(),
            "It holds parameters. Pass a train step or a loss that takes it as an argument, "
            "model.apply for Flax Linen, or model.fit for Keras.",
        ),
        (None, "Pass a train step or a loss."),
    ],
)
def test_what_is_no_function_is_refused(fn, hint):
    shown = fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn)
    with pytest.raises(TypeError) as error:
        accelerate(fn)
    want = f"jaxpool.accelerate: `fn` must be a function; got fn={shown!r}. {hint}"
    assert str(error.value) == want


def test_the_report_must_be_a_function():
    with pytest.raises(TypeError) as error:
        accelerate(max_pool, report=[])
    assert str(error.value) == (
        "jaxpool.accelerate: `report` must be a function of one argument; got report=[]. "
        "Pass print or a list's append."
    )


def test_any_other_callable_is_taken():
    for fn in (Model(), len, functools.partial(max), jnp.sin, jax.custom_jvp(jnp.sin), with_vjp):
        assert callable(accelerate(fn))
    assert jaxpool.accelerate(Model())(3) == 3
