"""`accelerate` as a decorator: inputs and outputs, scope, the report, and refused arguments."""

import functools
import inspect
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool import accelerate, accelerated
from jaxpool._accelerate import report
from tests.support.accelerated import (
    X,
    is_replaced,
    max_pool,
    min_pool,
    program,
    sum_pool,
)

# Inputs and outputs


def test_pytrees_prng_keys_and_objects_pass_through():
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
    marker, seen = object(), []
    assert accelerate(lambda thing: seen.append(thing) or thing)(marker) is marker
    assert seen == [marker]


def test_donation_and_static_arguments_preserved():
    @functools.partial(jax.jit, donate_argnums=0, static_argnames="kind")
    def step(x, kind):
        return x + {"max": max_pool, "sum": sum_pool}[kind](x).sum()

    fast = accelerate(step)
    assert is_replaced(functools.partial(fast, kind="max"), X)
    donated = jnp.array(X)
    want = X + max_pool(X).sum()
    np.testing.assert_array_equal(fast(donated, kind="max"), want)
    assert donated.is_deleted()
    donated = jnp.array(X)
    jax.jit(accelerate(lambda x: x + max_pool(x).sum()), donate_argnums=0)(donated)
    assert donated.is_deleted()


def test_attributes_signature_and_jit_stages_preserved():
    def train_step(x, *, window=(2, 2)):
        """Steps."""
        return max_pool(x, window)

    # Names of attributes of the wrapper.
    train_step._run, train_step._call, train_step._reduce_value, train_step._fn = 1, 2, 3, 4
    assert accelerate(train_step)._run == 1
    assert is_replaced(accelerate(train_step), X)
    for fn in (train_step, jax.jit(train_step)):
        fast = accelerate(fn)
        assert (fast.__name__, fast.__doc__) == ("train_step", "Steps.")
        assert inspect.signature(fast) == inspect.signature(train_step)
    assert "name=train_step" in program(jax.jit(accelerate(train_step)), X)
    assert accelerate(functools.partial(train_step, window=(1, 2))).__name__ == "train_step"
    assert accelerate(jax.jit(train_step)).eval_shape(X).shape == (2, 2)
    assert "reduce_window" not in str(accelerate(jax.jit(train_step)).trace(X).jaxpr)
    assert "reduce_window" not in accelerate(jax.jit(train_step)).lower(X).as_text()


def test_methods_are_accelerated():
    class Model:
        scale = 3

        @accelerate
        def __call__(self, x):
            return self.scale * max_pool(x)

        def plain(self, x):
            return self.scale * max_pool(x)

    assert is_replaced(Model().__call__, X)
    assert is_replaced(accelerate(Model().plain), X)


def test_tree_util_partial_stays_a_pytree():
    fast = accelerate(jax.tree_util.Partial(lambda w, x: w * max_pool(x), 2.0))

    def loss(f):
        return f(X).sum()

    assert jax.jit(jax.grad(loss))(fast).args == (max_pool(X).sum(),)
    assert is_replaced(loss, fast)


# Scope


def test_jitted_function_retraced_once_then_cached():
    traces = []

    @jax.jit
    def pool(x):
        traces.append(is_replaced(lambda x: max_pool(x), x))
        return max_pool(x)

    pool(X)
    for _ in range(2):
        accelerate(pool)(X)
        accelerate(lambda x: pool(x))(X)
        pool(X)
    assert traces == [False, True]


def test_scope_ends_on_exception():
    @accelerate
    def fails(x):
        assert is_replaced(max_pool, x)
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            fails(X)
        with pytest.raises(KeyError, match="mine"):
            jax.jit(fails)(X)
        assert not is_replaced(max_pool, X)


def test_accelerated_block_and_its_pullback():
    reductions = []
    with accelerated(report=reductions.append):
        assert is_replaced(max_pool, X)
        _, pullback = jax.vjp(min_pool, X)
    assert [(each.kind, each.taken_over) for each in reductions] == [("max", True), ("min", True)]
    assert not is_replaced(max_pool, X)
    assert is_replaced(pullback, jnp.ones((2, 2)))


@pytest.mark.parametrize(("value", "disabled"), [("1", True), ("0", False), ("", False)])
def test_disabled_by_environment(monkeypatch, value, disabled):
    monkeypatch.setenv("JAXPOOL_DISABLE", value)
    assert is_replaced(accelerate(max_pool), X) is not disabled
    with accelerated():
        assert is_replaced(max_pool, X) is not disabled


def test_nested_accelerate():
    reductions = []

    def outer(x):
        within = accelerate(max_pool)(x)
        return within.sum() + min_pool(x).sum()

    assert is_replaced(accelerate(outer, report=reductions.append), X)
    assert [reduction.kind for reduction in reductions] == ["max", "min"]
    assert accelerate(lambda: accelerate(lambda: is_replaced(sum_pool, X))())()
    assert not is_replaced(min_pool, X)


def test_scope_is_thread_local():
    entered, may_leave, results = threading.Event(), threading.Event(), {}

    def wait_then_check(x):
        entered.set()
        assert may_leave.wait(60)
        return is_replaced(max_pool, x)

    def run(name, fn):
        results[name] = fn(X)

    one = threading.Thread(target=run, args=("one", accelerate(wait_then_check)))
    one.start()
    assert entered.wait(60)
    results["here"] = is_replaced(max_pool, X)
    two = threading.Thread(target=run, args=("two", lambda x: is_replaced(max_pool, x)))
    two.start()
    two.join()
    results["there"] = accelerate(lambda x: is_replaced(max_pool, x))(X)
    may_leave.set()
    one.join()
    assert results == {"one": True, "here": False, "two": False, "there": True}


def test_import_does_not_patch_lax():
    code = """
import sys, jax, jaxpool
assert "bind" not in vars(jax.lax.reduce_window_max_p)
assert not {"flax", "haiku", "equinox", "keras"} & set(sys.modules)
jaxpool.accelerate(abs)
assert "bind" in vars(jax.lax.reduce_window_max_p)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# The report


def test_report_lists_each_reduction_once_with_source_line():
    entries = []

    @jax.jit
    def pools(x):
        for _ in range(3):
            x = max_pool(x, (2, 3), (1, 1), ((0, 1), (1, 1)))  # the reported line
        return lax.reduce_window(x, 1.0, lax.mul, (2, 1)), sum_pool(x)

    pools(X)
    accelerate(pools)(X)  # already traced: the report must still be complete
    fast = accelerate(pools, report=entries.append)
    fast(X)
    fast(X)
    assert [(entry.kind, entry.taken_over) for entry in entries] == [
        ("max", True),
        ("other", False),
        ("sum", True),
    ]
    lines, first = inspect.getsourcelines(max_pool)
    source_line = f"accelerated.py:{first + len(lines) - 1} (max_pool)"
    assert str(entries[0]) == (
        f"{source_line}: max of float32[4, 4], window (2, 3), padding ((0, 1), (1, 1)): by jaxpool"
    )
    assert str(entries[1]).endswith(
        ": other of float32[4, 4], window (2, 1): left to lax "
        "(the reduction is no max, min or sum of two numbers)"
    )
    assert "strides (2, 2)" in str(entries[2])


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_report_names_line_that_calls_library(folder):
    """The folder of the library need not be that of Python, as after `pip install --user`."""
    text = "pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), 'VALID')"
    library = {"lax": lax, "jnp": jnp}
    exec(compile(text, f"/home/user/{folder}/library.py", "exec"), library)
    entries = []
    accelerate(lambda x: library["pool"](x), report=entries.append)(X)
    assert entries[0].where.startswith("test_functions.py:")


def test_decorator_with_report():
    entries = []

    @accelerate(report=entries.append)
    def pool(x):
        """Pools."""
        return max_pool(x)

    assert pool.__doc__ == "Pools."
    assert is_replaced(pool, X)
    assert [entry.kind for entry in entries] == ["max"]


def test_report_of_call_without_reduction():
    entries, lines = [], []
    fast = accelerate(jax.jit(lambda x: x.max()), report=entries.append)
    for _ in range(2):
        fast(X)
        lines.append(inspect.currentframe().f_lineno - 1)
    with accelerated(report=entries.append):
        X.reshape(2, 2, 2, 2).max((1, 3))
    with pytest.raises(KeyError), accelerated(report=entries.append):
        raise KeyError
    call, block = entries
    assert str(call) == (
        f"test_functions.py:{lines[0]} (test_report_of_call_without_reduction): no windowed max, min or sum; "
        "pools by reshape, adaptive and global pools are not replaced"
    )
    assert (block.kind, block.taken_over) == ("none", False)


# Refused arguments

COMPILED = jax.jit(lambda x: x).lower(1.0).compile()


def generator(*xs):
    yield xs


async def async_generator(*xs):
    yield xs


async def coroutine(*xs):
    return xs


def object_with(call):
    """An object with this `__call__`."""
    return type("Step", (), {"__call__": call})()


GENERATOR_HINT = "A generator runs after its call: accelerate the function that it calls."
COROUTINE_HINT = "A coroutine runs after its call: accelerate the function that it awaits."


class Weights:
    def __call__(self, x):
        return x * X


jax.tree_util.register_pytree_node(Weights, lambda it: ((X,), None), lambda _, w: Weights())


@pytest.mark.parametrize(
    ("fn", "hint"),
    [
        (Weights, "Pass a function that makes and calls it."),
        (COMPILED, "It is compiled already: accelerate the function, then compile that."),
        (generator, GENERATOR_HINT),
        (coroutine, COROUTINE_HINT),
        (object_with(generator), GENERATOR_HINT),
        (object_with(async_generator), GENERATOR_HINT),
        (object_with(coroutine), COROUTINE_HINT),
        (object_with(functools.partial(generator)), GENERATOR_HINT),
        (object_with(generator).__call__, GENERATOR_HINT),
        (functools.partial(generator), GENERATOR_HINT),
        (functools.partial(object_with(generator).__call__), GENERATOR_HINT),
        (functools.partial(functools.partial(object_with(async_generator))), GENERATOR_HINT),
        (functools.partial(object_with(coroutine), 1), COROUTINE_HINT),
        (jax.tree_util.Partial(object_with(coroutine)), COROUTINE_HINT),
        (
            Weights(),
            "It is a model or a layer. Pass a train step or a loss that takes it as an argument, "
            "model.apply for Flax Linen, or model.fit for Keras.",
        ),
        (None, "Pass a train step or a loss."),
    ],
)
def test_non_functions_raise(fn, hint):
    is_object = callable(fn) and not (inspect.isroutine(fn) or inspect.isclass(fn))
    displayed = type(fn) if is_object else fn
    with pytest.raises(TypeError) as error:
        accelerate(fn)
    want = f"jaxpool.accelerate: `fn` must be a function; got fn={displayed!r}. {hint}"
    assert str(error.value) == want


def test_other_callables_are_accepted():
    identity = object_with(lambda self, x: x)
    rules = jax.custom_jvp(jnp.sin), jax.custom_vjp(jnp.sin)
    for fn in (identity, len, functools.partial(max), jnp.sin, *rules):
        assert callable(accelerate(fn))
    assert accelerate(identity)(3) == 3


def test_report_names_library_line_without_user_frame():
    entries = []
    pool = functools.partial(
        lax.reduce_window,
        init_value=-np.inf,
        computation=lax.max,
        window_dimensions=(2, 2),
        window_strides=(1, 1),
        padding="VALID",
    )
    thread = threading.Thread(target=accelerate(pool, report=entries.append), args=(X,))
    thread.start()
    thread.join()
    (reduction,) = entries
    assert reduction.where.startswith("threading.py:")
    assert reduction.where.endswith("(Thread.run)")


@pytest.mark.parametrize(
    ("path", "is_user"),
    [
        ("/other/environment/lib/python3.11/site-packages/flax/linen/pooling.py", False),
        ("C:\\other\\Lib\\site-packages\\flax\\linen\\pooling.py", False),
        ("/usr/lib/python3/dist-packages/scipy/ndimage.py", False),
        (os.__file__, False),
        (jax.__file__, False),
        (jaxpool.__file__, False),
        ("<frozen runpy>", False),
        ("/home/me/notes-on-site-packages/train.py", True),
        ("site-packages.py", True),
        ("<stdin>", True),
        (__file__, True),
    ],
)
def test_files_of_the_user(path, is_user):
    """Libraries of another environment, which a .pth file or PYTHONPATH adds, are no files of the user."""
    assert report.is_user_file(path) == is_user
