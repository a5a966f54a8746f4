"""`python -m jaxpool`: reads the command line and hands over to one command of `jaxpool._cli`."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from jaxpool._cli import UsageError, demo, explain, info

COMMANDS = {"demo": demo, "explain": explain, "info": info}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line: the command, then what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong with the command line and leaves with exit code 2."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> _Parser:
    parser = _Parser(
        prog="jaxpool",
        usage="python -m jaxpool {demo,explain,info} [options]",
        description="Pooling and elementwise max for JAX with custom derivatives.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", title="commands", metavar="")
    for name, command in COMMANDS.items():
        command.add_arguments(
            commands.add_parser(
                name,
                prog=f"jaxpool {name}",
                usage=f"python -m jaxpool {name} [options]",
                help=command.SUMMARY,
                description=command.__doc__,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 if a check failed, or 2 if it cannot be run as asked."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    if not words or words[0] not in (*COMMANDS, "-h", "--help"):
        got = f"got {words[0]!r}" if words else "got none"
        parser.error(
            f"the command must be demo, explain or info; {got}. See python -m jaxpool --help."
        )
    args, unknown = parser.parse_known_args(words)
    try:
        if unknown:
            raise UsageError(f"there is no such option: {' '.join(unknown)}.")
        return COMMANDS[args.command].run(args)
    except UsageError as error:
        print(f"jaxpool {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\njaxpool {args.command}: interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
