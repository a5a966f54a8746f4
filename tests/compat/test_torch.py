"""Random calls of the drop-ins for PyTorch and of PyTorch. `tests.peers` compares PyTorch's own samples."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.compat import torch as ours
from tests.support.compat_cases import (
    draw_array,
    drawn_calls,
    epsilon,
    geometries,
    ints,
    to_torch,
    torch_function,
)
from tests.support.compilation import FAST_COMPILE
from tests.support.later import LATER

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the last of colliding indices wins, which is undefined with more threads

LAYERS = [name for name in ours.__all__ if name[0].isupper()]
FUNCTIONS = [name for name in ours.__all__ if name[0].islower()]
BINARY = ("maximum", "minimum", "fmax", "fmin")
VALUES = ("normal", "ties", "lowest", "special")
CALLS_PER_PROGRAM = 16
# The least and greatest size of pooled axes, by rank.
SIZE_RANGES = {1: (4, 9), 2: (3, 7), 3: (2, 5)}
X = np.sin(np.arange(2 * 3 * 6 * 8.0, dtype=np.float32)).reshape(2, 3, 6, 8)


def array(value):
    """Convert a tensor to an array. Other values stay."""
    if not isinstance(value, torch.Tensor):
        return tuple(value) if isinstance(value, torch.Size) else value
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return value.float().numpy().astype(jnp.bfloat16)
    return value.numpy()


def cotangent(y):
    x = 1 + 0.5 * np.sin(np.arange(y.size, dtype=np.float32))
    return x.reshape(y.shape).astype(y.dtype)


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


@dataclasses.dataclass
class Call:
    """One call of a function, or of a layer made with `kwargs`. Two operands of one dtype get random values."""

    name: str
    args: tuple
    kwargs: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.dtype = self.args[0].dtype
        self.drawn = [
            i
            for i, x in enumerate(self.args[:2])
            if isinstance(x, np.ndarray) and x.dtype == self.dtype
        ]
        self.wide = self.dtype in (np.float64, np.int64)

    def draw(self, rng, kind):
        if "npool" in self.name.lower():  # PyTorch may write any of the elements with one index
            indices = self.args[1]
            values = draw_array(rng, (indices.max(initial=0) + 1,), kind, self.dtype)
            return [values[indices]]
        return [draw_array(rng, self.args[i].shape, kind, self.dtype) for i in self.drawn]

    def outputs(self, function, convert, xs):
        """Call with `xs` as the drawn arrays."""
        args = [convert(value) for value in self.args]
        for i, x in zip(self.drawn, xs, strict=True):
            args[i] = x
        kwargs = {name: convert(value) for name, value in self.kwargs.items()}
        result = function(**kwargs)(*args) if self.name in LAYERS else function(*args, **kwargs)
        return list(result) if isinstance(result, tuple) else [result]

    def theirs(self, xs):
        """Outputs and gradients of PyTorch."""
        leaves = [to_torch(x) for x in xs]
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
        is_layer = self.name in LAYERS
        function = getattr(torch.nn, self.name) if is_layer else torch_function(self.name)
        outs = self.outputs(function, to_torch, leaves)
        sent = [y for y in outs if y.requires_grad]
        if sent:
            torch.autograd.backward(sent, [to_torch(cotangent(array(y))) for y in sent])
        grads = [np.zeros(x.shape) if x.grad is None else array(x.grad) for x in leaves]
        return [array(y) for y in outs], grads

    def ours(self, xs):
        """Outputs and gradients of jaxpool. There are no gradients of integers."""

        def call(*xs):
            outs = self.outputs(getattr(ours, self.name), as_jax, xs)
            return [y for y in outs if is_float(y)], outs

        if not is_float(xs[0]):
            return call(*xs)[1], []
        ys, pullback, outs = jax.vjp(call, *xs, has_aux=True)
        return outs, pullback([jnp.asarray(cotangent(y)) for y in ys])

    def is_accepted(self):
        """Return True if PyTorch takes the call. If not, assert that the drop-in refuses it too."""
        xs = [np.asarray(x) for x in self.draw(np.random.default_rng(0), "normal")]
        try:
            self.theirs(xs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            with pytest.raises((TypeError, ValueError)):
                self.ours([jnp.asarray(x) for x in xs])
            return False
        return True

    def gradients_agree(self, kind):
        """Return False for the differences in docs/howto/port-from-pytorch.md, and NaN gradients of logcumsumexp."""
        if self.name == "logcumsumexp":
            return kind in ("normal", "ties")
        undetermined = self.name in ("amax", "amin", "aminmax") or len(self.drawn) == 2
        return kind != "special" or self.name in ("fmax", "fmin") or not undetermined

    def check(self, kind, xs, got, want):
        lp = self.name.lower().startswith("lp")
        if lp and kind in ("lowest", "special"):
            return  # the C library decides powers of infinities
        says = f"of {self.name} of {[x.shape for x in xs]} with {self.args[1:]} {self.kwargs} on {kind}"
        eps = epsilon(self.dtype) * (16 if lp or self.wide else 1)
        if "npool" in self.name.lower():
            want[1][0] = without_overwritten(self.args[1], want[1][0], int(self.name[-2]))
        has_index = len(want[0]) == 2 and self.name != "aminmax"
        if "median" in self.name and has_index and xs[0].ndim:
            has_index = False
            got, want = (self.settle_ties(xs[0], *each) for each in (got, want))
        for at, (y, expected) in enumerate(zip(got[0], want[0], strict=True)):
            assert y.dtype == (np.int32 if has_index and at == 1 else expected.dtype), says
            assert_close(y, expected, 8 * eps, f"output {at} {says}")
        if self.gradients_agree(kind):
            for dx, expected in zip(got[1], want[1] if got[1] else [], strict=True):
                assert_close(dx, expected, 16 * eps, f"cotangent {says}")

    def settle_ties(self, x, outs, grads):
        """Replace the index of a median, which PyTorch chooses freely among ties, by its element. Sum gradients."""
        dim = self.kwargs["dim"]
        at = np.asarray(outs[1])
        at = at if self.kwargs.get("keepdim") else np.expand_dims(at, dim)
        grads = [np.asarray(dx, np.float64).sum(dim) for dx in grads]
        return [outs[0], np.take_along_axis(np.asarray(x), at, dim)], grads


def as_jax(value):
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def without_overwritten(indices, dx, rank):
    """Return PyTorch's gradient of an unpooling with 0 for elements that a later one overwrites."""
    dx = dx.copy()
    for lane in np.ndindex(indices.shape[:-rank]):
        flat = indices[lane].ravel()
        overwritten = [at in flat[i + 1 :] for i, at in enumerate(flat)]
        dx[lane][np.reshape(overwritten, dx[lane].shape)] = 0
    return dx


def assert_close(got, want, tolerance, says):
    assert got.shape == want.shape, says
    got, want = (np.asarray(x, np.float64) for x in (got, want))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=says)


def compare(calls):
    """Assert that both libraries agree on all values, or that both refuse the call."""
    calls = list(calls)
    taken = 0
    for wide in (False, True):
        with jax.enable_x64(wide):
            accepted = [call for call in calls if call.wide == wide and call.is_accepted()]
            taken += len(accepted)
            for first in range(0, len(accepted), CALLS_PER_PROGRAM):
                compare_in_one_program(accepted[first : first + CALLS_PER_PROGRAM])
    assert taken


def compare_in_one_program(calls):
    @jax.jit(compiler_options=FAST_COMPILE)
    def run(each):
        return [call.ours(xs) for call, xs in zip(calls, each, strict=True)]

    rng = np.random.default_rng(0)
    for kind in VALUES:
        each = [call.draw(rng, kind) for call in calls]
        for call, xs, got in zip(calls, each, run(each), strict=True):
            call.check(kind, xs, got, call.theirs(xs))


# Random calls


def random_sizes(rng, rank, least, greatest):
    """An int, a sequence of one int, or one int per axis."""
    form = rng.random()
    if form < 0.4:
        return int(rng.integers(least, greatest + 1))
    sizes = ints(rng, rank if form > 0.5 else 1, least, greatest)
    return list(sizes) if rng.random() < 0.2 else sizes


def random_bool(rng):
    return bool(rng.integers(2))


def choose(rng, *values):
    return values[rng.integers(len(values))]


def random_dtype(rng, *more):
    dtypes = (np.float32, np.float32, np.float64, np.float16, jnp.bfloat16, *more)
    return dtypes[rng.integers(len(dtypes))]


def pool_dtype(rng, name):
    """A dtype that PyTorch supports for this pool."""
    if name.startswith("lp") or name == "avg_pool3d":
        return np.float32
    if "unpool" in name or "fractional" in name:
        return choose(rng, np.float32, np.float64)
    return random_dtype(rng, *((np.int32, np.uint8) if name.startswith("max") else ()))


def random_output_size(rng, rank):
    """Sizes of an adaptive pool. None keeps the size of an axis."""
    sizes = random_sizes(rng, rank, 1, 8)
    return choose(rng, sizes, sizes, [None, *ints(rng, rank - 1, 1, 4)]) if rank > 1 else sizes


DRAW_ARGUMENT = {  # functions of a generator and the number of pooled axes
    "norm_type": lambda rng, rank: choose(rng, 1, 2, 2.0, 3, 0.5, -1, np.inf, -np.inf, True),
    "kernel_size": lambda rng, rank: random_sizes(rng, rank, 1, 3),
    "stride": lambda rng, rank: choose(rng, None, 1, random_sizes(rng, rank, 1, 3)),
    "padding": lambda rng, rank: choose(rng, 0, random_sizes(rng, rank, 0, 1)),
    "dilation": lambda rng, rank: random_sizes(rng, rank, 1, 2),
    "ceil_mode": lambda rng, rank: random_bool(rng),
    "count_include_pad": lambda rng, rank: random_bool(rng),
    "divisor_override": lambda rng, rank: choose(rng, None, None, -3, 1, 5),
    "output_size": random_output_size,
    "return_indices": lambda rng, rank: random_bool(rng),
}


def draw_pool(name, rng):
    rank = int(name[-2])
    shape = (*ints(rng, rng.integers(1, 3), 1, 2), *ints(rng, rank, *SIZE_RANGES[rank]))
    x = np.zeros(shape, pool_dtype(rng, name))
    if "unpool" in name:
        return draw_max_unpool(rng, x, rank)
    parameters = inspect.signature(getattr(ours, name)).parameters
    kwargs = {
        key: DRAW_ARGUMENT[key](rng, rank)
        for key, parameter in parameters.items()
        if key in DRAW_ARGUMENT and (parameter.default is parameter.empty or rng.random() < 0.8)
    }
    if "fractional" in name:
        return draw_fractional_max_pool(rng, x, rank, kwargs)
    if "norm_type" in kwargs and kwargs["norm_type"] not in (np.inf, -np.inf):
        kwargs.pop("ceil_mode", None)  # a documented difference
    return (x,), kwargs


def draw_max_unpool(rng, x, rank):
    kernel = ints(rng, rank, 1, SIZE_RANGES[rank][0] - 1)
    padding = tuple(int(rng.integers(size // 2 + 1)) for size in kernel)
    kwargs = {"kernel_size": kernel, "stride": ints(rng, rank, 1, 3), "padding": padding}
    values = to_torch(draw_array(rng, x.shape, "normal"))
    y, indices = torch_function(f"max_pool{rank}d")(values, **kwargs, return_indices=True)
    sizes = x.shape[-rank:]
    kwargs["output_size"] = choose(rng, None, sizes, (1, 1, *sizes), (9,) * rank)
    return (np.zeros(y.shape, x.dtype), array(indices)), kwargs


def draw_fractional_max_pool(rng, x, rank, kwargs):
    sizes = ints(rng, rank, 1, min(x.shape[-rank:]) - 1)
    ratios = tuple(float(r) for r in rng.uniform(0.2, 0.8, rank))
    sizes, ratios = (sizes, None) if random_bool(rng) else (None, ratios)
    batch = len(x) if x.ndim == rank + 2 else 1
    samples = rng.random((batch, x.shape[-rank - 1], rank)).astype(x.dtype)
    kwargs |= {"kernel_size": random_sizes(rng, rank, 1, 2), "_random_samples": samples}
    return (x,), kwargs | {"output_size": sizes, "output_ratio": ratios}


def draw_binary(rng):
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((5,), ()), ((2, 3), (3, 2))]
    dtype = random_dtype(rng, np.int32, np.int8, np.bool_)
    return tuple(np.zeros(shape, dtype) for shape in shapes[rng.integers(len(shapes))]), {}


def draw_reduction(name, rng):
    shape = ints(rng, rng.integers(0, 4), 0 if rng.random() < 0.2 else 1, 6)
    x = np.zeros(shape, random_dtype(rng, np.int32, np.int8, np.bool_))
    if "cum" in name:
        return (x, int(rng.integers(-2, 2))), {}
    if name in ("amax", "amin"):
        dims = [(), 0, -1, (0,), (0, 1), [1, -1], None, (1, -2)]
        return (x, dims[rng.integers(len(dims))], random_bool(rng)), {}
    if rng.random() < 0.3:
        return (x,), {}
    kwargs = {"dim": int(rng.integers(-2, 2))}
    return (x,), kwargs if random_bool(rng) else kwargs | {"keepdim": random_bool(rng)}


def draw_call(name, rng):
    if "pool" in name:
        args, kwargs = draw_pool(name, rng)
    elif name in BINARY or (name in ("max", "min") and random_bool(rng)):
        args, kwargs = draw_binary(rng)
    else:
        args, kwargs = draw_reduction(name, rng)
    return Call(name, args, kwargs)


def marks_of(name):
    return LATER if name.startswith("adaptive") and name.endswith("3d") else ()


def by_position(call):
    """The call with every argument by position, and with our defaults."""
    bound = inspect.signature(getattr(ours, call.name)).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return Call(call.name, bound.args)


@drawn_calls
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in FUNCTIONS])
def test_random_calls(name, calls):
    drawn = [draw_call(name, rng) for rng in geometries(calls)]
    if "pool" in name:
        drawn = [*drawn[::2], *map(by_position, drawn[1::2])]
    compare(drawn)


# Layers


def parameters_of(cls):
    return [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()]


def test_all_pytorch_pooling_layers_exist():
    theirs = {name for name in dir(torch.nn) if "pool" in name.lower()}
    assert set(LAYERS) == {name for name in theirs if inspect.isclass(getattr(torch.nn, name))}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    """Signature, attributes, text and results."""
    assert parameters_of(getattr(ours, name)) == parameters_of(getattr(torch.nn, name))
    (function,) = (each for each in FUNCTIONS if each.replace("_", "") == name.lower())
    calls = []
    for seed in range(5):
        args, kwargs = draw_pool(function, np.random.default_rng(seed))
        if "Unpool" in name:
            args = (*args, kwargs.pop("output_size"))
        calls.append(Call(name, args, kwargs))
        layers = [
            getattr(library, name)(**{key: convert(value) for key, value in kwargs.items()})
            for library, convert in ((ours, as_jax), (torch.nn, to_torch))
        ]
        if "_random_samples" not in kwargs:
            assert repr(layers[0]) == repr(layers[1])
        fields = [field.name for field in dataclasses.fields(layers[0])]
        for field in {*fields} - {"_random_samples"}:
            assert getattr(layers[0], field) == getattr(layers[1], field)
    compare(calls)


def test_layers_are_frozen_and_hashable():
    assert ours.MaxPool2d(2) == ours.MaxPool2d(2, 2) != ours.MaxPool3d(2)
    assert hash(ours.MaxPool2d(2)) == hash(ours.MaxPool2d(2, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.AvgPool1d(2).stride = 3
    x = jnp.arange(8.0).reshape(1, 2, 4)
    run = jax.jit(lambda layer, x: layer(x), static_argnums=0)
    np.testing.assert_array_equal(run(ours.MaxPool2d(2), x), [[[5.0, 7.0]]])


# Derivatives


FORWARD_MODE = {
    "max_pool2d": (2,),
    "avg_pool2d": (3, 2, 1),
    "lp_pool2d": (2, 2),
    "adaptive_max_pool2d": (4,),
    "adaptive_avg_pool2d": (4,),
    "amax": (1,),
    "max": (),
    "median": (),
    "nanmedian": (),
    "logcumsumexp": (1,),
}


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_and_jit(name):
    """JVP and VJP, in one program, are transposes."""

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def both(x, tangent):
        def pool(x):
            return getattr(ours, name)(x, *FORWARD_MODE[name])

        y, y_dot = jax.jvp(pool, (x,), (tangent,))
        dy = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return (y_dot * dy).sum(), (jax.vjp(pool, x)[1](dy)[0] * tangent).sum()

    np.testing.assert_allclose(*both(jnp.asarray(X), np.cos(X)), rtol=1e-4)


def test_cotangent_dtypes_match_operands():
    x, y = jnp.ones((2, 3), jnp.float16), jnp.zeros((3,), jnp.float32)
    dx, dy = jax.grad(lambda x, y: ours.maximum(x, y).sum(), (0, 1))(x, y)
    assert (dx.dtype, dx.shape) == (jnp.float16, (2, 3))
    assert (dy.dtype, dy.shape) == (jnp.float32, (3,))
