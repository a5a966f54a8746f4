"""Unexpected values for arguments, and a valid call of each public function to put them into."""

import decimal
import enum
import fractions
import functools
import inspect
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import jaxpool
from jaxpool.compat import scipy, torch, torchvision
from jaxpool.testing import pools

X = np.ones((1, 4, 5, 2), np.float32)
KEY = jax.random.key(0)


class Traced:
    """Placeholder for a traced array of a shape and a dtype."""

    def __init__(self, shape, dtype):
        self.struct = jax.ShapeDtypeStruct(shape, dtype)

    def __repr__(self):
        return f"Traced({self.struct.shape}, {self.struct.dtype})"


class Hostile:
    """An object with one method that raises."""

    def __init__(self, method):
        self.method = method

    def __new__(cls, method):
        def fails(self, *args):
            raise RuntimeError(f"{method} of a hostile object")

        return object.__new__(type(cls)(cls.__name__, (cls,), {method: fails}))


class Wrapper:
    """An object with `__jax_array__`, which returns `value`."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


WRAPPER_OF_ITSELF = Wrapper(None)
WRAPPER_OF_ITSELF.value = WRAPPER_OF_ITSELF


class Index:
    """An object with `__index__`."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


Colour = enum.IntEnum("Colour", ["RED", "GREEN"])
Words = type("Words", (str,), {})
Sizes = __import__("collections").namedtuple("Sizes", ["h", "w"])

NUMBERS = [
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 10**9, 2**31, 2**32, 2**63, 10**30, -(10**30),
    10**5000, 0.0, -0.0, 0.5, 2.0, 1e-300, 1e308, float("nan"), float("inf"), float("-inf"), 1j,
    2 + 0j, np.int8(2), np.uint64(2**63), np.float16(2), np.float64("nan"), np.bool_(True),
    np.complex64(1), np.datetime64("2020"), decimal.Decimal(2), fractions.Fraction(1, 2),
    Colour.RED, Index(2), Index(-1),
]  # fmt: skip
WORDS = [
    "", "VALID", "SAME", "same", "valid", "first", "split", "Last", "vjp", "jvp", "max", "avg", "2",
    b"SAME", Words("SAME"), Words("first"), "é\n" * 300,
]  # fmt: skip
NESTED = functools.reduce(lambda inner, _: (inner,), range(50), 1)
SEQUENCES = [
    (), [], (1,), (2,), (2, 2), [2, 2], (3, 2), (2, 2, 2), (1, 2, 2, 1), (2, -1), (0, 0), (1, 2),
    (2, 3), (1, 1), (-1, -2), (0, 1, 2, 3), (4, 5), (9, 9), (10**9, 10**9), (2**20, 2**20),
    (2**40, 1), (10**30, 10**30), (10**5000, 1), (10**9,), (True, True), (2.0, 2.0), (None, None),
    (2, None), ("a", "b"), ((1, 1), (1, 1)), ((1, 1),), ((0, 10**9), (0, 10**9)),
    ((10**9, 0), (10**9, 0)), ((0, 0), (1, 1), (1, 1), (0, 0)), ((1, 2, 3), (1, 2, 3)),
    ([1, 1], [1, 1]), (1, (1, 1)), NESTED, (float("nan"), 2), (Index(2), Index(2)), Sizes(2, 2),
    range(2), {2, 3}, {"a": 1}, (np.int64(2), np.int64(2)), (np.bool_(True), 1), (jnp.int32(2), 2),
    "22", [[2, 2]], tuple(range(100)), (1, 2) * 300,
]  # fmt: skip
ARRAYS = [
    np.array([2, 2]), np.array(2), np.array([2.0, 2.0]), np.array([[2, 2]]), np.array([], np.int64),
    np.array([True, False]), np.array([None]), np.array(["a"]), np.array([1j]),
    np.array(["2020"], "datetime64[D]"), np.ma.masked_array([1, 2], [0, 1]),
    np.zeros(2, [("a", np.float32)]), np.zeros((0, 4, 5, 2)), np.zeros((1, 0, 5, 2)),
    np.zeros((1, 4, 5, 0)), np.float32(1), np.zeros((1,) * 32), np.zeros((2, 3)), np.zeros(7),
    X.astype(np.int8), X.astype(bool), X.astype(np.float16), X.astype(np.float64),
    X.astype(np.complex64), X > 2, np.full_like(X, np.nan), X.astype(">f4"),
    X.astype(np.longdouble), X[:, ::-1], np.ones((1, 2, 4, 5), np.int32), np.ones((1, 2, 4, 5), np.int64),
    np.full(X.shape, 10**6), np.full(X.shape, -1), jnp.ones(2), jnp.int32(2), jnp.float32(0.5),
    jnp.ones((1, 4, 5, 2), jnp.bfloat16), jnp.ones((1, 4, 5, 2), jnp.float8_e4m3fn),
    jnp.ones((1, 4, 5, 2), jnp.int4), jnp.ones((1, 4, 5, 2), jnp.complex64), KEY,
    jax.random.split(KEY), jax.random.PRNGKey(0), jnp.bool_(True), jnp.array([2, 2]),
]  # fmt: skip
OBJECTS = [
    object(), int, len, lambda x: x, ..., slice(2), NotImplemented, X.dtype, jax,
    jax.ShapeDtypeStruct((1, 4, 5, 2), np.float32),
    types.SimpleNamespace(shape=(1, 4, 5, 2), dtype=np.float32), Wrapper(X),
    Wrapper(jnp.asarray(X)), Wrapper("x"), Wrapper(None), Wrapper(Wrapper(X)), Wrapper([2, 2]),
    Wrapper([[2, 2], [2, 2]]), WRAPPER_OF_ITSELF,
    *map(Hostile, ["__repr__", "__len__", "__iter__", "__eq__", "__bool__", "__float__", "__array__"]),
    iter((2, 2)), PartitionSpec("rows"), bytearray(2), memoryview(b"22"),
]  # fmt: skip
TRACED = [
    Traced((), np.int32), Traced((), np.float32), Traced((), bool), Traced((2,), np.int32),
    Traced((1, 4, 5, 2), np.float32), Traced((1, 4, 5, 2), np.int32), Traced((1, 4, 5, 2), bool),
    Traced((0,), np.float32), Traced((1, 4, 5, 2), np.complex64),
]  # fmt: skip
# Small objects with 2**60 or 10**15 parts, counting a shared part each time.
SHARED_PARTS = {
    "list": functools.reduce(lambda part, _: [part, part], range(60), 1),
    "tuple": functools.reduce(lambda part, _: (part, part), range(60), 1),
    "dict": functools.reduce(lambda part, _: {"a": part, "b": part}, range(60), 1),
}
JUNK = NUMBERS + WORDS + SEQUENCES + ARRAYS + OBJECTS + TRACED

MESH = jax.make_mesh((1,), ("rows",))
SHARDING_ARGUMENTS = {"mesh": MESH, "spec": PartitionSpec(None, "rows")}


def valid_arguments(pool):
    """Return the arguments of a valid call: a dict by name, or a tuple if they are positional."""
    given = pool.given(X)
    return given.get("xs", given)


VALID_ARGUMENTS = {name: valid_arguments(pool) for name, pool in pools().items()} | {
    "accelerate": {"fn": abs},
    "accelerated": {},
    "plan_of": {"fn": abs},
    "sharded": {"pool": jaxpool.max_pool} | SHARDING_ARGUMENTS,
}


def drop_in_arguments(function):
    """Return valid arguments of a drop-in: all that are required, and some optional ones."""
    parameters = inspect.signature(function).parameters
    rank = re.search(r"(\d)d$", function.__name__)
    x = np.ones((1, 2, *[6] * int(rank[1]))) if rank else np.ones(5)
    x = np.ones((1, 4, 6, 6)) if "boxes" in parameters else x
    known = {
        **{"input": x.astype(np.float32), "other": x.astype(np.float32)},
        "indices": np.zeros(x.shape, np.int32),
        "boxes": np.ones((3, 5), np.float32),
        **{"kernel_size": 2, "size": 3, "norm_type": 2.0, "rank": 1, "percentile": 20, "dim": 0},
        **{"key": KEY, "output_size": (2,) * x[0, 0].ndim if "key" in parameters else 2},
    }
    optional = ["size", "dim", "key"] + ["output_size"] * ("key" in parameters)
    return {
        name: known[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty or name in optional
    }


CALLS = {name: (getattr(jaxpool, name), given) for name, given in VALID_ARGUMENTS.items()}
CALLS |= {
    f"sharded({name})": (jaxpool.sharded(getattr(jaxpool, name), **SHARDING_ARGUMENTS), given)
    for name, given in VALID_ARGUMENTS.items()
    if name in pools()
}
CALLS["plan_of(max_pool)"] = (jaxpool.plan_of(jaxpool.max_pool), VALID_ARGUMENTS["max_pool"])
SCIPY_NAMES = re.compile(r"[a-z]+_filter$|grey_|\w+_tophat|morpholog")
DROP_INS = {
    "torch": {name: getattr(torch, name) for name in torch.__all__ if name.islower()},
    "torchvision": {n: getattr(torchvision, n) for n in torchvision.__all__ if n.islower()},
    "scipy": {name: f for name, f in vars(scipy).items() if SCIPY_NAMES.match(name)},
}
CALLS |= {
    f"compat.{library}.{name}": (function, drop_in_arguments(function))
    for library, functions in DROP_INS.items()
    for name, function in functions.items()
}
