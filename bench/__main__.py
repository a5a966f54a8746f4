"""`python -m bench`: benchmarks of this library against lax, PyTorch and TensorFlow."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from bench import conditions
from bench._case import MODES
from bench.cases import select

_RIVALS = ("lax", "accelerate", "torch", "torch-channels-last", "tensorflow")

_EPILOG = """\
examples:
  python -m bench --list --filter table        the cases of the project's own tables
  python -m bench --filter '^max_pool' --filter '(3, 3)' --peer lax
  python -m bench --filter "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')"   one case, by its name
  python -m bench --memory kept --markdown docs/results.md --json results.json
  python -m bench --load results.json --plot bars.png
  python -m bench --tune table_row                      whether a threshold holds on this machine
  python -m bench --target cuda:h100 --filter table     programs compiled for a device that need not be here
  python -m bench --scaling                             what devices that share an image send each other
  python -m bench --target tpu:v5e --devices 4          what four TPUs send whose batch jit alone shards
  python -m bench --against HEAD~1 --filter '^avg_pool.* (3, 3)'   the working tree against a revision
  python -m bench --plain --filter 'soft|lp' --filter small   beside the lines of jnp that do the same
"""


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.every_op and not arguments.target:
        parser.error("--every-op needs --target")
    if arguments.target and (why_not := _unknown_target(arguments.target)):
        print(why_not, file=sys.stderr)
        return 2
    if arguments.plain:
        return _plain(arguments)
    if arguments.devices:
        if arguments.target and not arguments.target.startswith("tpu:"):
            parser.error("--devices takes no target but tpu:v5e and tpu:v6e")
        return _devices(arguments)
    modes = list(dict.fromkeys(arguments.mode or ["forward_and_vjp"]))
    cases = select(arguments.filter)
    if arguments.split:
        from bench import split

        return split.run()
    if arguments.scaling:
        from bench import scaling

        return scaling.run(arguments.target, arguments.markdown)
    if arguments.list:
        for case in cases:
            print(f"{case.name}  [{' '.join(sorted(case.tags))}]")
        return 0
    if arguments.tune:
        return _tune(arguments)
    if arguments.load:
        from bench import results

        runs = results.load(arguments.load)
    else:
        if not cases:
            print("no case matches; --list shows them all", file=sys.stderr)
            return 2
        if arguments.target:
            return _target(arguments, cases, modes)
        _settle(arguments)
        if arguments.against:
            from bench.against import compare

            return compare(arguments.against, cases, modes, arguments.device, arguments.budget)
        runs = [_run(cases, mode, arguments) for mode in modes]
    return _write(runs, arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


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
    add(
        "--peer",
        action="append",
        choices=(*_RIVALS, "none"),
        help="only this peer; may be repeated (default: all)",
    )
    add(
        "--mode",
        action="append",
        choices=MODES,
        help="may be repeated (default: forward_and_vjp)",
    )
    add("--device", choices=("cpu", "gpu", "tpu"), default="cpu")
    add("--threads", type=_positive, default=2, help="threads a framework on the CPU (default: 2)")
    add(
        "--budget",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="timing a case, shared by all that take part (default: 3)",
    )
    add(
        "--memory",
        choices=tuple(conditions.MEMORY),
        help="run this command anew: with glibc's defaults, keep_memory() or GLIBC_TUNABLES (default: as it is)",
    )
    add(
        "--tensorflow-python",
        metavar="PYTHON",
        help="a Python that has TensorFlow (default: $JAXPOOL_BENCH_TF_PYTHON)",
    )
    add(
        "--tune",
        action="append",
        metavar="FIELD",
        help="time the forms on both sides of a threshold; may be repeated; 'list' shows all",
    )
    add(
        "--against",
        metavar="REVISION",
        help="time the working tree against a git revision of the library, in turn",
    )
    add(
        "--plain",
        action="store_true",
        help="time every public function beside the lines of jnp or lax that a user would write; "
        "--filter chooses by name and size, and --mode (default: all), --budget, --json, --markdown hold; "
        "--json replaces the same rows in a file that is there, and --load with --markdown writes its means "
        "into docs/speed.md",
    )
    add(
        "--target",
        metavar="DEVICE",
        help="compile for a GPU or TPU that need not be here, and tell kernels and bytes: cuda:h100, "
        "cuda:a100, tpu:v5e, tpu:v6e",
    )
    add(
        "--every-op", action="store_true", help="with --target: each public function, not the cases"
    )
    add(
        "--scaling",
        action="store_true",
        help="bytes that devices which share an image send and hold, from compiled programs; with "
        "--target tpu:v5e for slices of 4x4 and 16x16",
    )
    add(
        "--devices",
        type=_positive,
        metavar="N",
        help="what devices send in a train step of each function whose batch `jit` alone shards, beside the jnp lines "
        "from compiled programs; with --target tpu:v5e for TPUs, with --peer none ours alone",
    )
    add(
        "--split",
        action="store_true",
        help="time pools of an image that two devices of this host share against one that has it all",
    )
    add("--json", type=Path, metavar="FILE", help="write all that was measured")
    add("--load", type=Path, metavar="FILE", help="show what --json wrote; run nothing")
    add("--markdown", type=Path, metavar="FILE", help="write or update tables in this file")
    add("--plot", type=Path, metavar="FILE", help="draw bars against the floor")
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


def _plain(arguments: argparse.Namespace) -> int:
    _settle(arguments)
    from bench import plain

    modes = list(dict.fromkeys(arguments.mode or MODES))
    if arguments.load:
        lines = plain.load(arguments.load)
        if arguments.markdown:
            plain.put_means(plain.PAGE, lines)
        return plain.show(lines, arguments.markdown)
    budget, files = arguments.budget, (arguments.json, arguments.markdown)
    return plain.run(arguments.filter, modes, budget, *files)


def _devices(arguments: argparse.Namespace) -> int:
    from bench import batch

    plain = arguments.peer != ["none"]
    return batch.run(
        arguments.target, arguments.devices, arguments.filter, plain, arguments.markdown
    )


def _unknown_target(name: str) -> str:
    """Return why the target cannot be compiled for, or an empty string."""
    from bench import target

    if name not in target.TARGETS:
        return f"no such target; known are {', '.join(target.TARGETS)}"
    return target.missing(name)


def _tune(arguments: argparse.Namespace) -> int:
    _settle(arguments)
    from bench import tune

    if "list" in arguments.tune:
        print(tune.listed())
        return 0
    known = tune.fields()
    if unknown := [name for name in arguments.tune if name not in known]:
        print(f"no such threshold: {', '.join(unknown)}; --tune list shows all", file=sys.stderr)
        return 2
    cases = (*select(arguments.filter), *(() if arguments.filter else tune.EDGES))
    for name in arguments.tune:
        tune.tune(known[name], arguments.device, cases, arguments.budget)
    return 0


def _target(arguments: argparse.Namespace, cases: Any, modes: Any) -> int:
    from bench import target

    every_op = arguments.every_op
    return target.run(arguments.target, cases, modes, every_op, arguments.markdown)


def _run(cases: Any, mode: Any, arguments: argparse.Namespace) -> Any:
    from bench.peers import peers
    from bench.report import line
    from bench.results import Run
    from bench.run import run_cases

    rivals = [p for p in _RIVALS if not arguments.peer or p in arguments.peer]
    contenders = peers(
        rivals,
        device=arguments.device,
        threads=arguments.threads,
        tensorflow_python=arguments.tensorflow_python,
    )
    described = conditions.describe(arguments.device, arguments.threads, arguments.budget)
    try:
        for peer in contenders:
            if (version := peer.version()) is not None:
                described["versions"][_package(peer.name)] = version
        results = run_cases(cases, mode, contenders, arguments.budget, line)
    finally:
        for peer in contenders:
            peer.close()
    return Run(mode, described, results)


def _package(peer: str) -> str:
    known = {
        "lax": "jax",
        "accelerate": "jaxpool",
        "x+1": "jax",
        "copy": "numpy",
        "torch-channels-last": "torch",
    }
    return known.get(peer, peer)


def _write(runs: list[Any], arguments: argparse.Namespace) -> int:
    from bench import report, results

    if arguments.json:
        results.save(runs, arguments.json)
    if arguments.markdown:
        report.update_file(arguments.markdown, runs)
    else:
        for run in runs:
            print(f"\n{report.markdown(run)}")
    if arguments.plot:
        from bench.plot import plot

        for run in runs:
            path = arguments.plot
            if len(runs) > 1:
                path = path.with_stem(f"{path.stem}-{run.mode}")
            plot(run, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
