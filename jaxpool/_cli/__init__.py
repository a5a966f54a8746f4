"""The commands behind `python -m jaxpool`, and what they share: refusals, files to write, integers.

Each command is a module named after it; modules with a leading underscore are parts of a command. They
use the public functions as any program does, and nothing in the library needs them. What is measured at
length is in `bench/`, outside the package.
"""

import importlib.util
import os
from pathlib import Path

SHOWN = 200  # characters of a text that a message shows


class UsageError(Exception):
    """Why a command cannot be run as asked, in one line; the command's name is put before it."""


def require(extra: str, *modules: str) -> None:
    """Raises `UsageError` if a module of `extra` is not installed; imports nothing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} must be installed for this. "
            f'Install what is missing with: pip install "jaxpool[{extra}]"'
        )


def output_path(option: str, text: str, suffix: str, default_name: str | None = None) -> Path:
    """The file of this suffix that `option` names; in a folder that it names, the file `default_name`."""
    path = Path(text)
    if default_name is not None and os.path.isdir(path):
        path = path / default_name
    if path.suffix.lower() != suffix or os.path.isdir(path):
        rule = f"a file that ends in {suffix}"
        if default_name is not None:
            rule = f"a path that ends in {suffix} or an existing folder"
    elif not os.path.isdir(path.parent):
        rule = "in a folder that exists"
    elif not _can_be_written(path):
        rule = "in a place that can be written to"
    else:
        return path
    raise UsageError(f"`{option}` must be {rule}; got {option}={shown(text)}.")


def _can_be_written(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return os.access(path.parent, os.W_OK)
    except OSError:  # a name that is too long, say
        return False
    return os.access(path, os.W_OK)


def integer(name: str, text: str, low: int, high: int | None = None) -> int:
    """The integer that the option `name` got as `text`, not below `low` and not above `high`."""
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or value < low or (high is not None and value > high):
        rule = (
            f"an integer of {low} or more" if high is None else f"an integer from {low} to {high}"
        )
        raise UsageError(f"`{name}` must be {rule}; got {name}={shown(text)}.")
    return value


def shown(text: str) -> str:
    """What a message shows of an option's text: one line, not endless, in quotes if it needs them."""
    if not text.isprintable() or " " in text:
        return quoted(text)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def quoted(text: str) -> str:
    """A text in quotes, on one line and not endless, as a message shows it."""
    line = repr(text)
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 2]}…'"
