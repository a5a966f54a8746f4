"""Run a Python program with the arguments, path, traceback and exit status that `python` would give it."""

import builtins
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

_JAXPOOL_FOLDER = str(Path(__file__).parents[1]) + os.sep


def run_program(
    name: str,
    arguments: Sequence[str],
    is_module: bool,
    on_program_end: Callable[[BaseException | None], None],
) -> None:
    """Run a script, or a module if `is_module` is set, as the main program of this process.

    An exception of the program is printed once, without jaxpool's frames, and then re-raised. `on_program_end` is
    called with the exception, or with None, after the last line of the program, before Python waits for threads.
    """
    main = types.ModuleType("__main__")
    # Python's own `__main__` has the module `builtins` here. `exec` would set the dictionary of the module.
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv[:] = [name, *arguments]
    exception: BaseException | None = None
    try:
        if is_module:
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # as `python -m` does
        else:
            _run_file(name, main)
    except SystemExit as left:
        exception = left
    except BaseException as error:
        exception = error.with_traceback(_skip_own_frames(error.__traceback__))
        sys.excepthook(type(exception), exception, exception.__traceback__)
        sys.stderr.flush()
    on_program_end(exception)
    if exception is not None:
        if not isinstance(exception, SystemExit):
            sys.excepthook = lambda *_: None  # the exception is printed already
        raise exception


def _run_file(name: str, main: types.ModuleType) -> None:
    path = os.path.abspath(name)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    main.__package__ = None
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _skip_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without the frames of jaxpool that run the program."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(
        _JAXPOOL_FOLDER
    ):
        traceback = traceback.tb_next
    return traceback
