"""Run a script as it is, with its windowed max, min and sum, and their gradients, computed by jaxpool.

  python -m jaxpool run train.py --epochs 3        as python train.py --epochs 3
  python -m jaxpool run -m package.train           as python -m package.train

jaxpool computes the reductions of all threads. The documentation of jaxpool.accelerate lists the reductions that stay
with lax. Arguments, paths, exit status and tracebacks are the same as with python. The command ends with a summary on
standard error. Options of the command come before the script. With JAXPOOL_DISABLE=1 in the environment, no reduction
is replaced.
"""

import argparse
import atexit
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxpool import __version__
from jaxpool._cli import UsageError, output_path, quote_text
from jaxpool._cli._on_import import call_after_import
from jaxpool._cli._script import run_program

MAX_REDUCTIONS_SHOWN = 20  # reductions in the summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `run`."""
    parser.usage = "python -m jaxpool run [options] [-m] SCRIPT [arguments of the script]"
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT names a module")
    check_help = (
        "compute the first call of each reduction by lax too, and compare value and cotangent; "
        "the exit status is 1 where they differ"
    )
    parser.add_argument("--check", action="store_true", help=check_help)
    report_help = "write what was met to a file of JSON"
    parser.add_argument("--report", type=output_path(".json"), metavar="FILE", help=report_help)
    quiet_help = "no summary at the end, unless --check finds a difference"
    parser.add_argument("--quiet", action="store_true", help=quiet_help)
    parser.add_argument("script", metavar="SCRIPT", help="a file, or after -m a module")
    arguments = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments.required = False  # so that error messages do not ask for arguments


def run(args: argparse.Namespace) -> Callable[[], int]:
    """A function that runs the script. `main` calls it outside of its exception handlers."""
    if not args.module and not os.path.isfile(args.script):
        got = quote_text(args.script)
        raise UsageError(
            f"the script must be a file that exists; got {got}. A module is named after -m."
        )
    report_path = None if args.report is None else args.report.absolute()
    report = _ReductionsReport(args.script, args.check)

    def run_script() -> int:
        # Registered first, so called last: after the program's own handlers, and after its threads.
        atexit.register(report.write_report, os.getpid(), report_path, args.quiet)
        call_after_import("jax", report.start_replacing)
        run_program(args.script, args.arguments, args.module, report.check_after_script)
        return 0

    return run_script


class _ReductionsReport:
    """Collects the reductions of a process, and writes the summary and the report when the process ends."""

    def __init__(self, script_name: str, compare_with_lax: bool) -> None:
        self._script_name, self._compares_with_lax = script_name, compare_with_lax
        self._reductions: list[Any] = []
        self._replacer: Any = None
        self._why_nothing_replaced: str | None = "jax was not imported"

    def start_replacing(self) -> None:
        """Start to replace reductions. Called after the import of jax, perhaps during that of jaxpool."""
        try:
            from jaxpool._accelerate import bind
            from jaxpool._cli._checked_replacer import CheckedReplacer
        except Exception as error:
            # For example, jax is too old for jaxpool. The program itself may run with such a jax.
            self._why_nothing_replaced = f"{type(error).__name__}: {error}"
            return
        if bind.is_disabled_by_environment():
            self._why_nothing_replaced = "JAXPOOL_DISABLE is set"
            return
        self._why_nothing_replaced = None
        replacer_class = CheckedReplacer if self._compares_with_lax else bind.ReductionReplacer
        self._replacer = replacer_class(self._reductions.append)
        if self._compares_with_lax:
            # For threads that outlive the script. jax registered its own cleanup earlier, so that runs later.
            atexit.register(self._replacer.compare_copied_calls)
        bind.replace_process_wide(self._replacer)

    def check_after_script(self, exception: BaseException | None) -> None:
        """Compare with lax after the script. A difference gives exit status 1 if the script itself succeeded."""
        if not self._compares_with_lax or self._replacer is None:
            return
        self._replacer.compare_copied_calls()
        succeeded = exception is None or (
            isinstance(exception, SystemExit) and exception.code in (None, 0)
        )
        if self._replacer.any_differs and succeeded:
            raise SystemExit(1)

    def write_report(self, owner_pid: int, report_path: Path | None, quiet: bool) -> None:
        """Write the report and print the summary, in the process `owner_pid` only, not in forked children."""
        if os.getpid() != owner_pid:
            return
        comparisons = {}
        if self._compares_with_lax:
            comparisons = {
                row: self._replacer.get_comparison(row)
                for row in self._reductions
                if row.taken_over
            }
        if report_path is not None:
            text = json.dumps(
                self._report_as_dict(comparisons), indent=1, default=str
            )  # of symbolic sizes
            report_path.write_text(f"{text}\n", encoding="utf-8")
        lines = self._summary_lines(comparisons, quiet)
        if lines and sys.stderr is not None:
            # Standard error may be closed.
            with contextlib.suppress(OSError, ValueError):
                print("\n".join(lines), file=sys.stderr)

    def _report_as_dict(self, comparisons: dict[Any, Any]) -> dict[str, Any]:
        rows = []
        for reduction in self._reductions:
            row = dataclasses.asdict(reduction) | {"taken_over": reduction.taken_over}
            if reduction in comparisons:
                row["check"] = comparisons[reduction].sentence
            rows.append(row)
        jax_version = getattr(sys.modules.get("jax"), "__version__", None)
        return {
            "script": self._script_name,
            "versions": {"jaxpool": __version__, "jax": jax_version},
            "why_nothing": self._why_nothing_replaced,
            "reductions": rows,
        }

    def _summary_lines(self, comparisons: dict[Any, Any], quiet: bool) -> list[str]:
        """The lines of the summary. With `quiet`, only reductions that differ from lax."""
        name, rows = self._script_name, self._reductions
        differing = [row for row in rows if row in comparisons and comparisons[row].differs]
        if quiet:
            head = f"jaxpool run: {len(differing)} of {len(rows)} windowed reductions of {name} not as in lax"
            shown = differing
        elif self._why_nothing_replaced is not None:
            return [f"jaxpool run: nothing of {name} was taken over: {self._why_nothing_replaced}."]
        elif not rows:
            return [f"jaxpool run: {name} traced no windowed max, min or sum."]
        else:
            num_taken_over = sum(row.taken_over for row in rows)
            head = f"jaxpool run: {num_taken_over} of {len(rows)} windowed reductions of {name} taken over"
            others = [row for row in rows if row not in differing]
            shown = differing + others[: max(0, MAX_REDUCTIONS_SHOWN - len(differing))]
        lines = [head] if shown else []
        for row in shown:
            check = f"; --check: {comparisons[row].sentence}" if row in comparisons else ""
            lines.append(f"  {row}{check}")
        if quiet:
            return lines
        if len(rows) > len(shown):
            lines.append(f"  and {len(rows) - len(shown)} more, which --report FILE lists")
        if any(row.taken_over and row.kind == "sum" for row in rows):
            lines.append("  sums and averages may differ from lax's in the last bit")
        return lines
