"""`python -m bench --target TARGET`: compile cases for a GPU or TPU that need not be present.

The report shows kernels, bytes and modelled cycles of the programs; nothing runs. It needs `jax[cuda12]` or
`jax[tpu]`, best in a virtual environment of its own. Create the `Target` before jax loads a backend.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import re
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from bench import _jax_peer, ptx, results
from bench._case import AVERAGES, TRAIN_STEP, Case, Given, Mode
from jaxpool._ops.primitives import platform_override

# Descriptions of GPUs for XLA, from the published specifications of NVIDIA.
GPUS = {
    "cuda:h100": """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 cuda_compute_capability { major: 9 }
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  device_memory_size: 84929347584 registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
}


@dataclasses.dataclass(frozen=True)
class Clock:
    """Memory bandwidth (bytes per second) and clock frequency (Hz) of a TPU, for the cost model."""

    bandwidth: float
    frequency: float

    def cycles(self, moved: float) -> float:
        """Cycles to transfer this number of bytes."""
        return moved / self.bandwidth * self.frequency


TPUS = {"tpu:v5e": Clock(819e9, 1.5e9), "tpu:v6e": Clock(1640e9, 1.75e9)}
Row = dict[str, Any]
# Axis order in the memory of a TPU, major to minor. The last axis fills the 128 lanes of a register, the axis
# before it the 8 sublanes.
LAYOUTS = {
    "width in sublanes": (0, 1, 2, 3),
    "batch in sublanes": (1, 2, 0, 3),  # the layout that XLA prefers for convolutions
}


class Target:
    """A device to compile for. One per process: XLA reads its settings once."""

    def __init__(self, name: str) -> None:
        self.name, self.clock = name, TPUS.get(name)
        self.dump = Path(tempfile.mkdtemp(prefix="jaxpool-bench-"))
        jax.config.update("jax_platforms", "cpu")
        if self.clock:
            os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
            os.environ["LIBTPU_INIT_ARGS"] = (
                f"--xla_jf_dump_to={self.dump} --xla_jf_dump_llo_text=true"
                " --xla_jf_dump_llo_pass_label_regex=(final_bundles|original)"
            )
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
            # Since jax 0.12, XLA writes PTX only if `xla_dump_emitter_re` matches.
            dump_flags = f"--xla_dump_to={self.dump} --xla_dump_emitter_re=ptx"
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {dump_flags}"
        if self.clock:
            topology = f"{name.partition(':')[2]}:2x2"
            described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
            self.sharding: Any = SingleDeviceSharding(described.devices[0])
        else:
            described = topologies.get_topology_desc(
                platform="cuda", topology="1x1x1", target_config=GPUS[name]
            )
            mesh = topologies.make_mesh(described, (1,), ("device",))
            self.sharding = NamedSharding(mesh, PartitionSpec())

    def close(self) -> None:
        """Remove the dump folder of XLA."""
        shutil.rmtree(self.dump, ignore_errors=True)

    def compile(self, f: Callable[..., Any], *arguments: Any, order: Sequence[int] = ()) -> Row:
        """Compile f for arguments of these types, and return the costs of the program.

        Arrays with `len(order)` axes have the layout `order`. Bytes and the model are relative to reading arguments
        and writing results once. "compile s" is processor time.
        """

        def placed(x: Any) -> Any:
            if order and len(x.shape) == len(order):
                return Format(Layout(tuple(order)), self.sharding)
            return self.sharding

        shutil.rmtree(self.dump, ignore_errors=True)
        self.dump.mkdir()
        outputs = jax.eval_shape(f, *arguments)
        begin = _processor_seconds()
        types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
        jitted = jax.jit(
            f,
            in_shardings=jax.tree.map(placed, types),
            out_shardings=jax.tree.map(placed, outputs),
        )
        with platform_override(self.name.partition(":")[0] if self.clock else None):
            lowered = jitted.lower(*types)
        compiled = lowered.compile()
        seconds = _processor_seconds() - begin
        return self._read(compiled, jax.tree.leaves((types, outputs)), seconds)

    def _read(self, compiled: Any, arrays: Sequence[Any], seconds: float) -> Row:
        text = compiled.as_text()
        found = kernels(text, tpu=bool(self.clock))
        least = sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays)
        row: Row = {"kernels": sum(kernel.op != "async" for kernel in found)}
        row["bytes"] = round(sum(kernel.bytes for kernel in found) / least, 2)
        if self.clock:
            costs = llo_costs(self.dump)
            cycles, estimate = (model(found, costs, self.clock, by_libtpu=b) for b in (False, True))
            least_cycles = self.clock.cycles(sum(map(_in_lanes, arrays)))
            row |= {"model": round(cycles / least_cycles, 2), "cycles": round(cycles)}
            row["libtpu's cycles"] = round(estimate)
        elif self.name in GPUS:
            files = sorted(self.dump.glob("*.ptx"))
            parsed = [
                kernel for file in files for kernel in ptx.parse(file.read_text(encoding="utf-8"))
            ]
            if not parsed:
                raise RuntimeError("XLA wrote no PTX")
            num_elements = max(math.prod(x.shape) for x in arrays)
            by_kernel = ptx.costs(parsed, *types_of_kernels(text), num_elements)
            row |= ptx.total(by_kernel)
            row["host loops"] = len(re.findall(r"(?<![\w-])(?:while|conditional)\(", text))
            row["by kernel"] = [str(each) for each in by_kernel]
        row["temporary MB"] = round(compiled.memory_analysis().temp_size_in_bytes / 1e6, 1)
        return row | {"holds": ", ".join(words(text)) or "-", "compile s": round(seconds, 1)}


def _processor_seconds() -> float:
    """Processor time of this process and its children: XLA calls an assembler."""
    return sum(os.times()[:4])


def _in_lanes(x: Any) -> int:
    """Bytes of an array padded to 128 lanes along the axis that wastes least memory."""
    size = math.prod(x.shape)
    padded = [size // n * -(-n // 128) * 128 for n in x.shape if n]
    return min(padded, default=size) * int(x.dtype.itemsize)


WIDE = "lax in float32"  # rounds like our 16-bit programs, which add in float32


def of_cases(target: Target, cases: Sequence[Case], mode: Mode) -> Iterator[Row]:
    """Compile the cases that have the mode, with this library and with lax."""
    for case in cases:
        if mode not in case.modes:
            continue
        has_layouts = target.clock and len(case.shape) == 4 and case.op != TRAIN_STEP
        layouts = LAYOUTS if has_layouts else {"default": ()}
        for (layout, order), who in itertools.product(layouts.items(), _who(target, case, mode)):
            asked = dataclasses.replace(case, dtype="float32") if who == WIDE else case
            with jax.enable_x64(case.dtype == "float64"):
                make = functools.partial(_work, asked, mode, who)
                row = {"case": case.name, "by": who, "layout": layout}
                yield row | _compiled(target, make, order)


def _who(target: Target, case: Case, mode: Mode) -> tuple[str, ...]:
    """The peers to compile. TPUs include lax in float32 if our program adds 16-bit cotangents in float32."""
    meet = any(size > stride for size, stride in zip(case.extents, case.strides, strict=True))
    narrow = case.dtype in ("float16", "bfloat16")
    adds = mode == "forward_and_vjp" and case.op not in AVERAGES and narrow and meet
    return ("jaxpool", "lax", WIDE) if target.clock and adds else ("jaxpool", "lax")


def _compiled(target: Target, make: Callable[[], Any], order: Sequence[int] = ()) -> Row:
    try:
        function, arguments = make()
        return target.compile(function, *arguments, order=order)
    except Exception as error:  # a failed compilation is a result
        return {
            "error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
        }


def _work(case: Case, mode: Mode, who: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of a case, with the shapes and dtypes of its arguments."""
    if case.op == TRAIN_STEP:
        from bench import train_steps

        return train_steps.step_of(case, who), train_steps.shapes(case)
    op = (_jax_peer.jaxpool_op if who == "jaxpool" else _jax_peer.lax_op)(case)
    given = [each for each in case.arguments[0] if isinstance(each, Given)]
    xs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given]
    if mode == "forward":
        return op, tuple(xs)
    dy = jax.ShapeDtypeStruct(case.output_shape, case.dtype)
    return functools.partial(_jax_peer.forward_and_vjp, case, op), (dy, *xs)


def beside_lax(rows: Sequence[Row]) -> str:
    """Modelled TPU cycles relative to lax, by an unvalidated model, then with the estimates of libtpu.

    The geometric mean and maximum per layout. If lax was also compiled in float32, that program is the reference.
    """
    both = [("By an unvalidated model", "cycles"), ("With libtpu's estimates", "libtpu's cycles")]
    return "\n".join(line for about, key in both for line in _ratios_to_lax(rows, about, key))


def _ratios_to_lax(rows: Sequence[Row], about: str, key: str) -> Iterator[str]:
    cycles = {(row["layout"], row["case"], row["by"]): row[key] for row in rows if key in row}
    ratios: dict[str, dict[str, float]] = {}
    for (layout, case, who), ours in cycles.items():
        rival = cycles.get((layout, case, WIDE), cycles.get((layout, case, "lax")))
        if who == "jaxpool" and rival:
            ratios.setdefault(layout, {})[case] = ours / rival
    for layout, each in ratios.items():
        mean, worst = statistics.geometric_mean(each.values()), max(each, key=each.__getitem__)
        yield (
            f"{about}, cycles over lax's, {layout}, {len(each)} rows: {mean:.2f} in the geometric mean,"
            f" {each[worst]:.2f} at most, {worst}."
        )


# Statistics of compiled programs, from the text that XLA and libtpu write

# Slow HLO instructions, which a report mentions.
WORDS = ("scatter", "select-and-scatter", "sort", "while")
_FREE = frozenset(
    ["parameter", "get-tuple-element", "bitcast", "tuple", "constant", "while", "conditional"]
)
_BYTES = {"pred": 1, "s4": 1, "u4": 1, "c64": 8, "c128": 16}
_GRANULE = 32  # bytes per unit of a DMA size in LLO


class Kernel(NamedTuple):
    """One instruction of the entry computation that runs code or copies memory."""

    name: str
    op: str
    bytes: int  # read and written
    overlapped_bytes: int = 0  # copied between memories while other kernels run
    estimate: int | None = None  # cycles that libtpu writes into the program for some kernels


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
        estimate = re.search(r'"estimated_cycles":"(\d+)"', rest)
        result.append(Kernel(name, op, moved, 0, int(estimate[1]) if estimate else None))
    return result


def types_of_kernels(text: str) -> tuple[dict[str, tuple[list[str], list[str]]], dict[str, int]]:
    """HLO types of the operands and results of each kernel, by its name in PTX, and the bytes of each type."""
    types: dict[str, list[str]] = {}
    by_kernel = {}
    for name, kind, _, rest in entry(text):
        types[name] = re.findall(r"\b[a-z]+\d*\w*\[[\d,]*\]", kind)
        operands = re.findall(r"%([\w.\-]+)", rest.split("),")[0])
        found = [each for operand in operands for each in types.get(operand, [])]
        by_kernel[re.sub(r"\W", "_", name)] = found, types[name]
    return by_kernel, {each: type_bytes(each) for found in types.values() for each in found}


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
        source = sources[0].read_text(encoding="utf-8") if sources else ""
        limit = re.search(r"loop: start=0, step=1, limit=(\d+)", source)
        # Two extra iterations fill and drain the pipeline of the loop.
        trips = max(1, int(limit[1]) - 2) if limit else 1
        bundles = moved = 0.0
        for line in path.read_text(encoding="utf-8").splitlines():
            bundle = re.match(r"\s*0x[0-9a-f]+\s+(?:L[BHE]|P[BF])?\s*:\s*(>*) *\{", line)
            if bundle:
                times = trips if bundle[1] else 1
                waited = re.findall(r"dma\.done\.wait [^,]*, (\d+)", line)
                bundles += times
                moved += times * _GRANULE * sum(map(int, waited))
        costs[match[1]] = Cost(bundles, moved)
    return costs


def model(
    found: list[Kernel], costs: Mapping[str, Cost], clock: Clock, *, by_libtpu: bool = False
) -> float:
    """Modelled cycles: the larger of bundles and DMA time per kernel, and at least the total DMA time.

    With `by_libtpu`, the estimates of libtpu replace the model of the kernels that have one.
    """
    known = [costs.get(kernel.name, Cost(0, 0)) for kernel in found]
    cycles = [max(cost.bundles, clock.cycles(cost.moved)) for cost in known]
    if by_libtpu:
        pairs = zip(found, cycles, strict=True)
        cycles = [modelled if k.estimate is None else k.estimate for k, modelled in pairs]
    each = sum(cycles)
    moved = sum(cost.moved for cost in known) + sum(kernel.overlapped_bytes for kernel in found)
    return max(each, clock.cycles(moved))


# The command


def run(name: str, cases: Sequence[Case], mode: Mode, file: Path | None) -> int:
    """Compile, print, and write a file. Return 1 if a program of this library does not compile."""
    rows = []
    with contextlib.closing(Target(name)) as target:  # before jax is imported
        for row in of_cases(target, cases, mode):
            rows.append(row)
            by_kernel = row.pop("by kernel", [])
            print("  ".join(map(str, row.values())), *by_kernel, sep="\n    ", flush=True)
    means = beside_lax(rows)
    print(means)
    if file:
        about = f"{_SEEN[name.partition(':')[0]]} {means}".strip()
        results.table(file, f"compiled for {name}, {mode}", about, rows, target=name)
    return int(any(row["by"] == "jaxpool" and "error" in row for row in rows))


_SEEN = {
    "cuda": """\
Compiled by XLA for the described device, not run. `bytes`: what the kernels read and write, over reading arguments
and writing results once; what one kernel reads twice counts once. Not seen: time, occupancy, bank conflicts.""",
    "tpu": """\
Compiled by libtpu for the described device, not run. `model`: of each kernel the more of its instruction bundles and
its DMAs, in cycles over those of moving arguments and results once, minor axes filled to 128 lanes. A lower bound:
loops inside a kernel's loop are counted once, DMAs of a size known late not at all. It was not held against a TPU.
`libtpu's cycles`: the model, but libtpu's own estimate where a kernel has one.""",
}
