"""A Python program run as `python` runs it: its name, its arguments, its path, its traceback, its exit status."""

import builtins
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxpool._cli import UsageError, shown

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NOT_THE_PROGRAM = (_PACKAGE, "<frozen importlib", "<frozen runpy")


class Script:
    """A file, or with `module` a module, and the arguments that follow it."""

    def __init__(self, name: str, arguments: Sequence[str], module: bool) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._module = module
        if not module and not os.path.isfile(name):
            raise UsageError(
                f"the script must be a file that exists; got {shown(name)}. A module is named after -m."
            )

    def run(self, at_end: Callable[[BaseException | None], None]) -> None:
        """Runs it as the main program of this process. Raises what it raises, which was then shown already.

        `at_end` is called after its last line with what it raised, before Python waits for its threads.
        """
        raised: BaseException | None = None
        try:
            sys.argv[:] = [self.name, *self._arguments]
            code, main = self._loaded()
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
        except SystemExit as left:
            raised = left
        except BaseException as error:
            raised = error.with_traceback(_of_the_program(error.__traceback__))
            sys.excepthook(type(raised), raised, raised.__traceback__)
            sys.stderr.flush()
        at_end(raised)
        if raised is not None:
            if not isinstance(raised, SystemExit):
                sys.excepthook = _shown_already
            raise raised

    def _loaded(self) -> tuple[Any, types.ModuleType]:
        """The code, and the module `__main__` in which it runs."""
        main = types.ModuleType("__main__")
        # The module, as in Python's own `__main__`; `exec` would put its dictionary.
        main.__dict__["__builtins__"] = builtins
        if self._module:
            spec = _spec_of(self.name)
            assert spec.loader is not None
            code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
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


def _spec_of(name: str) -> importlib.machinery.ModuleSpec:
    """Of a module, or of the `__main__` of a package. The packages around it are imported."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is not None and spec.submodule_search_locations is not None:
        return _spec_of(f"{name}.__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        print(f"{sys.executable}: No module named {name}", file=sys.stderr)
        raise SystemExit(1)
    return spec


def _of_the_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback from the program's first line on."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
        trace = trace.tb_next
    return trace


def _shown_already(*_: Any) -> None:
    """In place of the program's hook, which has shown its exception."""
