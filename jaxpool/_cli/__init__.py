"""The commands of `python -m jaxpool`, and their common helpers: usage errors and types of options.

Each command is the module with its name; modules with a leading underscore are parts of commands. The library imports
no command. Benchmarks are in `bench/`, outside the package.
"""

import argparse
import importlib.util
import os
import reprlib
from collections.abc import Callable, Collection
from difflib import get_close_matches
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


def did_you_mean(word: str, valid_words: Collection[str]) -> str:
    """A hint at the shortest valid word that begins with `word`, or at the most similar word, or ""."""
    longer_words = [valid for valid in valid_words if word.strip("-") and valid.startswith(word)]
    close_matches = sorted(longer_words, key=len) or get_close_matches(word, valid_words, 1)
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
        if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
            raise option_error("in a folder that exists and can be written to", text)
        return path

    return parse_path


def integer_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """The type of an option for an integer from `minimum` to `maximum`."""

    def parse_integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            raise option_error(f"an integer from {minimum} to {maximum}", text)
        return value

    return parse_integer
