"""The commands behind `python -m jaxpool`, and what they share: refusals, picture paths.

A module each holds a command; those with a leading underscore hold the pictures and networks that only
the demo needs. They use the public functions as any program does, and nothing in the library needs
them. What a command measures at length is in `bench/`, outside the package.
"""

import importlib.util
import os
from pathlib import Path


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


def picture_path(output: str, default_name: str) -> Path:
    """The PNG file that `--output` names: itself, or `default_name` in the folder that it names."""
    path = Path(output)
    if path.is_dir():
        path = path / default_name
    folder = path.parent
    if path.suffix.lower() != ".png" or path.is_dir():
        reason = "a path that ends in .png or an existing folder"
    elif not folder.is_dir():
        reason = "in a folder that exists"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "in a place that can be written to"
    else:
        return path
    raise UsageError(f"`--output` must be {reason}; got --output={output}.")


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
        raise UsageError(f"`{name}` must be {rule}; got {name}={text}.")
    return value
