"""The commands of `python -m jaxpool`, and their common helpers: usage errors and types of options.

Each command is the module with its name; modules with a leading underscore are parts of commands. The library imports
no command. Benchmarks are in `bench/`, outside the package.
"""

import argparse
import contextlib
import difflib
import importlib.util
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable
from pathlib import Path

_short_repr = reprlib.Repr()
_short_repr.maxstring = 200
quote_text = _short_repr.repr  # a text for a message: one line, shortened, in quotes
MAX_MESSAGE_CHARS = 600  # maximum length of a message of Python that contains a text of the user


class UsageError(Exception):
    """A one-line reason why a command cannot run; `main` prints it after the name of the command."""


def shorten(message: str) -> str:
    """A message on one line, without its middle if it is long."""
    line, half = " ".join(message.split()), MAX_MESSAGE_CHARS // 2
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:half]}...{line[-half:]}"


def option_error(rule: str, text: str) -> argparse.ArgumentTypeError:
    """The error of an option with a wrong value; argparse adds the name of the option."""
    return argparse.ArgumentTypeError(f"must be {rule}; got {quote_text(text)}")


def did_you_mean(word: str, valid_words: Iterable[str]) -> str:
    """A hint at the valid word that is most similar to `word`, or "" if no word is similar."""
    close_matches = difflib.get_close_matches(word, [*valid_words], 1)
    return f" Did you mean {close_matches[0]}?" if close_matches else ""


def require_modules(extra_name: str, *modules: str) -> None:
    """Raise `UsageError` if a module of `extra_name` is not installed. Imports nothing."""
    missing_modules = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing_modules:
        raise UsageError(
            f"{', '.join(missing_modules)} must be installed for this. "
            f'Install what is missing with: pip install "jaxpool[{extra_name}]"'
        )


def output_path(suffix: str, allow_folder: bool = False) -> Callable[[str], Path]:
    """The type of an option for a file to write, which ends in `suffix`, or perhaps for the folder of the file."""

    def parse_path(text: str) -> Path:
        path = Path(text)
        if not (allow_folder if os.path.isdir(text) else path.suffix.lower() == suffix):
            raise option_error(f"a file that ends in {suffix}", text)
        if not _is_writable(path):
            raise option_error("in a folder that exists and can be written to", text)
        return path

    return parse_path


def _is_writable(path: Path) -> bool:
    """Whether a file exists and can be written, or can be made."""
    try:
        path.stat()
    except FileNotFoundError:
        path = path.parent
    except (OSError, ValueError):  # for example, the name is too long
        return False
    return os.access(path, os.W_OK)


def parse_number(text: str) -> float:
    """The type of an option for a number, which may be inf or nan."""
    with contextlib.suppress(ValueError):
        # `float` also reads digits of other scripts, and infinity from numbers beyond its range.
        is_plain = text.isascii() and "_" not in text
        if is_plain and (math.isfinite(value := float(text)) or text.lstrip("+-").isalpha()):
            return value
    raise option_error("a number in the range of a float, or inf", text)


def integer_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """The type of an option for an integer from `minimum` to `maximum`."""

    def parse_integer(text: str) -> int:
        # `int` also reads digits of other scripts, and no more than 4300 digits.
        value = int(text) if re.fullmatch("[+-]?[0-9]{1,18}", text) else minimum - 1
        if not minimum <= value <= maximum:
            raise option_error(f"an integer from {minimum} to {maximum}", text)
        return value

    return parse_integer
