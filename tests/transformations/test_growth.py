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
BOXES = np.linspace(0, 200, 4 * 16, dtype=np.float32).reshape(16, 4)
OF_IMAGE = {
    **{"window_shape": WIDE, "strides": (1, 1), "padding": "SAME", "blur_shape": WIDE},
    **{"output_shape": WIDE, "boxes": BOXES, "batch_indices": np.zeros(16, np.int32)},
    **{"levels": (1, LONG // 2, LONG), "k": LONG, "axis": 1},
    "kernel": lambda x: x[0, :LONG, :LONG, 0],
}
# Pairs of the shape of x and settings. A function gets the settings that are its parameters. A callable setting
# computes an array from x.
CALLS = [
    (IMAGE, OF_IMAGE),
    (
        IMAGE,
        OF_IMAGE
        | {"strides": (16, 16), "blur_shape": (31, 31), "kernel": KERNEL}
        | {"output_shape": (7, 7), "samples": LONG, "kind": "max", "p": 2.0},
    ),
    (
        ROWS,
        {
            **{"window_shape": (LONG,), "strides": (1,), "padding": "SAME", "axes": (0,)},
            **{"blur_shape": (3,), "output_shape": (AXIS // 7 + 1,), "levels": (1, LONG)},
            **{"axis": 0, "k": 4096, "groups": AXIS // 64, "num_segments": AXIS // 10},
            "spatial_shape": (AXIS,),
            "x": lambda x: x,
            "kernel": lambda x: x[:LONG, 0],
            "segment_ids": lambda x: jnp.arange(AXIS) % (AXIS // 10),
            "indices": lambda x: jnp.arange(AXIS)[:, None] // 2,
        },
    ),
]


def cases():
    for pool in pools().values():
        last = {"ties": pool.ties[-1]} if pool.ties else {}
        every = [CALLS[0], (IMAGE, CALLS[1][1] | last), *([] if pool.takes("boxes") else CALLS[2:])]
        every += [(IMAGE, OF_IMAGE | {"key": key}) for key in pool.choices.get("key", ())]
        for coefficient in pool.coefficients:
            every.append((IMAGE, OF_IMAGE | {coefficient: lambda x: x[0, 0, 0]}))  # one per channel
            every.append((IMAGE, OF_IMAGE | {coefficient: lambda x: x}))  # one per output
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
