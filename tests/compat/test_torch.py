"""The drop-ins for PyTorch, compared with `torch` and `torch.nn.functional`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.compat import torch as ours
from tests.support.compat_cases import draw_array, drawn_calls, geometries, ints, torch_function
from tests.support.compilation import FAST_COMPILE
from tests.support.later import first_values

torch = pytest.importorskip("torch")
F = torch.nn.functional

NAN, INF = float("nan"), float("inf")
POOLS = [name for name in ours.__all__ if "_" in name and "pool" in name]
VALUES = ("normal", "ties", "lowest", "special")
SIZE_RANGES = {
    1: (4, 9),
    2: (3, 7),
    3: (2, 5),
}  # by rank, the least and greatest size of pooled axes


def tensor(x):
    x = np.asarray(x)
    if x.dtype == jnp.bfloat16:
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def array(value):
    value = value.detach()
    return value.to(torch.float32).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def values_and_indices(result):
    """Values and indices of a result, with None for missing indices."""
    return tuple(result) if isinstance(result, tuple) else (result, None)


def cotangent(y):
    return np.asarray(1 + 0.5 * np.sin(np.arange(y.size, dtype=np.float32))).reshape(y.shape)


@dataclasses.dataclass
class Case:
    """One call: a function, the shapes of its arrays, and all other arguments."""

    name: str
    shapes: tuple
    args: tuple = ()
    kwargs: dict = dataclasses.field(default_factory=dict)
    dtype: object = np.float32
    lenient: float = 1.0  # factor on the tolerance
    same_at_nan: bool = True  # whether cotangents agree for special values

    def ours(self, *xs):
        return values_and_indices(getattr(ours, self.name)(*xs, *self.args, **self.kwargs))

    def theirs(self, *xs):
        xs = [tensor(x) for x in xs]
        for x in xs:
            x.requires_grad_(x.is_floating_point())
        y, indices = values_and_indices(torch_function(self.name)(*xs, *self.args, **self.kwargs))
        if not y.is_floating_point():
            return array(y), None if indices is None else array(indices), None
        if y.requires_grad:
            y.backward(torch.from_numpy(cotangent(array(y))).to(y.dtype))
        grads = [np.zeros(x.shape) if x.grad is None else array(x.grad) for x in xs]
        return array(y), None if indices is None else array(indices), grads

    def run(self, *xs):
        if not jnp.issubdtype(self.dtype, jnp.floating):
            y, indices = self.ours(*xs)
            return y, indices, None
        y, pullback, indices = jax.vjp(self.ours, *xs, has_aux=True)
        return y, indices, pullback(jnp.asarray(cotangent(y)).astype(y.dtype))

    def check(self, kind, got, want):
        says = f"of {self.name} of {self.shapes} with {self.args} {self.kwargs} on {kind}"
        floating = jnp.issubdtype(self.dtype, jnp.floating)
        eps = float(jnp.finfo(self.dtype).eps) if floating else 0
        (y, indices, grads), (want_y, want_indices, want_grads) = got, want
        assert_close(y, want_y, 8 * eps * self.lenient, f"value {says}")
        if want_indices is not None:
            assert indices.dtype == np.int32
            np.testing.assert_array_equal(indices, want_indices, f"indices {says}")
        if grads is not None and (kind != "special" or self.same_at_nan):
            for dx, want_dx in zip(grads, want_grads, strict=True):
                assert_close(dx, want_dx, 16 * eps * self.lenient, f"cotangent {says}")


def assert_close(got, want, tolerance, says):
    assert got.shape == want.shape, says
    got = np.asarray(got)
    got = got.astype(np.float32) if got.dtype == jnp.bfloat16 else got
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=says)


def compare(cases, values=VALUES):
    """Assert that ours and PyTorch's agree on each of `values`, or that both refuse the call."""
    cases = list(cases)
    compared = 0
    for x64 in (False, True):
        some = [case for case in cases if (case.dtype == np.float64) == x64]
        with jax.enable_x64(x64):
            compared += compare_in_chunks(some, values)
    assert compared


def compare_in_chunks(cases, values):
    """Compare cases, eight in each program, and return how many are not refused."""
    rng = np.random.default_rng(0)
    taken = []
    for case in cases:
        xs = [draw_array(rng, shape, "normal", case.dtype) for shape in case.shapes]
        try:
            case.theirs(*xs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            with pytest.raises((TypeError, ValueError)):
                case.ours(*xs)
        else:
            taken.append(case)
    for start in range(0, len(taken), 8):
        some = taken[start : start + 8]
        run = jax.jit(
            lambda each, some=some: [case.run(*xs) for case, xs in zip(some, each, strict=True)],
            compiler_options=FAST_COMPILE,
        )
        for kind in values:
            each = [
                tuple(draw_array(rng, shape, kind, case.dtype) for shape in case.shapes)
                for case in some
            ]
            for case, xs, got in zip(some, each, run(each), strict=True):
                case.check(kind, got, case.theirs(*xs))
    return len(taken)


def random_shape(rng, rank):
    least, greatest = SIZE_RANGES[rank]
    shape = ints(rng, rng.integers(1, 3), 1, 2)
    return (*shape, *ints(rng, rank, least, greatest))


def random_sizes(rng, rank, least, greatest):
    """An int, a sequence of one int, or one int per axis."""
    form = rng.random()
    if form < 0.4:
        return int(rng.integers(least, greatest + 1))
    sizes = ints(rng, rank if form > 0.5 else 1, least, greatest)
    return list(sizes) if rng.random() < 0.2 else sizes


def random_window_args(rng, rank):
    kernel = random_sizes(rng, rank, 1, 3)
    stride = None if rng.random() < 0.3 else random_sizes(rng, rank, 1, 3)
    if rng.random() < 0.1:
        # The padding may exceed half of the kernel, which PyTorch refuses.
        return kernel, stride, random_sizes(rng, rank, 0, 1)
    padding = tuple(int(rng.integers(0, width // 2 + 1)) for width in sizes_per_axis(kernel, rank))
    return kernel, stride, padding[0] if len(set(padding)) == 1 else padding


def sizes_per_axis(sizes, rank):
    """One int per axis."""
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return sizes * rank if len(sizes) == 1 else sizes


def random_dtype(rng, *more):
    dtypes = (np.float32, np.float32, np.float64, np.float16, jnp.bfloat16, *more)
    return dtypes[rng.integers(len(dtypes))]


@drawn_calls
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pools(rank, calls):
    cases = []
    for rng in geometries(calls):
        args = (
            *random_window_args(rng, rank),
            random_sizes(rng, rank, 1, 2),
            bool(rng.integers(2)),
        )
        args = (*args, bool(rng.integers(2)))
        shape, dtype = random_shape(rng, rank), random_dtype(rng, np.int32, np.uint8)
        cases.append(Case(f"max_pool{rank}d", (shape,), args, dtype=dtype))
    compare(cases)


@drawn_calls
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_average_pools(rank, calls):
    cases = []
    for rng in geometries(calls):
        args = (*random_window_args(rng, rank), bool(rng.integers(2)), bool(rng.integers(2)))
        if rank > 1 and rng.random() < 0.3:
            args = (*args, int(rng.choice([-3, 1, 5])))
        dtype = random_dtype(rng) if rank < 3 else np.float32
        cases.append(Case(f"avg_pool{rank}d", (random_shape(rng, rank),), args, dtype=dtype))
    compare(cases)


@drawn_calls
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lp_pools(rank, calls):
    cases = []
    for rng in geometries(calls):
        norm = [1, 2, 2.0, 3, 0.5, -1, INF, -INF, True][rng.integers(9)]
        kernel, stride, _ = random_window_args(rng, rank)
        shape = random_shape(rng, rank)
        ceil_mode = bool(rng.integers(2)) and norm in (INF, -INF)
        args = (norm, kernel, stride, ceil_mode)
        cases.append(Case(f"lp_pool{rank}d", (shape,), args, lenient=16))
    # The C library decides powers of infinities.
    compare(cases, ("normal", "normal", "ties", "ties"))


@drawn_calls
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("rank", first_values(2, [1, 2, 3]))
def test_adaptive_pools(kind, rank, calls):
    cases = []
    for rng in geometries(calls):
        shape = random_shape(rng, rank)
        target = random_sizes(rng, rank, 1, 8)
        if rank > 1 and rng.random() < 0.3:
            target = [None, *ints(rng, rank - 1, 1, 4)]
        args = (target, bool(rng.integers(2))) if kind == "max" else (target,)
        cases.append(Case(f"adaptive_{kind}_pool{rank}d", (shape,), args, dtype=random_dtype(rng)))
    compare(cases)


@pytest.fixture
def one_thread():
    """With a single thread, the last of colliding indices wins. With several threads, PyTorch's order is undefined."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@drawn_calls
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling(rank, calls):
    cases = []
    for rng in geometries(calls):
        kernel, stride, padding = random_window_args(rng, rank)
        stride = sizes_per_axis(stride or kernel, rank)
        kernel, padding = sizes_per_axis(kernel, rank), sizes_per_axis(padding, rank)
        shape = random_shape(rng, rank)
        x = tensor(draw_array(rng, shape, "normal"))
        pool = torch_function(f"max_pool{rank}d")
        try:
            y, indices = pool(x, kernel, stride, padding, return_indices=True)
        except RuntimeError:
            continue
        size = [None, shape[-rank:], (1, 1, *shape[-rank:]), (9,) * rank][rng.integers(4)]
        kwargs = {"kernel_size": kernel, "stride": stride, "padding": padding, "output_size": size}
        extra = ("indices", array(indices))
        dtype, sizes = (np.float32, np.float64)[rng.integers(2)], (tuple(y.shape),)
        cases.append(Unpooled(f"max_unpool{rank}d", sizes, (), kwargs, dtype, extra=extra))
    compare(cases)


@dataclasses.dataclass
class Indexed(Case):
    """A call with an additional array without gradient: `extra` is its name and its values."""

    extra: tuple = ()

    def with_extra(self, function, convert, *xs):
        name, values = self.extra
        whole = self.kwargs
        try:
            self.kwargs = whole | {name: convert(values)}
            return function(*xs)
        finally:
            self.kwargs = whole

    def ours(self, *xs):
        return self.with_extra(super().ours, jnp.asarray, *xs)

    def theirs(self, *xs):
        return self.with_extra(super().theirs, torch.from_numpy, *xs)


@dataclasses.dataclass
class Unpooled(Indexed):
    """An unpooling. Elements that are overwritten get 0 instead of PyTorch's gradient."""

    def theirs(self, *xs):
        y, indices, grads = super().theirs(*xs)
        positions = self.extra[1]
        lanes = positions.shape[: positions.ndim - int(self.name[-2])]
        for lane in np.ndindex(*lanes):
            flat = positions[lane].ravel()
            overwritten = [at in flat[i + 1 :] for i, at in enumerate(flat)]
            grads[0][lane] = np.where(
                np.reshape(overwritten, grads[0][lane].shape), 0, grads[0][lane]
            )
        return y, indices, grads


@drawn_calls
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pools(rank, calls):
    cases = []
    for rng in geometries(calls):
        shape = random_shape(rng, rank)
        shape = shape if len(shape) > rank else (1, *shape)
        kernel = random_sizes(rng, rank, 1, 3)
        pairs = zip(shape[-rank:], sizes_per_axis(kernel, rank), strict=True)
        outs = tuple(int(rng.integers(1, max(size - width, 1) + 1)) for size, width in pairs)
        batch = shape[0] if len(shape) == rank + 2 else 1
        dtype = (np.float32, np.float64)[rng.integers(2)]
        samples = rng.random((batch, shape[-rank - 1], rank)).astype(dtype)
        kwargs = {"output_size": outs, "return_indices": bool(rng.integers(2))}
        if rng.random() < 0.4:
            kwargs = {"output_ratio": tuple(float(r) for r in rng.uniform(0.2, 0.8, rank))}
        name = f"fractional_max_pool{rank}d"
        extra = ("_random_samples", samples)
        cases.append(Indexed(name, (shape,), (kernel,), kwargs, dtype, extra=extra))
    compare(cases)


@drawn_calls
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "max", "min"])
def test_binary_extrema(name, calls):
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((5,), ()), ((2, 3), (3, 2))]
    cases = []
    for rng in geometries(calls):
        dtype = random_dtype(rng, np.int32, np.int8, np.bool_)
        shape = shapes[rng.integers(len(shapes))]
        cases.append(Case(name, shape, dtype=dtype, same_at_nan=name in ("fmax", "fmin")))
    compare(cases)


@drawn_calls
@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "cummax", "cummin", "logcumsumexp"])
def test_reductions_and_scans(name, calls):
    several, one = name in ("amax", "amin"), "cum" in name
    cases = []
    for rng in geometries(calls):
        shape = ints(rng, rng.integers(0, 4), 0 if rng.random() < 0.2 else 1, 6)
        args = [(int(rng.integers(-2, 2)),)]
        if several:
            dims = [(), 0, -1, (0,), (0, 1), [1, -1], None, (1, -2)]
            args = [(dim, bool(rng.integers(2))) for dim in dims]
        elif not one:
            args += [(), (0, True), (-1, False)]
        dtype = (
            random_dtype(rng) if name == "logcumsumexp" else random_dtype(rng, np.int32, np.bool_)
        )
        case = Case(name, (shape,), args[rng.integers(len(args))], dtype=dtype)
        case.same_at_nan = not several and name != "logcumsumexp"
        cases.append(case)
    # PyTorch's gradient of logcumsumexp is NaN next to -inf.
    compare(cases, ("normal", "ties", "special") if name == "logcumsumexp" else VALUES)


@dataclasses.dataclass
class Median(Case):
    """A median along an axis. PyTorch may name any tied element, ours names the first."""

    def theirs(self, *xs):
        y, index, grads = super().theirs(*xs)
        if index is None or grads is None or not y.size or not xs[0].ndim:
            return y, index, grads
        x, axis = array(tensor(xs[0])), self.args[0]
        line, place = (each if self.args[1:] == (True,) else np.expand_dims(each, axis)
                       for each in (y, index))  # fmt: skip
        np.testing.assert_array_equal(np.take_along_axis(x, place, axis), line)
        level = (x == line) | (np.isnan(x) & np.isnan(line))
        first = level.argmax(axis)
        sent = np.zeros_like(x)
        share = cotangent(y).reshape(line.shape)
        np.put_along_axis(sent, np.expand_dims(first, axis), share, axis)
        unique = level.sum(axis, keepdims=True) == 1
        assert_close(np.where(unique, sent, 0), np.where(unique, grads[0], 0), 0.01, "of PyTorch")
        return y, first.reshape(index.shape), [sent]


@drawn_calls
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_and_nanmedian(name, calls):
    cases = []
    for rng in geometries(calls):
        shape = ints(rng, rng.integers(0, 4), 0 if rng.random() < 0.2 else 1, 6)
        args = [(), (int(rng.integers(-2, 2)),), (0, True), (-1, False)][rng.integers(4)]
        dtype = random_dtype(rng, np.int32, np.int8, np.uint8)
        if dtype == np.uint8 or dtype == np.int8 or dtype == np.int32:
            cases.append(Case(name, (shape,), dtype=dtype))
        else:
            cases.append(Median(name, (shape,), args, dtype=dtype))
    compare(cases)


def test_median_of_long_int16_axis():
    x = np.random.default_rng(0).permutation(3001).astype(np.int16).reshape(1, 3001)
    for name in ("median", "nanmedian"):
        got, want = getattr(ours, name)(x, 1), getattr(torch, name)(tensor(x), 1)
        for each, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(each, theirs)


@drawn_calls
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_aminmax(dim, calls):
    for rng in geometries(min(calls, 4)):
        x = np.float32(rng.integers(-3, 3, ints(rng, 2, 1, 5)))  # with ties
        theirs = torch.tensor(x, requires_grad=True)
        want = (
            torch.aminmax(theirs, dim=dim, keepdim=True)
            if dim is not None
            else torch.aminmax(theirs)
        )
        (2 * want.min.sum() + want.max.sum()).backward()
        given = {} if dim is None else {"dim": dim, "keepdim": True}
        got = ours.aminmax(x, **given)
        assert got._fields == ("min", "max")
        for y, each in zip(got, want, strict=True):
            np.testing.assert_array_equal(y, each.detach())

        def total(x, given=given):
            least, most = ours.aminmax(x, **given)
            return 2 * least.sum() + most.sum()

        np.testing.assert_allclose(jax.grad(total)(x), theirs.grad, rtol=1e-6)
