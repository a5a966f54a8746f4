"""Statistics of compiled programs: kernels, bytes, and on TPUs instruction bundles.

The module parses text that XLA writes: optimised HLO, and the LLO of libtpu. Nothing here runs a program.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# Slow HLO instructions, which a report mentions.
WORDS = ("scatter", "select-and-scatter", "sort", "while")
_FREE = frozenset(
    ["parameter", "get-tuple-element", "bitcast", "tuple", "constant", "while", "conditional"]
)
_BYTES = {"pred": 1, "s4": 1, "u4": 1, "c64": 8, "c128": 16}
_GRANULE = 32  # bytes per unit of a DMA size in LLO


@dataclasses.dataclass(frozen=True)
class Clock:
    """Memory bandwidth (bytes per second) and clock frequency (Hz) of a TPU, for the cost model."""

    bandwidth: float
    frequency: float

    def cycles(self, moved: float) -> float:
        """Cycles to transfer this number of bytes."""
        return moved / self.bandwidth * self.frequency


class Kernel(NamedTuple):
    """One instruction of the entry computation that runs code or copies memory."""

    name: str
    op: str
    bytes: int  # read and written
    moved_beside: int = 0  # bytes moved between memories while other kernels run


def entry(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, opcode and the rest of each instruction of the entry computation of an HLO module."""
    for line in text[text.index("\nENTRY") :].splitlines():
        match = re.match(r"\s*(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$", line)
        if match:
            name, kind, op, rest = match.groups()
            yield name, kind, op, rest


def kernels(text: str, *, tpu: bool) -> list[Kernel]:
    """The kernels of an optimised HLO module."""
    sizes: dict[str, int] = {}
    result = []
    for name, kind, op, rest in entry(text):
        sizes[name] = type_bytes(kind)
        helper = tpu and op == "custom-call" and "tpu_custom_call" not in rest
        if op in _FREE or helper or op.endswith("-start"):
            continue
        if op.endswith("-done"):
            result.append(Kernel(name, "async", 0, type_bytes(kind, lanes=128)))
            continue
        operands = re.findall(r"%([\w.\-]+)", rest.split("),")[0])
        moved = sizes[name] + sum(sizes.get(operand, 0) for operand in operands)
        result.append(Kernel(name, op, moved))
    return result


def words(text: str) -> tuple[str, ...]:
    """The members of `WORDS` that are instructions in any computation of a module."""
    return tuple(word for word in WORDS if re.search(rf"(?<![\w-]){word}\(", text))


def type_bytes(text: str, lanes: int = 1) -> int:
    """Bytes of the arrays in an HLO type, with the minor axis padded to a multiple of `lanes`."""
    total = 0
    for kind, dims, minor in re.findall(r"\b([a-z]+\d*\w*)\[([\d,]*)\](?:\{(\d+))?", text):
        sizes = [int(size) for size in dims.split(",") if size]
        if sizes and minor:
            sizes[int(minor)] = -(-sizes[int(minor)] // lanes) * lanes
        bits = re.match(r"[a-z]+(\d+)", kind)
        each = _BYTES.get(kind) or (int(bits[1]) // 8 if bits else 1)
        total += each * math.prod(sizes)
    return total


# TPU


class Cost(NamedTuple):
    """Instruction bundles and DMA bytes of a TPU kernel, over all iterations of its outer loop."""

    bundles: float
    moved: float


def llo_costs(folder: Path) -> dict[str, Cost]:
    """The cost of each kernel from the LLO files in a folder: a lower bound.

    Loops inside the outer loop count once. DMAs of dynamic size do not count.
    """
    costs = {}
    for path in folder.glob("*-final_bundles.txt"):
        match = re.match(r"\d+-(.*?)-\d+-final_bundles", path.name)
        if "schedule-analysis" in path.name or not match:
            continue
        sources = [p for p in folder.glob("*original.txt") if f"-{match[1]}-" in p.name]
        source = sources[0].read_text() if sources else ""
        limit = re.search(r"loop: start=0, step=1, limit=(\d+)", source)
        # Two extra iterations fill and drain the pipeline of the loop.
        trips = max(1, int(limit[1]) - 2) if limit else 1
        bundles = moved = 0.0
        for line in path.read_text().splitlines():
            bundle = re.match(r"\s*0x[0-9a-f]+\s+(?:L[BHE]|P[BF])?\s*:\s*(>*) *\{", line)
            if bundle:
                times = trips if bundle[1] else 1
                waited = re.findall(r"dma\.done\.wait [^,]*, (\d+)", line)
                bundles += times
                moved += times * _GRANULE * sum(map(int, waited))
        costs[match[1]] = Cost(bundles, moved)
    return costs


def model(found: list[Kernel], costs: Mapping[str, Cost], clock: Clock) -> float:
    """Modelled cycles: the larger of bundles and DMA time per kernel, and at least the total DMA time."""
    known = [costs.get(kernel.name, Cost(0, 0)) for kernel in found]
    each = sum(max(cost.bundles, clock.cycles(cost.moved)) for cost in known)
    moved = sum(cost.moved for cost in known) + sum(kernel.moved_beside for kernel in found)
    return max(each, clock.cycles(moved))
