"""Run a script as it is, with its windowed max, min and sum, and their gradients, computed by jaxpool.

  python -m jaxpool run train.py --epochs 3        as python train.py --epochs 3
  python -m jaxpool run -m package.train           as python -m package.train

SCRIPT may be a file, bytecode, a pipe, a folder or zip file with a __main__.py, - for standard input, or code after -c.

jaxpool computes the reductions of all threads. The documentation of jaxpool.accelerate lists the reductions that stay
with lax. Arguments, paths, exit status and tracebacks are the same as with python. The command ends with a summary on
standard error. Options of the command come before the script. With JAXPOOL_DISABLE=1 in the environment, no reduction
is replaced.
"""

import argparse
import atexit
import contextlib
import dataclasses
import itertools
import json
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxpool import __version__
from jaxpool._api.memory import keep_memory, load_glibc_if_in_use
from jaxpool._cli import UsageError, output_path, quote_text
from jaxpool._cli._on_import import call_after_import
from jaxpool._cli._script import run_program

MAX_REDUCTIONS_SHOWN = 20  # reductions in the summary
# The summary suggests --keep-memory if page faults brought in a multiple of the peak memory, and if the system took a
# part of CPU time. Programs that keep memory bring in as much as the peak.
MIN_NEW_MEMORY, MIN_SYSTEM_FRACTION = 3, 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `run`."""
    parser.usage = "python -m jaxpool run [options] [-m | -c] SCRIPT [arguments of the script]"
    parser.set_defaults(kind="")
    kinds = parser.add_mutually_exclusive_group()
    for option, help_text in (("-m", "SCRIPT names a module"), ("-c", "SCRIPT is the code itself")):
        kinds.add_argument(option, dest="kind", action="store_const", const=option, help=help_text)
    check_help = (
        "compute the first call of each reduction by lax too, and compare value and cotangent; "
        "the exit status is 1 where they differ"
    )
    parser.add_argument("--check", action="store_true", help=check_help)
    report_help = "write what was met to a file of JSON"
    parser.add_argument("--report", type=output_path(".json"), metavar="FILE", help=report_help)
    memory_help = "call jaxpool.keep_memory() first: results reuse freed memory (CPUs, glibc)"
    parser.add_argument("--keep-memory", action="store_true", help=memory_help)
    quiet_help = "no summary at the end, unless --check finds a difference"
    parser.add_argument("--quiet", action="store_true", help=quiet_help)
    # All words from the script on belong to it, also options and "--".
    script_help = "the script, and then its arguments"
    parser.add_argument("script", nargs=argparse.PARSER, metavar="SCRIPT", help=script_help)


def separate_program(words: Sequence[str]) -> list[str]:
    """The words of the command, with "--" inserted after -m or -c, also in joined forms such as -mMODULE.

    Otherwise argparse would read a module or code that begins with a dash as an option.
    """
    for index, (previous_word, word) in enumerate(itertools.pairwise(["", *words])):
        if word[:2] in ("-m", "-c"):
            program = [word[2:]] if len(word) > 2 else []
            return [*words[:index], word[:2], "--", *program, *words[index + 1 :]]
        if word == "--" or not (word.startswith("--") or previous_word == "--report"):
            break  # the path of the program; its arguments follow
    return list(words)


def run(args: argparse.Namespace) -> Callable[[], int]:
    """A function that runs the script. `main` calls it outside of its exception handlers."""
    # Python 3.11 keeps the "--" that may end the options of this command.
    name, *arguments = args.script[1:] if args.script[0] == "--" else args.script
    is_path = not args.kind and name != "-"
    # A folder of a zip file is not in the file system, but has an importer.
    if is_path and not os.path.exists(name) and pkgutil.get_importer(name) is None:
        got = quote_text(name)
        raise UsageError(f"the script must exist; got {got}. A module is named after -m.")
    report_path = None if args.report is None else args.report.absolute()
    script_name = "-c" if args.kind == "-c" else name
    report = _ReductionsReport(script_name, args.check)

    def run_script() -> int:
        if args.keep_memory:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the summary says if it has no effect
                report.kept_memory = keep_memory()
        # Registered first, so called last: after the program's own handlers, and after its threads.
        atexit.register(report.write_report, os.getpid(), report_path, args.quiet)
        call_after_import("jax", report.start_replacing)
        run_program(args.kind, name, arguments, report.check_after_script)
        return 0

    return run_script


class _ReductionsReport:
    """Collects the reductions of a process, and writes the summary and the report when the process ends."""

    def __init__(self, script_name: str, compare_with_lax: bool) -> None:
        self._script_name, self._compares_with_lax = script_name, compare_with_lax
        self.kept_memory: bool | None = None  # the result of `keep_memory` if it was called
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
        num_differing, num_taken_over = len(differing), sum(row.taken_over for row in rows)
        if quiet:
            head = f"{num_differing} of {len(rows)} pools of {name} differ from lax"
            shown = differing
        elif self._why_nothing_replaced is not None:
            head, shown = f"no pool of {name} was replaced: {self._why_nothing_replaced}.", []
        elif not rows:
            from jaxpool._accelerate.report import NO_REDUCTION

            head, shown = f"{name} traced {NO_REDUCTION}.", []
        else:
            head = f"computed {num_taken_over} of {len(rows)} pools of {name}"
            others = [row for row in rows if row not in differing]
            shown = differing + others[: max(0, MAX_REDUCTIONS_SHOWN - num_differing)]
        lines = []
        for row in shown:
            check = f"; --check: {comparisons[row].sentence}" if row in comparisons else ""
            lines.append(f"  {row}{check}")
        if quiet:
            return [f"jaxpool run: {head}", *lines] if shown else []
        if len(rows) > len(shown):
            lines.append(f"  and {len(rows) - len(shown)} more, which --report FILE lists")
        if any(row.taken_over and row.kind == "sum" for row in rows):
            lines.append("  sums and averages may differ from lax's in the last bit")
        return [f"jaxpool run: {head}", *lines, *_memory_lines(self.kept_memory)]


def _memory_lines(kept_memory: bool | None) -> list[str]:
    """A line of the summary if --keep-memory had no effect, or if the process would gain from it."""
    if kept_memory is not None:
        note = "  --keep-memory: keep_memory() returned False, and changed nothing"
        return [] if kept_memory else [note]
    if load_glibc_if_in_use() is None:
        return []
    import resource  # which Windows lacks

    usage = resource.getrusage(resource.RUSAGE_SELF)
    new_bytes, peak_bytes = usage.ru_minflt * resource.getpagesize(), usage.ru_maxrss * 1024
    system_fraction = usage.ru_stime / (usage.ru_utime + usage.ru_stime)
    if new_bytes < MIN_NEW_MEMORY * peak_bytes or system_fraction < MIN_SYSTEM_FRACTION:
        return []
    return [
        f"  page faults: {new_bytes / 1e9:.1f} GB, with {peak_bytes / 1e9:.1f} GB of memory at the peak, and "
        f"{system_fraction:.0%} of CPU time in the system: --keep-memory avoids those of new arrays (docs/memory.md)"
    ]
