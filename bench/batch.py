"""`python -m bench --devices N`: collectives of a train step whose batch is sharded by `jit` alone.

The numbers come from compiled programs; nothing runs. Without `--target`, XLA splits the host into devices. With
`--target tpu:v5e` no device is needed.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bench import results
from bench.cases import matches
from bench.plain import settings
from bench.target import type_bytes
from jaxpool._ops.primitives import platform_override

COLLECTIVES = "all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute"
DTYPES = ("float32", "bfloat16", "float16")
# Settings that combine examples of the batch, so that XLA must communicate.
COMBINES = re.compile(r"^segment|^roi|^multilevel_roi|axis=0|axis=None")


def mesh_of(target: str | None, devices: int) -> Any:
    """A mesh with one axis of type Auto, "batch". Called before jax loads a backend."""
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    if not target:
        jax.config.update("jax_num_cpu_devices", devices)
    found = jax.devices()[:devices]
    if target:
        rows = 2 ** (int(math.log2(devices)) // 2)
        name = f"{target.partition(':')[2]}:{rows}x{devices // rows}"
        found = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    return jax.make_mesh((devices,), ("batch",), (AxisType.Auto,), devices=found)


def train_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Loss and gradients of a function whose first input is `tanh(first @ weights)`."""

    def loss(weights: Any, first: Any, *others: Any) -> tuple[Any, Any]:
        y = function(jnp.tanh(first @ weights), *others)
        floats = [each for each in jax.tree.leaves(y) if jnp.issubdtype(each.dtype, jnp.floating)]
        sums = [jnp.sum(jnp.square(each), dtype=np.float32) for each in floats]
        return sum(sums, np.float32(0)), y

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)


def compiled(
    function: Callable[..., Any], shapes: Sequence[Any], dtype: str, mesh: Any, platform: str
) -> tuple[str, str, bool]:
    """Compile the train step, with arrays of the batch size of the first array sharded.

    Returns its collectives, MB of temporaries of a device, and whether a collective is neither a scalar reduction nor
    the gradient sum of a replicated array.
    """
    channels = shapes[0][-1]
    replicated = [(channels, channels), *(shape for shape in shapes if shape[0] != shapes[0][0])]

    def typed(shape: tuple[int, ...]) -> Any:
        spec = PartitionSpec() if shape in replicated else PartitionSpec("batch")
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    with platform_override(platform):
        step = jax.jit(train_step(function))
        program = step.lower(typed(replicated[0]), *map(typed, shapes)).compile()
    communication = collectives(program.as_text())
    counts = Counter(name for name, _ in communication)
    sent = ", ".join(f"{count} {name}" for name, count in counts.items()) or "-"
    temporary = f"{program.memory_analysis().temp_size_in_bytes / 1e6:.0f}"
    gathers = any(not is_sum(name, each, replicated) for name, each in communication)
    return sent, temporary, gathers


def collectives(text: str) -> list[tuple[str, str]]:
    """The collectives of an optimised HLO module, with the types of their results."""
    # XLA for TPUs sums float16 in packed tiles of another shape, and bitcasts the sum.
    for shape, name in re.findall(r"= (\S+) bitcast\((%all-reduce[\w.-]*)\)", text):
        text = re.sub(rf"{re.escape(name)} = \S+ all-reduce", f"{name} = {shape} all-reduce", text)
    kinds = "|".join(COLLECTIVES)
    found = re.findall(rf"= (\(.*?\)|\S+) ({kinds})(?:-start)?\(", text)
    if len(found) != len(re.findall(rf" (?:{kinds})(?:-start)?\(", text)):
        raise ValueError("a collective that cannot be read")
    return [(kind, types) for types, kind in found]


def sent_bytes(text: str) -> list[tuple[str, int]]:
    """The collectives of an optimised HLO module, with the bytes that a device sends."""
    # A `-start` instruction has a tuple type, whose first element is the type of the operand.
    return [
        (kind, type_bytes(re.sub(r"^\((\w+\[[\d,]*\]).*", r"\1", types)))
        for kind, types in collectives(text)
    ]


def is_sum(kind: str, types: str, replicated: Sequence[Any]) -> bool:
    """Whether a collective only reduces scalars or gradients of replicated arrays."""
    dims = re.findall(r"\b[a-z]+\d*\w*\[([\d,]*)\]", types)
    shapes = [tuple(map(int, filter(None, each.split(",")))) for each in dims]
    sums = [math.prod(shape) == 1 or shape in replicated for shape in shapes]
    return kind == "all-reduce" and all(sums)


def chosen() -> Iterator[Any]:
    """One setting of each function, preferably without `COMBINES`, and all of max pools, in each dtype."""
    large = [each for each in settings() if each.size == "large" and each.dtype == "float32"]
    large.sort(key=lambda setting: bool(COMBINES.search(setting.name)))
    seen: set[str] = set()
    for setting in large:
        more = setting.function in ("max_pool", "min_pool") and "where" not in setting.arguments
        if setting.function not in seen or more:
            seen.add(setting.function)
            for dtype in DTYPES:
                yield dataclasses.replace(setting, dtype=dtype)


def run(
    target: str | None, devices: int, filters: Sequence[str], plain: bool, file: Path | None
) -> int:
    """Compile each function and the equivalent jax.numpy code, and print a row per function.

    Return 1 if a function gathers its batch.
    """
    mesh, platform = mesh_of(target, devices), target.partition(":")[0] if target else "cpu"
    rows, wrong = [], []
    for setting in chosen():
        if not matches(f"{setting.name} {setting.dtype}", filters):
            continue
        row = {"function": setting.function, "call": setting.name}
        given = setting.shapes, setting.dtype, mesh, platform
        row["devices send"], row["MB"], gathers = compiled(setting.ours, *given)
        if plain:
            row["plain: devices send"], row["plain: MB"], _ = compiled(setting.plain, *given)
        rows.append(row)
        print("  ".join(row.values()), flush=True)
        if gathers and not COMBINES.search(setting.name):
            wrong.append(setting.name)
    if wrong:
        print("more than sums over the batch:", *wrong, sep="\n  ")
    if file:
        where = f"{devices} of {target}" if target else f"{devices} devices of one host"
        title = f"a batch that jit alone shards, {where}"
        results.table(file, title, "", rows, target=target or "cpu")
    return int(bool(wrong))
