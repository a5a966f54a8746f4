"""Show versions, the backend and its devices, and how each function is computed and differentiated.

With --plan CASE it shows the passes that carry out one case on each platform, and why these.
A line is a pass along some axes of the array, in these words:

  terms       elements that are compared or added at each position of the result
  phases      which windows cover an element repeats with the stride: elements at
              the same place in the repetition are one phase; a turn is one of each
  regions     parts of the result, such as its border, that are computed apart
  kept        stored for the next pass, not computed again wherever that reads it
  decided by  thresholds of jaxpool/_plan/tuning.py without which it would differ
"""

import argparse
import importlib.metadata
import inspect
import json
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import jaxpool
from jaxpool._cli import UsageError

PACKAGES = (
    *("jaxpool", "jax", "jaxlib", "numpy"),
    *("flax", "dm-haiku", "equinox", "keras", "optax", "hypothesis"),  # optional
)
NOT_OPS = ("accelerate", "keep_memory", "sharded")
HUGE_PAGES = "glibc.malloc.hugetlb=1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `info`."""
    example = '"max 3x3 stride 2 SAME 16x112x112x64 bfloat16"'
    parser.add_argument(
        "--plan", metavar="CASE", help=f"what is done for one case, as in {example}"
    )
    parser.add_argument("--json", action="store_true", help="print it for programs to read")


def derivatives(function: Callable[..., Any]) -> str:
    """What can be differentiated through `function`, read off its arguments."""
    if "autodiff" in inspect.signature(function).parameters:
        return 'reverse; forward too with autodiff="jvp"'
    return "reverse and forward"


def run(args: argparse.Namespace) -> int:
    """Prints the tables, or the plans of one case."""
    import jax

    from jaxpool._arguments.errors import ArgumentError
    from jaxpool._cli import _plans

    if args.plan is not None:
        try:
            found = _plans.of_case(args.plan)
        except ArgumentError as error:
            raise UsageError(
                f"`{error.argument}` must be {error.rule}; got {error.source}={error.value!r}. "
                + error.hint
            ) from None
        print(json.dumps(found) if args.json else "\n".join(_plans.case_in_words(found)))
        return 0
    backend = jax.default_backend()
    versions = [("Python", platform.python_version()), *_versions(PACKAGES)]
    machine = [
        ("platform", platform.platform()),
        ("backend", backend),
        ("devices", ", ".join(str(device) for device in jax.devices())),
        ("64-bit types", "on" if jax.config.read("jax_enable_x64") else "off"),
        *_huge_pages(),
    ]
    functions = {
        name: {"derivatives": derivatives(getattr(jaxpool, name)), **_plans.of_function(name)}
        for name in jaxpool.__all__
        if name not in NOT_OPS
    }
    if args.json:
        said = {"versions": dict(versions), "machine": dict(machine), "functions": functions}
        print(json.dumps(said))
        return 0
    _table("versions", versions)
    _table("machine", machine)
    print("\n".join(_plans.functions_in_words(functions)))
    return 0


def _versions(packages: Sequence[str]) -> list[tuple[str, str]]:
    rows = []
    for package in packages:
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def _huge_pages() -> list[tuple[str, str]]:
    """Whether the setting is there that makes large results on Linux CPUs cheaper."""
    if platform.system() != "Linux":
        return []
    if HUGE_PAGES in os.environ.get("GLIBC_TUNABLES", "").split(":"):
        return [("huge pages", "on")]
    return [
        (
            "huge pages",
            "off; jaxpool.keep_memory() makes large results on CPUs faster (docs/memory.md)",
        )
    ]


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    print(title)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())
    print()
