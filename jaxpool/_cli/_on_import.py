"""A hook that runs a function right after a module is imported, before its importer continues.

`python -m jaxpool run` waits for the import of jax, so that a program may set environment variables that jax reads.
"""

import copy
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence


def call_after_import(module_name: str, callback: Callable[[], None]) -> None:
    """Call `callback` after the module `module_name` is imported, or now if the module is imported already."""
    if module_name in sys.modules:
        callback()
        return
    sys.meta_path.insert(0, _ModuleImportWatcher(module_name, callback))


class _ModuleImportWatcher(importlib.abc.MetaPathFinder):
    """A finder of `sys.meta_path` that asks the finders after it, and wraps the loader of the watched module."""

    def __init__(self, module_name: str, callback: Callable[[], None]) -> None:
        self._module_name, self._callback = module_name, callback

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module_name:
            return None
        later_finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(name, path, target) for finder in later_finders)
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader

        def exec_module(module: types.ModuleType) -> None:
            module.__loader__ = spec.loader = loader
            loader.exec_module(module)
            sys.meta_path.remove(self)
            self._callback()

        spec.loader = copy.copy(loader)  # a loader may be shared by modules
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
