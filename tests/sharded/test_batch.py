"""Programs whose batch axis `jit` shards communicate only sums over the batch and predicates of branches."""

import importlib.util
import os
import subprocess
import sys

import pytest

from bench import batch
from jaxpool.testing import pools
from tests.support.later import later


def bench(*options, **environment):
    command = [sys.executable, "-m", "bench", "--peer", "none", *options]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "dtype", [later("float32"), later("bfloat16"), pytest.param("float16", marks=pytest.mark.slow)]
)
def test_eight_host_devices(dtype):
    lines = bench("--devices", "8", "--filter", f"{dtype}$").splitlines()
    assert {line.partition(" ")[0] for line in lines} == set(pools())


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="libtpu is not installed")
@pytest.mark.parametrize(
    "cases",
    [
        later(r"^(max|min)_pool\(.*float32$"),
        *[pytest.param(f"{dtype}$", marks=pytest.mark.slow) for dtype in batch.DTYPES],
    ],
)
def test_four_tpus(cases):
    assert bench("--target", "tpu:v5e", "--devices", "4", "--filter", cases, XLA_FLAGS="")


@pytest.mark.parametrize(
    ("line", "sums"),
    [
        ("f32[64,64]{1,0} all-reduce(%b), channel_id=1", True),
        ("(f32[64,64]{1,0}, f32[]) all-reduce(%b, %c), channel_id=1", True),
        (
            "u32[4,1024]{1,0} all-reduce(%b)\n%c = f16[64,64]{1,0:T(8,128)(2,1)} bitcast(%all-reduce.1)",
            True,
        ),
        ("pred[] all-reduce-start(%b), channel_id=1", True),
        ("u32[4,1024]{1,0} all-reduce(%b)", False),
        ("f32[16,64]{1,0} all-reduce(%b), channel_id=1", False),
        ("(f32[64,64]{1,0}, f32[16,64]) all-reduce(%b, %c), channel_id=1", False),
        ("f32[64,64]{1,0} all-gather(%b), channel_id=1", False),
        ("f32[64,64]{1,0} all-to-all(%b), channel_id=1", False),
    ],
)
def test_is_sum_over_batch(line, sums):
    ((kind, types),) = batch.collectives(f"%all-reduce.1 = {line}")
    assert batch.is_sum(kind, types, [(64, 64)]) == sums
