"""A hook that runs a function right after a module is imported, before its importer continues.

`python -m jaxpool run` waits for the import of jax, so that a program may set environment variables that jax reads. If
jaxpool itself imports jax, the function, which uses jaxpool, runs after the outermost import of jaxpool.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def call_after_import(module_name: str, callback: Callable[[], None], outer_package: str) -> None:
    """Call `callback` after the module `module_name` is imported, or now if the module is imported already.

    If modules of the package `outer_package` are being imported at that time, the call waits for the outermost import.
    """
    if module_name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _ModuleImportWatcher(module_name, callback, f"{outer_package}."))


class _ModuleImportWatcher(importlib.abc.MetaPathFinder):
    """A finder of `sys.meta_path` that asks the finders after it, and wraps the loaders of the watched modules."""

    def __init__(self, module_name: str, callback: Callable[[], None], outer_prefix: str) -> None:
        self._module_name, self._callback, self._outer_prefix = module_name, callback, outer_prefix
        self._modules_being_imported: list[
            str
        ] = []  # modules of the package that are being imported
        self._is_imported = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module_name and not name.startswith(self._outer_prefix):
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _WatchedModuleLoader(spec.loader, self)
                return spec
        return None

    def before_module_runs(self, name: str) -> None:
        """Called before a watched module runs."""
        if name != self._module_name:
            self._modules_being_imported.append(name)

    def after_module_ran(self, name: str, succeeded: bool) -> None:
        """Called after a watched module has run; `succeeded` is False if it raised."""
        if name != self._module_name:
            self._modules_being_imported.remove(name)
        elif succeeded:
            self._is_imported = True
        if self._is_imported and not self._modules_being_imported and self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _WatchedModuleLoader(importlib.abc.Loader):
    """Wraps a loader, and notifies a finder before and after the module runs. The module keeps the original loader."""

    def __init__(self, loader: Any, finder: _ModuleImportWatcher) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the wrapped loader, for callers that find a module without loading it."""
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        succeeded = False
        self._finder.before_module_runs(module.__name__)
        try:
            self._loader.exec_module(module)
            succeeded = True
        finally:
            self._finder.after_module_ran(module.__name__, succeeded)
