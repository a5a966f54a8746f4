"""Counts of the instructions of GPU kernels, from the PTX and HLO that XLA writes when it compiles a program.

Counts rank programs that instructions bound, as most pools are. They show neither latency nor occupancy. XLA compiles
equal kernels of a program once, and their instructions count once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_INSTRUCTION = re.compile(r"(?:@!?(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*?);?$")
_FLOATS = ("f16", "bf16", "f32", "f64", "f8")


class PtxKernel(NamedTuple):
    """Counts of one kernel of a PTX file. A thread stores `stored` bytes; `scalar` and `vector` count its accesses."""

    name: str
    instructions: int
    stored: int
    scalar: int  # loads and stores of one number
    vector: int  # loads and stores of several numbers
    scalar_parameters: tuple[int, ...]  # the kernel parameters that scalar accesses read or write
    branches: int  # conditional branches, without the test whether a thread has work
    loops: int  # jumps back: instructions in loops count once


class KernelCost(NamedTuple):
    """Instructions of a kernel per element of the pool's input, and what its threads do."""

    name: str
    instructions: float
    scalar: int
    vector: int
    scalar_floats: int  # scalar accesses to arrays of floats
    branches: int
    loops: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.instructions:.2f} instructions per element, {self.scalar} scalar"
            f" ({self.scalar_floats} of floats) and {self.vector} vector accesses,"
            f" {self.branches} branches, {self.loops} loops"
        )


def parse(text: str) -> Iterator[PtxKernel]:
    """The kernels of a PTX file."""
    for body in re.split(r"(?=\.visible \.entry)", text)[1:]:
        header, _, code = body.partition("{")
        lines = [line.strip() for line in code.splitlines()]
        yield _parse_kernel(header, [line for line in lines if line and line[0] not in "./{}"])


def _parse_kernel(header: str, lines: list[str]) -> PtxKernel:
    """Count the instructions and labels of one kernel. Pointers are traced to the parameters they come from."""
    name = re.findall(r"\.entry (\w+)", header)[0]
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    parameter_of: dict[str, int] = {}
    count: Counter[str] = Counter()
    scalar_parameters, stored = [], 0
    for i, line in enumerate(lines):
        match = _INSTRUCTION.match(line)
        if line.endswith(":") or not match:
            continue
        guard, op, operands = match.groups()
        count["instructions"] += 1
        if op.startswith("bra"):
            count["branches"] += guard is not None
            count["loops"] += labels.get(operands, i) < i
        result, *sources = re.findall(r"%\w+", operands) or [""]
        if parameter := re.search(rf"\[{name}_param_(\d+)\]", operands):
            parameter_of[result] = int(parameter[1])
        elif op.startswith(("ld.global", "st.global")):
            pointer = re.findall(r"\[\s*(%\w+)", operands)[0]
            is_vector = re.search(r"\.v[248]\.", op) is not None
            count["vector" if is_vector else "scalar"] += 1
            if not is_vector:
                scalar_parameters.append(parameter_of.get(pointer, -1))
            stored += op.startswith("st") * _bytes_of_access(op)
        elif op.startswith(("cvta", "add", "mov", "sub")):
            known = [parameter_of[source] for source in sources if source in parameter_of]
            parameter_of.update({result: known[0]} if known else {})
    counts = [count[key] for key in ("instructions", "scalar", "vector", "loops")]
    instructions, scalar, vector, loops = counts
    branches = max(0, count["branches"] - 1) if _tests_thread(lines) else count["branches"]
    return PtxKernel(
        name, instructions, stored, scalar, vector, tuple(scalar_parameters), branches, loops
    )


def _tests_thread(lines: list[str]) -> bool:
    """Whether the first branch skips the whole kernel, for threads without work: it jumps to the return."""
    for line in lines:
        match = re.match(r"@!?%p\d+\s+bra\s+(\$\w+)", line)
        if match:
            return lines[lines.index(f"{match[1]}:") + 1].startswith("ret")
    return False


def _bytes_of_access(op: str) -> int:
    """Bytes of an access such as `st.global.v4.b32`."""
    width = re.search(r"\.v(\d)", op)
    return int(width[1] if width else 1) * int(re.findall(r"\.[busf](\d+)$", op)[0]) // 8


def costs(
    kernels: Iterable[PtxKernel],
    types_of_kernel: Mapping[str, tuple[list[str], list[str]]],
    bytes_of_type: Mapping[str, int],
    num_elements: int,
) -> list[KernelCost]:
    """Costs of kernels. `types_of_kernel` has the HLO types of operands and results.

    The number of threads is the bytes of the results over the bytes that a thread stores.
    """
    rows = []
    for kernel in kernels:
        operands, results = types_of_kernel.get(kernel.name, ([], []))
        threads = sum(bytes_of_type[each] for each in results) / max(1, kernel.stored)
        types = dict(enumerate([*operands, *results]))
        scalar_types = [types.get(i, "f32") for i in kernel.scalar_parameters]
        rows.append(
            KernelCost(
                kernel.name,
                kernel.instructions * threads / num_elements,
                kernel.scalar,
                kernel.vector,
                sum(each.startswith(_FLOATS) for each in scalar_types),
                kernel.branches,
                kernel.loops,
            )
        )
    return rows


def total(rows: Iterable[KernelCost]) -> dict[str, float]:
    """Sums over all kernels of a program."""
    rows = list(rows)
    return {
        "instructions": round(math.fsum(row.instructions for row in rows), 2),
        "scalar": sum(row.scalar for row in rows),
        "vector": sum(row.vector for row in rows),
        "scalar floats": sum(row.scalar_floats for row in rows),
        "branches": sum(row.branches for row in rows),
    }
