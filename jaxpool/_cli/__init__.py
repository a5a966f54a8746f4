"""The commands of `python -m jaxpool`, and their common helpers: usage errors, output paths, integer options.

Each command is the module with its name; modules with a leading underscore are parts of commands. The library imports
no command. Benchmarks are in `bench/`, outside the package.
"""

import difflib
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

MAX_SHOWN_CHARS = 200  # characters of an option's text in a message


class UsageError(Exception):
    """A one-line reason why a command cannot run; `main` prints it after the name of the command."""


def option_error(option: str, rule: str, shown_value: str) -> UsageError:
    """The error of an option with a wrong value."""
    return UsageError(f"`{option}` must be {rule}; got {option}={shown_value}.")


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


def output_path(option: str, path_text: str, suffix: str, default_name: str | None = None) -> Path:
    """The output path in `path_text`, which must end in `suffix`. For a folder, `default_name` in the folder."""
    path = Path(path_text)
    if default_name is not None and os.path.isdir(path):
        path = path / default_name
    if path.suffix.lower() != suffix or os.path.isdir(path):
        rule = f"a file that ends in {suffix}"
        if default_name is not None:
            rule = f"a path that ends in {suffix} or an existing folder"
    elif not os.path.isdir(path.parent):
        rule = "in a folder that exists"
    elif not _is_writable(path):
        rule = "in a place that can be written to"
    else:
        return path
    raise option_error(option, rule, shorten_text(path_text))


def _is_writable(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return os.access(path.parent, os.W_OK)
    except OSError:  # for example, the name is too long
        return False
    return os.access(path, os.W_OK)


def parse_integer(option: str, text: str, minimum: int, maximum: int | None = None) -> int:
    """The integer in the `text` of an option, from `minimum` to `maximum`."""
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or value < minimum or (maximum is not None and value > maximum):
        limits = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
        raise option_error(option, f"an integer {limits}", shorten_text(text))
    return value


def shorten_text(text: str) -> str:
    """An option's text for a message: one line, shortened, in quotes if it has spaces or unprintable characters."""
    if not text.isprintable() or " " in text:
        return quote_text(text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def quote_text(text: str) -> str:
    """A text for a message: one line, shortened, in quotes."""
    line = repr(text)
    return line if len(line) <= MAX_SHOWN_CHARS else f"{line[: MAX_SHOWN_CHARS - 2]}…'"
