"""What the drop-ins for Flax, Haiku and Equinox have in common: signatures, kernels and documented differences."""

import importlib
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.compat_cases import assert_arrays_match

LIBRARIES = {"flax": "flax.linen.pooling", "haiku": "haiku", "equinox": "equinox.nn"}
X = jnp.arange(24.0).reshape(4, 6)

every_library = pytest.mark.parametrize("library", LIBRARIES)


def both_modules(library):
    """The module of drop-ins, and the original."""
    theirs = pytest.importorskip(LIBRARIES[library])
    return importlib.import_module(f"jaxpool.compat.{library}"), theirs


def pool_of(module, name, window, strides=(1, 1), padding="VALID"):
    """A pool of a matrix: "max" or "avg" of either module of a library."""

    def pool(x):
        if "equinox" in module.__name__:
            pads = tuple(size // 2 if padding == "SAME" else 0 for size in window)
            return getattr(module, f"{name.title()}Pool2d")(window, strides, pads)(x[None])[0]
        function = getattr(module, f"{name}_pool")
        if "haiku" in module.__name__:
            return function(x[..., None], (*window, 1), (*strides, 1), padding)[..., 0]
        return function(x[..., None], window, strides, padding)[..., 0]

    return pool


def gradients(library, x, *args):
    """The gradients of the sum of our pool and of the original."""
    pools = [pool_of(module, *args) for module in both_modules(library)]
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


@every_library
@pytest.mark.parametrize("name", ["max", "avg"])
def test_gradients_use_jaxpool_kernels(library, name):
    ours, _ = both_modules(library)
    for window in ((2, 2), (2, 1), (4, 6)):
        pool = pool_of(ours, name, window)
        program = str(jax.make_jaxpr(jax.grad(lambda x, pool=pool: pool(x).sum()))(X))
        assert "reduce_window" not in program
        assert "scatter" not in program


@every_library
@pytest.mark.parametrize("name", ["max", "avg"])
def test_forward_mode(library, name):
    got, want = (
        jax.jvp(pool_of(module, name, (2, 3), (2, 1)), (X,), (jnp.sin(X),))[1]
        for module in both_modules(library)
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
        assert pool_of(ours, "avg", (512, 1))(x)[0, 0] == want
