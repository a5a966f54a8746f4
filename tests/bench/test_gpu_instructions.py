"""The common pools compile to GPU kernels with vector loads and without branches; programs keep their counts.

Needs no GPU, but the packages that `.ci/run` installs.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# call, shape, kernels, and for float32 and bfloat16: bytes over the least bytes, instructions per element of x.
# Forward and backward. Instructions at most: 0.9, 0.65 and 0.7 of those of padded passes (max 2x2 with strides of 2,
# 3x3 with strides of 2, 3x3), 0.7 for averages of 3x3.
CASES = [
    ("max_pool(x, (2, 2), (2, 2))", (16, 128, 128, 32), 2, (1.05, 24.5), (1.1, 26.4)),
    ("max_pool(x, (3, 3), (2, 2), 'SAME')", (16, 112, 112, 64), 2, (1.05, 81.6), (1.1, 91.4)),
    ("max_pool(x, (3, 3), (2, 2), (1, 1))", (16, 112, 112, 64), 2, (1.05, 78.8), (1.1, 83.8)),
    ("max_pool(x, (3, 3), (1, 1), 'SAME')", (8, 64, 64, 64), 2, (1.13, 153.3), (1.25, 164.8)),
    ("max_pool(x, (2, 2, 2), (2, 2, 2))", (4, 32, 32, 32, 64), 2, (1.03, 36.5), (1.06, 37.7)),
    ("avg_pool(x, (2, 2), (2, 2))", (16, 128, 128, 32), 2, (1.0, 11.1), (1.0, 12.1)),
    ("avg_pool(x, (3, 3), (1, 1), 'SAME')", (32, 56, 56, 64), 4, (2.0, 42.7), (3.0, 45.5)),
    ("avg_pool(x, (3, 3), (2, 2), 'SAME')", (32, 56, 56, 64), 2, (1.0, 53.0), (1.0, 63.9)),
]
IDS = [((1_000_000,), "int32")]
BOXES = [((64, 4), "float32"), ((64,), "int32")]
# call of x and other arrays, shape of x, types of the other arrays, kernels, bytes over the least bytes. Forward and
# backward; only forward if the result is boolean. None of these programs waits for the host.
OTHER_CASES = [
    ("local_maxima(x, 3, axes=(1, 2))", (16, 112, 112, 64), [], 1, 1.0),
    ("local_maxima(x, 5, axes=(1, 2), ties='last')", (16, 112, 112, 64), [], 1, 1.0),
    ("local_maxima(x, 5, axes=(1, 2), ties='all')", (16, 112, 112, 64), [], 2, 3.4),
    ("max_unpool(x, a, (112, 112))", (64, 56, 56, 64), [((64, 56, 56, 64), "int32")], 5, 2.2),
    ("roi_align(x, a, 7, batch_indices=b)", (16, 112, 112, 64), BOXES, 13, 2.35),
    ("roi_align(x, a, 7, batch_indices=b)", (2, 50, 50, 256), BOXES, 13, 7.3),
    ("cummax(x, 1)", (16, 4096, 512), [], 13, 2.5),
    ("cummax(x, 2)", (16, 4096, 512), [], 11, 2.5),
    ("cummax(x, 1)", (256, 65536), [], 16, 2.4),
    ("softmax_pool(x, (3, 3), padding='SAME')", (16, 112, 112, 64), [], 2, 2.8),
    ("logsumexp_pool(x, (3, 3), padding='SAME')", (16, 112, 112, 64), [], 2, 2.3),
    ("lp_pool(x, 2, (3, 3), padding='SAME')", (16, 112, 112, 64), [], 2, 2.3),
    ("lp_pool(x, 2.5, (3, 3), padding='SAME')", (16, 112, 112, 64), [], 2, 2.3),
    ("gem_pool(x, 2.5, (3, 3), padding='SAME')", (16, 112, 112, 64), [], 3, 1.5),
    ("segment_sum(x, a, 50_000)", (1_000_000, 16), IDS, 18, 1.95),
    ("segment_sum(x, a, 50_000, indices_are_sorted=True)", (1_000_000, 16), IDS, 17, 1.85),
]
PROGRAM = """
import json, sys
from bench.target import Target
target = Target("cuda:h100")  # before jax loads a backend
import jax, jaxpool
rows = []
for call, *types in json.loads(sys.argv[1]):
    f = eval(f"lambda x, a=None, b=None: jaxpool.{call}")
    arrays = [jax.ShapeDtypeStruct(*each) for each in types]
    y = jax.eval_shape(f, *arrays)
    def value_and_gradient(dy, x, *others):
        y, back = jax.vjp(lambda x: f(x, *others), x)
        return y, back(dy)[0]
    if y.dtype == bool:
        rows.append(target.compile(f, *arrays))
    else:
        rows.append(target.compile(value_and_gradient, y, *arrays))
target.close()
print(json.dumps(rows))
"""
compiles_for_gpu = pytest.mark.skipif(
    not importlib.util.find_spec("jax_cuda12_plugin"), reason="jax-cuda12-plugin is not installed"
)


def compile_calls(calls):
    """Return the counts of programs of calls, each with the types of its arrays."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(calls)],
        env={**os.environ, "XLA_FLAGS": ""},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.ci
@compiles_for_gpu
def test_kernels_load_vectors_without_branches():
    dtypes = ("float32", "bfloat16")
    calls = [(call, (shape, dtype)) for call, shape, *_ in CASES for dtype in dtypes]
    rows = iter(compile_calls(calls))
    for call, _, kernels, *limits in CASES:
        for max_bytes, max_instructions in limits:
            row = next(rows)
            about = f"{call}: {row}"
            assert (row["branches"], row["scalar floats"], row["host loops"]) == (0, 0, 0), about
            assert row["kernels"] == kernels, about
            assert row["bytes"] <= max_bytes, about
            assert row["instructions"] <= max_instructions, about


@pytest.mark.ci
@compiles_for_gpu
def test_programs_do_not_wait_for_the_host():
    calls = [(call, (shape, "float32"), *others) for call, shape, others, *_ in OTHER_CASES]
    rows = compile_calls(calls)
    for (call, _, _, kernels, max_bytes), row in zip(OTHER_CASES, rows, strict=True):
        about = f"{call}: {row}"
        assert row["host loops"] == 0, about
        assert row["kernels"] <= kernels, about
        assert row["bytes"] <= max_bytes, about
