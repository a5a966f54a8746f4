"""`python -m jaxpool`: read the command line and run one command of `jaxpool._cli`.

Only the module of that command is imported. Help, the version and unknown commands do not import jax.
"""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from jaxpool import __version__
from jaxpool._cli import UsageError, did_you_mean, quote_text, shorten

COMMANDS = {
    "demo": "train a small CNN on real handwritten digits; compare with jax.lax",
    "explain": "which inputs a window chose and where the cotangent goes: text, picture, page",
    "info": "versions, backend, and how each function is computed and differentiated",
    "run": "a script as it is, with its pools and their gradients computed by jaxpool",
}


class _OneLineErrorParser(argparse.ArgumentParser):
    """An argument parser with errors of one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(shorten(message))


def _make_parser(prog: str, usage: str, **settings: Any) -> _OneLineErrorParser:
    return _OneLineErrorParser(
        prog=prog,
        usage=f"python -m jaxpool {usage} [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **settings,
    )


def _top_level_parser() -> _OneLineErrorParser:
    """The parser of `python -m jaxpool` without a command. Its help lists the commands."""
    command_list = "\n".join(f"  {name:10}{summary}" for name, summary in COMMANDS.items())
    parser = _make_parser(
        "jaxpool",
        f"{{{','.join(COMMANDS)}}}",
        description=f"Pooling and elementwise max for JAX with custom derivatives.\n\ncommands:\n{command_list}",
        epilog="python -m jaxpool COMMAND --help describes one command.",
    )
    parser.add_argument("--version", action="version", version=f"jaxpool {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The status is 0, 1 if a check failed, 2 for a usage error, 130 for an interrupt, and 141 for a closed output pipe.
    """
    command_line = list(sys.argv[1:] if argv is None else argv)
    if not command_line or command_line[0] not in COMMANDS:
        if command_line and command_line[0] in ("-h", "--help", "--version"):
            _top_level_parser().parse_args(command_line[:1])
        got = (
            f"got {quote_text(command_line[0])}.{did_you_mean(command_line[0], list(COMMANDS))}"
            if command_line
            else "got none."
        )
        *other_commands, last_command = COMMANDS
        rule = f"the command must be {', '.join(other_commands)} or {last_command}"
        print(f"jaxpool: {rule}; {got} See python -m jaxpool --help.", file=sys.stderr)
        return 2
    command_name = command_line[0]
    command_module = importlib.import_module(f"jaxpool._cli.{command_name}")
    parser = _make_parser(
        f"jaxpool {command_name}", command_name, description=command_module.__doc__
    )
    command_module.add_arguments(parser)
    try:
        separate_program = getattr(command_module, "separate_program", list)
        args, extras = parser.parse_known_args(separate_program(command_line[1:]))
        if extras:
            suggestion = did_you_mean(extras[0], re.findall(r"--[a-z-]+", parser.format_help()))
            raise UsageError(f"there is no such option: {shorten(' '.join(extras))}.{suggestion}")
        status = command_module.run(args)
        print(end="", flush=True)  # `sys.stdout` is None if standard output is closed
    except UsageError as error:
        print(f"jaxpool {command_name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # for example `head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 141
    except KeyboardInterrupt:
        print(f"\njaxpool {command_name}: interrupted.", file=sys.stderr)
        return 130
    # The command `run` returns a function that runs the user's program, whose exceptions must not be caught above.
    return int(status() if callable(status) else status)


if __name__ == "__main__":
    if status := main():  # with PYTHONINSPECT, even sys.exit(0) prints a traceback
        sys.exit(status)
