"""Calls with unusual arguments raise an error of jaxpool or return outputs of the expected shapes and dtypes.

The shapes are those of the twin, the equivalent jax.numpy code in `jaxpool.testing`, which is traced but not run.

The search: HYPOTHESIS_PROFILE=search python -m pytest -n auto -m slow tests/search
"""

import enum
import operator
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, example, given, settings
from jax.export import symbolic_shape

import jaxpool
from jaxpool._arguments.arrays import unwrap_array
from jaxpool.testing import pools
from jaxpool.testing._record import TUPLE_PARAMETERS
from tests.search.odd_calls import OddCall, odd_calls
from tests.support.drawn import SEARCH
from tests.support.junk import KEY, Traced

pytestmark = pytest.mark.slow
X = np.zeros((4, 2), np.float32)
MAX_NUMBER = 2**10  # beyond it, a twin lists its windows for minutes
VALUES_READ_BY_TWINS = ("segment_ids", "boxes", "batch_indices")  # also while they are traced
# An int for two axes, whose number is that of `output_shape`
WINDOW_OF_BOTH_AXES = OddCall(
    pools()["fractional_max_pool"],
    {"key": KEY, "x": X[..., None], "window_shape": 2, "output_shape": (1, 1)},
    "value",
)


def is_traced(value):
    return isinstance(value, (Traced, jax.ShapeDtypeStruct))


def as_struct(value):
    return value.struct if isinstance(value, Traced) else value


def outcome(call):
    """Make a call and check it. Return "result", or "refused" for an error of the library."""
    try:
        found = perform(call)
    except (TypeError, ValueError) as error:
        # Errors of ops, for instance while a gradient is traced, do not name the public function.
        from_op = call.how == "grad" or "where" in call.arguments
        names = (f"jaxpool.{call.pool.name}: ", *["jaxpool: "] * from_op)
        if not str(error).startswith(names) or re.search(r"Tracer\(|Traced<", str(error)):
            raise
        return "refused"
    want = expected(call)
    got = [(y.shape, y.dtype) for y in found]
    assert want is None or got == want, f"{got} for {want}: {call}"
    return "result"


def perform(call):
    """Make the call in its way of calling, and return the results or their shapes and dtypes."""
    main = call.pool.operands[0]
    x = call.arguments.get(main)
    if call.how == "symbolic" and isinstance(x, jax.ShapeDtypeStruct) and x.ndim:
        sizes = [str(n) for n in x.shape]
        sizes[call.symbolic_axis % x.ndim] = "b"
        symbolic = symbolic_shape(", ".join(sizes) + ",")
        call.arguments[main] = jax.ShapeDtypeStruct(symbolic, x.dtype)
    leaves, tree = jax.tree.flatten(call.arguments)
    places = [i for i, value in enumerate(leaves) if is_traced(value)]
    structs = [as_struct(leaves[i]) for i in places]

    def run(*traced):
        filled = list(leaves)
        for place, value in zip(places, traced, strict=True):
            filled[place] = value
        y = call.pool.run(jax.tree.unflatten(tree, filled))
        return [leaf for leaf in jax.tree.leaves(y) if isinstance(leaf, (jax.Array, np.ndarray))]

    if call.how == "real" and all(np.prod(s.shape) < 2**10 for s in structs):
        return run(*[jnp.zeros(s.shape, s.dtype) for s in structs])
    found = jax.eval_shape(run, *structs)
    if call.how == "grad":
        check_cotangents(run, structs, found)
    if call.how == "vmap" and structs:
        batched = [jax.ShapeDtypeStruct((3, *s.shape), s.dtype) for s in structs]
        mapped = jax.eval_shape(jax.vmap(run), *batched)
        assert [y.shape for y in mapped] == [(3, *y.shape) for y in found]
    return found


def check_cotangents(run, structs, found):
    """Assert that the cotangents of traced floats have their shapes and dtypes."""
    floats = [i for i, x in enumerate(structs) if jnp.issubdtype(x.dtype, jnp.inexact)]
    if not floats or not jnp.issubdtype(found[0].dtype, jnp.inexact):
        return

    def total(*xs):
        arrays = [jnp.zeros(s.shape, s.dtype) for s in structs]
        for i, x in zip(floats, xs, strict=True):
            arrays[i] = x
        return run(*arrays)[0].sum().real

    xs = jax.eval_shape(lambda *xs: xs, *[structs[i] for i in floats])  # without x64: float32
    dxs = jax.eval_shape(jax.grad(total, tuple(range(len(xs)))), *xs)
    assert [(dx.shape, dx.dtype) for dx in dxs] == [(x.shape, x.dtype) for x in xs]


def expected(call):
    """Return the twin's shapes and the dtypes that the record implies, or None for numbers above MAX_NUMBER."""
    pool, given = call.pool, {name: as_struct(value) for name, value in call.arguments.items()}
    arguments = {
        name: twin_argument(pool, name, given)
        for name, parameter in pool.parameters.items()
        if name in given and given[name] is not parameter.default and name != "autodiff"
    }
    leaves = jax.tree.leaves(arguments)
    numbers = [each for each in leaves if isinstance(each, int)]
    numbers += [size for each in leaves for size in np.shape(each) if isinstance(size, int)]
    if max(numbers, default=0) > MAX_NUMBER:
        return None
    structs = {
        name: arguments.pop(name)
        for name, value in list(arguments.items())
        if any(isinstance(each, jax.ShapeDtypeStruct) for each in jax.tree.leaves(value))
    }
    y = jax.eval_shape(lambda arrays: pool.run(arguments | arrays, pool.twin), structs)
    first, *others = jax.tree.leaves(y)
    return [(first.shape, expected_dtype(pool, given)), *((y.shape, y.dtype) for y in others)]


def expected_dtype(pool, given):
    if pool.marks:
        return np.dtype(bool)
    operands = [given[name] for name in pool.operands if name != "kernel"]
    operands = operands[0] if pool.operands[0] in TUPLE_PARAMETERS else operands
    arrays = map(unwrap_array, operands)
    dtype = jnp.result_type(*[int(x) if isinstance(x, enum.IntEnum) else x for x in arrays])
    is_mean = pool.averages(given) and not jnp.issubdtype(dtype, jnp.inexact)
    return np.dtype(np.float32) if is_mean else dtype


def sizes(value, rank):
    """Return a tuple with an int or None per axis."""
    flat = np.asarray(value, object).ravel().tolist()
    every = flat * rank if len(flat) == 1 else flat
    return tuple(None if each is None else operator.index(each) for each in every)


def twin_argument(pool, name, given):
    """Convert an argument for a twin: sizes to a tuple, arrays to shapes."""
    value = given[name]
    if name in TUPLE_PARAMETERS:
        return tuple(map(float32_struct, value))
    if name in pool.operands:
        return float32_struct(value)
    if name in ("num_segments", "padding") and isinstance(value, jax.ShapeDtypeStruct):
        return 0  # `perform` fills arrays with zeros
    if name in VALUES_READ_BY_TWINS:
        return value if isinstance(value, np.ndarray) else np.zeros(np.shape(value), int)
    if name in ("axes", "levels"):
        return sizes(value, 1)
    if name == "axis":
        return sizes(value, 1) if np.ndim(value) else operator.index(value)
    if name in ("output_shape", "spatial_shape", "window_shape"):
        name = "output_shape" if given.get("axes") is None else "axes"
        return sizes(value, 2 if pool.takes("boxes") else np.size(given.get(name)))
    return value


def float32_struct(x):
    """Return the shape of an array as a float32 struct."""
    x = x.__jax_array__() if hasattr(x, "__jax_array__") else x
    return jax.ShapeDtypeStruct(np.shape(x), np.float32)


@settings(max_examples=20_000 if SEARCH else 300)
@given(odd_calls())
@example(WINDOW_OF_BOTH_AXES)
def test_odd_calls(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax warns about dtypes and casts
        event(outcome(call))


def cummax_call(monkeypatch, function):
    """A call of `jaxpool.cummax` with `function` in its place."""
    monkeypatch.setattr(jaxpool, "cummax", function)
    return OddCall(pools()["cummax"], {"x": X, "axis": 0}, "value")


def test_wrong_shape_is_detected(monkeypatch):
    right = jaxpool.cummax
    assert outcome(cummax_call(monkeypatch, right)) == "result"
    with pytest.raises(AssertionError, match=r"\[\(\(1, 2\).* for \[\(\(4, 2\)"):
        outcome(cummax_call(monkeypatch, lambda x, axis: right(x, axis)[:1]))


@pytest.mark.parametrize(
    "error",
    [TypeError("jaxpool.other: `x` is wrong"), ValueError("x"), RuntimeError("jaxpool.cummax: x")],
)
def test_wrong_exception_is_detected(error, monkeypatch):
    def fails(x, axis):
        raise error

    with pytest.raises(type(error), match=re.escape(str(error))):
        outcome(cummax_call(monkeypatch, fails))
