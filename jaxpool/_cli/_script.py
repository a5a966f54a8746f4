"""Run a Python program with the arguments, path, traceback and exit status that `python` would give it."""

import builtins
import contextlib
import importlib.machinery
import importlib.util
import linecache
import marshal
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_JAXPOOL_FOLDER = str(Path(__file__).parents[1]) + os.sep


def run_program(
    kind: str,
    name: str,
    arguments: Sequence[str],
    on_program_end: Callable[[BaseException | None], None],
) -> None:
    """Run the main program of this process: a module if `kind` is "-m", code if it is "-c", or else a path.

    A path is that of source, bytecode, a pipe, a folder or zip file with a `__main__.py`, or "-" for standard input.
    An exception of the program is printed once, without jaxpool's frames, and then re-raised. `on_program_end` is
    called with the exception, or with None, after the last line of the program, before Python waits for threads.
    """
    main = types.ModuleType("__main__")
    # Python's own `__main__` has the module `builtins` here. `exec` would set the dictionary of the module.
    main.__dict__["__builtins__"] = builtins
    if "__annotations__" in vars(sys.modules["__main__"]):  # not since Python 3.14
        main.__annotations__ = {}
    main.__loader__, main.__package__ = importlib.machinery.BuiltinImporter, None
    sys.modules["__main__"] = main
    sys.argv[:] = [kind or name, *arguments]
    folder = ""
    with contextlib.suppress(FileNotFoundError):  # a deleted folder
        folder = os.getcwd()
    if not (folder or kind == "-m" or sys.flags.safe_path):
        sys.path.insert(0, "")  # for the folder of the program, because `python -m` inserted none
    exception: BaseException | None = None
    try:
        if kind == "-m":
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # as `python -m` does
        elif kind == "-c":
            _run_source(main, name, "<string>")
        elif name == "-":
            main.__dict__.update(__file__="<stdin>", __cached__=None)
            # `sys.stdin` is None if standard input is closed.
            _run_source(main, sys.stdin.buffer.read() if sys.stdin else b"", "<stdin>")
        else:
            _run_path(main, os.path.join(folder, name) if name != "." else folder)
    except SystemExit as left:
        exception = left
    except BaseException as error:
        exception = error.with_traceback(_skip_own_frames(error.__traceback__))
        if not hasattr(sys, "excepthook"):
            sys.stderr.write("sys.excepthook is missing\n")
            sys.excepthook = sys.__excepthook__
        sys.excepthook(type(exception), exception, exception.__traceback__)
        sys.stderr.flush()
    on_program_end(exception)
    if exception is not None:
        if not isinstance(exception, SystemExit):
            sys.excepthook = lambda *_: None  # the exception is printed already
        raise exception


def _run_source(main: types.ModuleType, source: str | bytes, file_name: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = ""
    if isinstance(source, str) and sys.version_info >= (3, 13):  # tracebacks show the code of -c
        linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    exec(compile(source, file_name, "exec", dont_inherit=True), main.__dict__)


def _run_path(main: types.ModuleType, path: str) -> None:
    if pkgutil.get_importer(path) is not None:  # a folder or a zip file
        # With `python -P`, the path has no folder that the program's replaces.
        sys.path[: not sys.flags.safe_path] = [path]
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    if not sys.flags.safe_path:
        # The real path of a pipe does not exist. A link to the pipe may exist, such as that of /dev/stdin.
        link = os.readlink(path) if os.path.islink(path) else path
        paths = (os.path.realpath(path), link, path)
        sys.path[0] = os.path.dirname(next(filter(os.path.exists, paths)))
    content = Path(path).read_bytes()  # once, because the path may be that of a pipe
    loader_class: Any = importlib.machinery.SourceFileLoader
    if path.endswith(".pyc") or content.startswith(importlib.util.MAGIC_NUMBER[:2]):
        loader_class = importlib.machinery.SourcelessFileLoader
        code = _load_bytecode(content)
    else:
        code = compile(content, path, "exec", dont_inherit=True)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader_class("__main__", path))
    exec(code, main.__dict__)


def _load_bytecode(content: bytes) -> types.CodeType:
    """The code in the content of a .pyc file. Raises the errors of `python FILE.pyc`, not those of an import."""
    if not content.startswith(importlib.util.MAGIC_NUMBER):
        raise RuntimeError("Bad magic number in .pyc file")
    with contextlib.suppress(EOFError, ValueError, TypeError):
        code = marshal.loads(content[16:])
        if isinstance(code, types.CodeType):
            return code
    raise RuntimeError("Bad code object in .pyc file")


def _skip_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without the frames of jaxpool that run the program."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(
        _JAXPOOL_FOLDER
    ):
        traceback = traceback.tb_next
    return traceback
