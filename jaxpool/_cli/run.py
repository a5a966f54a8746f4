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
from jaxpool._cli import output_path
from jaxpool._cli._on_import import call_after_import
from jaxpool._cli._script import Script

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
    script = Script(args.script, args.arguments, args.module)
    report_path = None if args.report is None else args.report.absolute()
    report = _ReductionsReport(args.script, args.check)

    def run_script() -> int:
        # Registered first, so called last: after the program's own handlers, and after its threads.
        atexit.register(report.write_report, os.getpid(), report_path, args.quiet)
        call_after_import("jax", report.start_replacing, outer_package="jaxpool")
        script.run(report.check_after_script)
        return 0

    return run_script


class _ReductionsReport:
    """Collects the reductions of a process, and writes the summary and the report when the process ends."""

    def __init__(self, script_name: str, compare_with_lax: bool) -> None:
        self._script_name, self._compares_with_lax = script_name, compare_with_lax
        self._reductions: list[Any] = []
        self._replacer: Any = None
        self._why_nothing_replaced = "jax was not imported"

    def start_replacing(self) -> None:
        """Start to replace reductions. Called after the import of jax, or of jaxpool if jaxpool imports jax."""
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
        if report_path is not None:
            text = json.dumps(self._report_as_dict(), indent=1, default=str)  # of symbolic sizes
            report_path.write_text(f"{text}\n", encoding="utf-8")
        lines = self._lines_of_differences() if quiet else self._summary_lines()
        if lines and sys.stderr is not None:
            # Standard error may be closed.
            with contextlib.suppress(OSError, ValueError):
                print("\n".join(lines), file=sys.stderr)

    def _report_as_dict(self) -> dict[str, Any]:
        rows = []
        for reduction in self._reductions:
            row = dataclasses.asdict(reduction) | {"taken_over": reduction.taken_over}
            comparison = self._comparison(reduction)
            rows.append(row if comparison is None else row | {"check": comparison.sentence})
        return {
            "script": self._script_name,
            "versions": {
                "jaxpool": __version__,
                "jax": getattr(sys.modules.get("jax"), "__version__", None),
            },
            "why_nothing": None if self._replacer is not None else self._why_nothing_replaced,
            "reductions": rows,
        }

    def _summary_lines(self) -> list[str]:
        if self._replacer is None:
            return [
                f"jaxpool run: nothing of {self._script_name} was taken over: {self._why_nothing_replaced}."
            ]
        if not self._reductions:
            return [f"jaxpool run: {self._script_name} traced no windowed max, min or sum."]
        num_taken_over = sum(reduction.taken_over for reduction in self._reductions)
        lines = [
            f"jaxpool run: {num_taken_over} of {len(self._reductions)} windowed reductions "
            f"of {self._script_name} taken over"
        ]
        differing = self._differing_reductions()
        rows = differing + [row for row in self._reductions if row not in differing]
        num_shown = max(MAX_REDUCTIONS_SHOWN, len(differing))
        lines += map(self._reduction_line, rows[:num_shown])
        if len(rows) > num_shown:
            lines.append(f"  and {len(rows) - num_shown} more, which --report FILE lists")
        if any(reduction.taken_over and reduction.kind == "sum" for reduction in self._reductions):
            lines.append("  sums and averages may differ from lax's in the last bit")
        return lines

    def _lines_of_differences(self) -> list[str]:
        """The summary with `--quiet`: the reductions that differ from lax."""
        rows = self._differing_reductions()
        if not rows:
            return []
        verb = "differs" if len(rows) == 1 else "differ"
        subject = f"jaxpool run: {len(rows)} of {len(self._reductions)} windowed reductions of {self._script_name}"
        return [f"{subject} {verb} from lax's", *map(self._reduction_line, rows)]

    def _differing_reductions(self) -> list[Any]:
        comparisons = ((row, self._comparison(row)) for row in self._reductions)
        return [row for row, comparison in comparisons if comparison and comparison.differs]

    def _comparison(self, reduction: Any) -> Any:
        """The comparison of a reduction with lax, or None without `--check` and for reductions that lax computes."""
        if not self._compares_with_lax or not reduction.taken_over:
            return None
        return self._replacer.get_comparison(reduction)

    def _reduction_line(self, reduction: Any) -> str:
        comparison = self._comparison(reduction)
        return f"  {reduction}" + (f"; --check: {comparison.sentence}" if comparison else "")
