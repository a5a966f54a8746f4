"""`python -m bench`: benchmarks of this library against lax, PyTorch and TensorFlow."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from bench import conditions, results
from bench._case import MODES, Case, Mode
from bench.cases import select
from bench.results import RIVALS

# The package that compiles for a target, and the extra of jax that installs it.
TARGETS = {
    "cuda:h100": ("jax_cuda12_plugin", "cuda12"),
    "tpu:v5e": ("libtpu", "tpu"),
    "tpu:v6e": ("libtpu", "tpu"),
}
_EPILOG = """\
examples:
  python -m bench --list --filter table        the cases of the project's own tables
  python -m bench --filter "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')"   one case, by its name
  python -m bench --filter 'table|ResNetStem' --memory kept --json bench/results/cpu-kept.json
  python -m bench --target tpu:v5e --devices 4          what four TPUs send whose batch jit alone shards
  python -m bench --against HEAD --filter '^avg_pool.* (3, 3)'   the working tree against a revision
  python -m bench --plain --filter 'soft|lp' --filter small   beside the lines of jnp that do the same
"""


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    target: str | None = arguments.target
    if arguments.devices and target and not target.startswith("tpu:"):
        parser.error("--devices takes no target but tpu:v5e and tpu:v6e")
    if target and not importlib.util.find_spec(TARGETS[target][0]):
        parser.error(f'{target} needs `pip install "jax[{TARGETS[target][1]}]"`')
    filters, file = arguments.filter, arguments.json
    if arguments.load:
        return _load(arguments.load)
    if arguments.devices:
        from bench import batch

        return batch.run(target, arguments.devices, filters, arguments.peer != ["none"], file)
    if arguments.plain:
        _settle(arguments)
        from bench import plain

        if arguments.list:
            print(*(setting.name for setting in plain.chosen(filters)), sep="\n")
            return 0
        modes = [arguments.mode] if arguments.mode else MODES
        return plain.run(filters, modes, arguments.budget, _described(arguments), file)
    cases, mode = select(filters), arguments.mode or "forward_and_vjp"
    if not cases:
        parser.error("no case matches; --list shows them all")
    if arguments.list:
        for case in cases:
            print(f"{case.name}  [{' '.join(sorted(case.tags))}]")
        return 0
    if target:
        from bench.target import run

        return run(target, cases, mode, file)
    _settle(arguments)
    if arguments.against:
        from bench.against import compare

        return compare(arguments.against, cases, mode, arguments.device, arguments.budget)
    from bench.report import markdown

    run_of_mode = _run(cases, mode, arguments)
    print(f"\n{markdown(run_of_mode)}")
    if file:
        results.write(file, run_of_mode.to_json())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m bench",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--filter",
        action="append",
        default=[],
        metavar="REGEX",
        help="only cases whose name (a call, as --list prints it) or [tags] match the expression or hold it "
        "as it stands; may be repeated, all must match",
    )
    add("--list", action="store_true", help="show the cases and stop")
    add("--peer", action="append", choices=(*RIVALS, "none"), help="only this; may be repeated")
    add("--mode", choices=MODES, help="default: forward_and_vjp, with --plain both")
    add("--device", choices=("cpu", "gpu", "tpu"), default="cpu")
    add("--threads", type=int, default=2, help="threads a framework on the CPU; default: 2")
    add("--budget", type=float, default=3.0, metavar="SECONDS", help="timing a case; default: 3")
    add(
        "--memory",
        choices=conditions.MEMORY,
        help="run this command anew: with glibc's defaults, keep_memory() or GLIBC_TUNABLES; default: as it is",
    )
    tensorflow = "a Python that has TensorFlow; default: $JAXPOOL_BENCH_TF_PYTHON"
    add("--tensorflow-python", metavar="PYTHON", help=tensorflow)
    add(
        "--against",
        metavar="REVISION",
        help="time the working tree against a git revision of the library, in turn; after a change of a threshold, "
        "HEAD has the other form",
    )
    add(
        "--plain",
        action="store_true",
        help="time every public function beside the lines of jnp or lax that a user would write; --filter chooses "
        "by name and size, --mode and --budget hold, and --json replaces the same functions in its file",
    )
    add(
        "--target",
        choices=tuple(TARGETS),
        help="compile for an absent device, and tell kernels and bytes",
    )
    add(
        "--devices",
        type=int,
        metavar="N",
        help="what devices send in a train step of each function whose batch `jit` alone shards, beside the jnp lines "
        "from compiled programs; with --target tpu:v5e for TPUs, with --peer none ours alone",
    )
    add("--json", type=Path, metavar="FILE", help="write the results")
    add("--load", type=Path, metavar="FILE", help="show what --json wrote; run nothing")
    return parser


def _settle(arguments: argparse.Namespace) -> None:
    """Set memory, platform and threads. Must run before any framework is imported."""
    if arguments.memory:
        conditions.settle_memory(arguments.memory)
    conditions.keep_memory()
    if arguments.device == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        conditions.limit_cores(arguments.threads)
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # PyTorch needs the other half


def _described(arguments: argparse.Namespace) -> dict[str, Any]:
    described = conditions.describe(arguments.device, arguments.threads, arguments.budget)
    if arguments.device != "cpu":
        import jax

        described["machine"]["accelerator"] = jax.devices(arguments.device)[0].device_kind
    return described


def _run(cases: tuple[Case, ...], mode: Mode, arguments: argparse.Namespace) -> results.Run:
    from bench._tf_peer import TensorFlowPeer
    from bench.peers import peers
    from bench.run import run_cases

    rivals = [peer for peer in RIVALS if not arguments.peer or peer in arguments.peer]
    python = arguments.tensorflow_python
    contenders = peers(
        rivals, device=arguments.device, threads=arguments.threads, tensorflow_python=python
    )
    described = _described(arguments)  # with the load before the run
    for peer in contenders:
        if isinstance(peer, TensorFlowPeer) and (version := peer.version()):
            described["versions"]["tensorflow"] = version
    rows = run_cases(cases, mode, contenders, arguments.budget, arguments.device)
    return results.Run(mode, described, rows)


def _load(file: Path) -> int:
    """Print the tables of a file of any kind."""
    from bench import report

    fields = results.read(file)
    if fields["kind"] == "cases":
        print(report.markdown(results.Run.from_json(fields)))
    else:
        table = report.table(fields["rows"])
        print(f"## {fields['title']}\n\n{fields['about']}\n\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
