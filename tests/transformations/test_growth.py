"""Bounds on temporary memory and compile time for windows, kernels, samples, ranks and axes as large as users pass."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.testing import pools
from tests.support.compilation import DEFAULT_COMPILE

MIN_TEMP_BYTES = 64_000_000  # temporary bytes that any program may use
MAX_TEMP_RATIO = 20  # temporary bytes per byte of arguments and results
MAX_SECONDS = 5  # processor time to trace and compile

LONG = 63  # elements along an axis of a window, a kernel or a pyramid
WIDE = (LONG, LONG)
AXIS = 10_000_000
IMAGE, ROWS = (1, 224, 224, 4), (AXIS, 1)
KERNEL = np.sin(np.arange(LONG * LONG, dtype=np.float32)).reshape(WIDE)
BOXES = {
    "boxes": np.linspace(0, 200, 4 * 16, dtype=np.float32).reshape(16, 4),
    "batch_indices": np.zeros(16, np.int32),
}
BOX_CALLS = [
    (IMAGE, BOXES | {"output_shape": WIDE}),
    (IMAGE, BOXES | {"output_shape": (7, 7), "samples": LONG}),
    (IMAGE, BOXES | {"output_shape": (7, 7), "samples": LONG, "kind": "max"}),
]
# By arguments of a function, shapes of x and settings. A function of x among the settings computes an array. The
# first entry whose arguments a function takes has its calls, without settings that it does not take.
CALLS = {
    ("window_shape", "output_shape"): [
        (IMAGE, {"window_shape": WIDE, "output_shape": (100, 100)}),
        (ROWS, {"window_shape": (LONG,), "output_shape": (AXIS // 50,)}),
    ],
    ("blur_shape",): [
        (IMAGE, {"window_shape": WIDE, "blur_shape": WIDE, "strides": (1, 1)}),
        (IMAGE, {"window_shape": WIDE, "blur_shape": (31, 31), "strides": (16, 16)}),
    ],
    ("window_shape",): [
        (IMAGE, {"window_shape": WIDE, "strides": (1, 1), "padding": "SAME"}),
        (IMAGE, {"window_shape": WIDE, "strides": (16, 16), "padding": "SAME"}),
        (ROWS, {"window_shape": (LONG,), "strides": (1,), "padding": "SAME"}),
    ],
    ("kernel",): [
        (IMAGE, {"kernel": lambda x: x[0, :LONG, :LONG, 0], "padding": "SAME"}),
        (IMAGE, {"kernel": lambda x: x[0, :LONG, :LONG, 0], "padding": "SAME", "ties": "split"}),
        (IMAGE, {"kernel": KERNEL, "padding": "SAME"}),
        (ROWS, {"kernel": lambda x: x[:LONG, 0], "padding": "SAME", "axes": (0,)}),
    ],
    ("segment_ids",): [
        (
            ROWS,
            {
                "x": lambda x: x,
                "segment_ids": lambda x, count=count: jnp.arange(AXIS) % count,
                "num_segments": count,
            },
        )
        for count in (LONG, AXIS // 10)
    ],
    ("samples", "kind"): BOX_CALLS,
    ("samples",): BOX_CALLS[:2],
    ("boxes",): BOX_CALLS[:1],
    ("indices",): [
        (
            (AXIS // 2, 1),
            {
                "y": lambda x: x,
                "indices": lambda x: jnp.arange(AXIS // 2)[:, None] // 2,
                "spatial_shape": (AXIS,),
            },
        )
    ],
    ("output_shape",): [
        (IMAGE, {"output_shape": WIDE}),
        (ROWS, {"output_shape": (LONG,)}),
        (ROWS, {"output_shape": (AXIS // 7 + 1,)}),
    ],
    ("levels",): [
        (IMAGE, {"levels": (1, LONG // 2, LONG), "kind": kind}) for kind in ("max", "avg")
    ],
    ("k",): [
        ((8, 16384), {"k": 4096, "axis": 1}),
        (ROWS, {"k": 4096, "axis": 0}),
        (IMAGE, {"k": LONG, "axis": 1}),
    ],
    ("groups",): [((AXIS // LONG * LONG, 1), {"groups": AXIS // LONG, "axis": 0})],
    ("axis",): [(ROWS, {"axis": 0})],
    ("axes",): [(ROWS, {"axes": (0,)})],
    ("xs",): [(ROWS, {"xs": lambda x: (x, x[0])})],
    ("y",): [(ROWS, {"y": lambda x: x[0]})],
}


def options(pool):
    """Return settings that select other kernels of windowed pools, each for every call."""
    if not pool.takes("window_shape") or pool.takes("output_shape") or pool.takes("rank"):
        return [{}]
    if "split" in pool.ties:
        return [{"ties": "first"}, {"ties": "split"}]
    if pool.takes("p") and not pool.coefficients:
        return [{"p": 2.0}, {"p": 3.0}]
    return [{}, *({"key": key} for key in pool.choices.get("key", ()))]


def cases():
    for pool in pools().values():
        found = next(calls for arguments, calls in CALLS.items() if pool.takes(*arguments))
        every = [(shape, settings | more) for more in options(pool) for shape, settings in found]
        for coefficient in pool.coefficients:
            shape, settings = found[0]
            every.append((shape, settings | {coefficient: lambda x: x[0, 0, 0]}))  # one per channel
            every.append((shape, settings | {coefficient: lambda x: x}))  # one per output
        for number, (shape, settings) in enumerate(every):
            yield pytest.param(pool, shape, settings, id=f"{pool.name} {number}")


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "shape", "settings"), list(cases()))
def test_memory_and_compile_time_are_bounded(pool, shape, settings):
    def first_and_others(x):
        given = {name: value(x) if callable(value) else value for name, value in settings.items()}
        y, *others = jax.tree.leaves(pool.run(pool.given(x, **given)))
        return y, others

    def value_and_vjp(dy, x):
        y, back, others = jax.vjp(first_and_others, x, has_aux=True)
        return y, others, back(dy)

    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    dy, _ = jax.eval_shape(first_and_others, x)
    began = time.process_time()
    memory = jax.jit(value_and_vjp).lower(dy, x).compile(DEFAULT_COMPILE).memory_analysis()
    seconds = time.process_time() - began
    around = memory.argument_size_in_bytes + memory.output_size_in_bytes
    print(f"{seconds:.1f} s, {memory.temp_size_in_bytes / 1e6:.0f} MB beside {around / 1e6:.0f}")
    assert memory.temp_size_in_bytes <= max(MIN_TEMP_BYTES, MAX_TEMP_RATIO * around), f"{around=}"
    assert seconds <= MAX_SECONDS
