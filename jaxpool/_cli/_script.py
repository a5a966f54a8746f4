"""Run a Python program with the arguments, path, traceback and exit status that `python` would give it."""

import builtins
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxpool._cli import UsageError, quote_text

_JAXPOOL_FOLDER = str(Path(__file__).parents[1]) + os.sep
_FRAMES_BEFORE_PROGRAM = (_JAXPOOL_FOLDER, "<frozen importlib", "<frozen runpy")


class Script:
    """A script file, or a module if `module` is set, and its arguments."""

    def __init__(self, name: str, arguments: Sequence[str], is_module: bool) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._is_module = is_module
        if not is_module and not os.path.isfile(name):
            raise UsageError(
                f"the script must be a file that exists; got {quote_text(name)}. A module is named after -m."
            )

    def run(self, on_script_end: Callable[[BaseException | None], None]) -> None:
        """Run the script as the main program of this process.

        An exception of the script is printed, and raised again. `on_script_end` is called with the exception, or with
        None, after the last line of the script, before Python waits for threads.
        """
        exception: BaseException | None = None
        try:
            sys.argv[:] = [self.name, *self._arguments]
            code, main = self._load_code_and_main()
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
        except SystemExit as left:
            exception = left
        except BaseException as error:
            exception = error.with_traceback(_strip_runner_frames(error.__traceback__))
            sys.excepthook(type(exception), exception, exception.__traceback__)
            sys.stderr.flush()
        on_script_end(exception)
        if exception is not None:
            if not isinstance(exception, SystemExit):
                sys.excepthook = _ignore_printed_exception
            raise exception

    def _load_code_and_main(self) -> tuple[Any, types.ModuleType]:
        """The code of the script, and the module `__main__` to run the code in."""
        main = types.ModuleType("__main__")
        # Python's own `__main__` has the module `builtins` here. `exec` would set the dictionary of the module.
        main.__dict__["__builtins__"] = builtins
        if self._is_module:
            try:
                # This private function of `python -m` also serves pdb and trace.
                _, spec, code = runpy._get_module_details(  # type: ignore[attr-defined]
                    self.name, _ModuleCannotRunError
                )
            except _ModuleCannotRunError as error:
                sys.exit(f"{sys.executable}: {error}")
            main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
            main.__file__ = spec.origin
            main.__dict__["__cached__"] = spec.cached
            sys.argv[0] = spec.origin or self.name
            return code, main
        path = os.path.abspath(self.name)
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(path))
        main.__file__ = path
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        main.__dict__["__cached__"] = None
        main.__package__ = None
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True), main


class _ModuleCannotRunError(Exception):
    """Raised with Python's message about a module that cannot run."""


def _strip_runner_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without the frames of jaxpool and importlib that run the program."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(
        _FRAMES_BEFORE_PROGRAM
    ):
        traceback = traceback.tb_next
    return traceback


def _ignore_printed_exception(*_: Any) -> None:
    """Replaces `sys.excepthook`, which has already printed the exception."""
