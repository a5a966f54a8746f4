"""`python -m bench --scaling`: communication and memory of devices that share an image.

The numbers come from compiled programs; nothing runs. The shard size is constant (weak scaling). Without `--target`,
XLA splits the host into devices. With `--target tpu:v5e`, the devices are TPU slices that need not be present.
Call `settle` before jax loads a backend.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import results
from bench.compiled import type_bytes

COLLECTIVES = "all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute"
SHARD = (1024, 1024)  # rows and columns per device
CHANNELS = 8
LARGE = 16384  # rows and columns of the image for the comparison of memory
HOST_MESHES = ((2, 1), (4, 1), (8, 1), (4, 2))
TPU_MESHES = ((4, 4), (16, 16))


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool with a square window and "SAME" padding."""

    function: str
    window: int
    stride: int

    def __str__(self) -> str:
        kind = self.function.removesuffix("_pool")
        return f"{kind} {self.window}x{self.window} stride {self.stride}"

    def halo(self, shard: tuple[int, int], mesh: tuple[int, int]) -> int:
        """Elements per channel that an inner device sends in the forward pass (formula of docs/scaling.md)."""
        overlap = max(0, self.window - self.stride)
        rows, columns = (overlap if count > 1 else 0 for count in mesh)
        return rows * shard[1] + columns * (shard[0] + rows)


POOLS = (
    Pool("max_pool", 2, 2),
    Pool("max_pool", 3, 1),
    Pool("max_pool", 3, 2),
    Pool("avg_pool", 3, 1),
    Pool("max_pool", 13, 1),
)


@dataclasses.dataclass(frozen=True)
class Shared:
    """A pool of an image that is sharded over a mesh, with bytes per device."""

    pool: Pool
    mesh: tuple[int, int]
    sent_forward: int
    sent: int  # forward and backward
    formula: int  # forward
    held: int  # arguments, results and temporaries, forward and backward
    others: tuple[str, ...]  # collectives other than halo exchanges

    def row(self) -> dict[str, str]:
        """A row of the table."""
        rows, columns = self.mesh
        return {
            "pool": str(self.pool),
            "devices": f"{rows} x {columns}",
            "sent forward": f"{self.sent_forward:,}",
            "formula": f"{self.formula:,}",
            "sent forward and backward": f"{self.sent:,}",
            "held": f"{self.held:,}",
            "sent / held": f"{self.sent / self.held:.3%}",
            "other collectives": ", ".join(self.others) or "-",
        }


def typed_collectives(text: str) -> list[tuple[str, str]]:
    """The collectives of an optimised HLO module, with the types of their results."""
    kinds = "|".join(COLLECTIVES)
    matches = re.findall(rf"= (\(.*?\)|\S+) ({kinds})(?:-start)?\(", text)
    if len(matches) != len(re.findall(rf" (?:{kinds})(?:-start)?\(", text)):
        raise ValueError("a collective that cannot be read")
    return [(kind, types) for types, kind in matches]


def collectives(text: str) -> list[tuple[str, int]]:
    """The collectives of an optimised HLO module, with the bytes that a device sends."""
    return [(kind, type_bytes(_first(types))) for kind, types in typed_collectives(text)]


def _first(shape: str) -> str:
    """The type of the operand, the first element of the tuple type of a `-start` instruction."""
    return re.sub(r"^\((\w+\[[\d,]*\]).*", r"\1", shape)


def settle(target: str | None, devices: int) -> None:
    """Set the environment variables that jax reads at import."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    if not target:
        flags = f"--xla_force_host_platform_device_count={devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"


def devices_of(target: str | None, mesh: tuple[int, int]) -> Any:
    """Devices of this host, or of a slice of TPUs, in rows and columns."""
    import jax
    from jax.experimental import topologies

    if not target:
        return jax.devices()[: math.prod(mesh)]
    name = f"{target.partition(':')[2]}:{mesh[0]}x{mesh[1]}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices


def measured(target: str | None) -> Iterator[Shared]:
    """Each pool on each mesh."""
    for mesh in TPU_MESHES if target else HOST_MESHES:
        devices = devices_of(target, mesh)
        for pool in POOLS:
            yield _compiled(pool, mesh, devices)


def _programs(pool: Pool, sizes: Sequence[int], channels: int, sharding: Any) -> tuple[Any, Any]:
    """The pool of an image, and its value and gradient, compiled."""
    import jax
    import numpy as np

    import jaxpool

    def forward(x: Any) -> Any:
        window, strides = (pool.window,) * 2, (pool.stride,) * 2
        return getattr(jaxpool, pool.function)(x, window, strides, "SAME")

    def both(x: Any, dy: Any) -> Any:
        y, pull = jax.vjp(forward, x)
        return y, pull(dy)[0]

    x, dy = (
        jax.ShapeDtypeStruct(
            (1, *(-(-size // stride) for size in sizes), channels), np.float32, sharding=sharding
        )
        for stride in (1, pool.stride)
    )
    return jax.jit(forward).lower(x).compile(), jax.jit(both).lower(x, dy).compile()


def _compiled(pool: Pool, mesh: tuple[int, int], devices: Any) -> Shared:
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    kinds = (AxisType.Explicit,) * 2
    device_mesh = jax.make_mesh(mesh, ("rows", "columns"), kinds, devices=devices)
    sharding = NamedSharding(device_mesh, PartitionSpec(None, "rows", "columns"))
    sizes = [count * size for count, size in zip(mesh, SHARD, strict=True)]
    programs = _programs(pool, sizes, CHANNELS, sharding)
    sent = [collectives(program.as_text()) for program in programs]
    return Shared(
        pool,
        mesh,
        *[sum(size for kind, size in each if kind == "collective-permute") for each in sent],
        formula=pool.halo(SHARD, mesh) * CHANNELS * 4,
        held=_held(programs[1]),
        others=tuple(sorted({kind for each in sent for kind, _ in each} - {"collective-permute"})),
    )


def of_large_image() -> Iterator[tuple[Pool, int, int]]:
    """Bytes held by a single device, and by each of eight, for value and gradient of a LARGE x LARGE image."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((8,), ("rows",), (AxisType.Explicit,), devices=jax.devices()[:8])
    shardings = (None, NamedSharding(mesh, PartitionSpec(None, "rows")))
    for pool in POOLS[:-1]:
        one, eight = (_held(_programs(pool, (LARGE, LARGE), 1, each)[1]) for each in shardings)
        yield pool, one, eight


def _held(program: Any) -> int:
    """Bytes of arguments, results and temporaries per device."""
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return int(held + memory.temp_size_in_bytes)


def run(target: str | None, file: Path | None) -> int:
    """Compile and print. Return 1 if a program sends more than halos, or other bytes than the formula."""
    settle(target, max(math.prod(mesh) for mesh in HOST_MESHES))
    rows, wrong = [], False
    for shared in measured(target):
        rows.append(shared.row())
        wrong |= bool(shared.others) or shared.sent_forward != shared.formula
        print("  ".join(rows[-1].values()), flush=True)
    for pool, one, eight in () if target else of_large_image():
        print(
            f"{pool} of {LARGE} x {LARGE}: one {one:,}, each of eight {eight:,}, 1/{one / eight:.1f}"
        )
    if file:
        title = f"bytes sent and held, {f'slices of {target}' if target else 'devices of one host'}"
        about = f"{SHARD[0]} x {SHARD[1]} x {CHANNELS} float32 a device"
        results.table(file, title, about, rows, target=target or "cpu")
    return int(wrong)
