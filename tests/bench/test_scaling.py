"""Collectives of compiled programs for several devices, and the formula of docs/scaling.md."""

import pytest

from bench import scaling
from bench.scaling import Pool, collectives

PROGRAM = """
  %a = f32[1,1,256,8]{3,2,1,0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1}}
  %b = (bf16[1,258,1,8]{1,3:T(8,128)S(1)}, bf16[1,258,1,8]{1,3}, u32[]) collective-permute-start(%y)
  %c = bf16[1,258,1,8]{1,3:T(8,128)S(1)} collective-permute-done(%b)
  %d = pred[] all-reduce(%z), to_apply=%or
"""


def test_collectives_and_their_bytes():
    assert collectives(PROGRAM) == [
        ("collective-permute", 256 * 8 * 4),
        ("collective-permute", 258 * 8 * 2),
        ("all-reduce", 1),
    ]


@pytest.mark.parametrize(
    ("pool", "mesh", "elements"),
    [
        (Pool("max_pool", 3, 1), (8, 1), 2 * 20),
        (Pool("max_pool", 3, 2), (4, 2), 1 * 20 + 1 * (10 + 1)),
        (Pool("avg_pool", 2, 2), (4, 2), 0),
        (Pool("max_pool", 13, 1), (1, 8), 12 * 10),
    ],
)
def test_halo_elements_per_device(pool, mesh, elements):
    assert pool.halo((10, 20), mesh) == elements


def test_single_device_program_sends_nothing(monkeypatch):
    """A single device sends nothing."""
    monkeypatch.setattr(scaling, "SHARD", (8, 8))
    import jax

    shared = scaling._compiled(Pool("max_pool", 3, 2), (1, 1), jax.devices()[:1])
    assert (shared.sent_forward, shared.sent, shared.formula, shared.others) == (0, 0, 0, ())
    assert shared.held > 8 * 8 * 8 * 4
