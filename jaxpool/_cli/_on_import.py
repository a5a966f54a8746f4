"""A hook that runs a function right after a module is imported, before its importer continues.

`python -m jaxpool run` waits for the import of jax, so that a program may set environment variables that jax reads. If
jaxpool itself imports jax, the function, which uses jaxpool, runs after the outermost import of jaxpool.
"""

import copy
import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence


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
        self._num_outer_imports = 0  # modules of the package that are being imported
        self._is_imported = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module_name and not name.startswith(self._outer_prefix):
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                loader = copy.copy(spec.loader)  # a loader may be shared by modules
                exec_module = functools.partial(self._exec_module, spec.loader)
                loader.exec_module = exec_module  # type: ignore[method-assign]
                spec.loader = loader
                return spec
        return None

    def _exec_module(self, loader: importlib.abc.Loader, module: types.ModuleType) -> None:
        """Run a watched module, then the callback if nothing is left to wait for. The module keeps its own loader."""
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        is_outer = module.__name__ != self._module_name
        self._num_outer_imports += is_outer
        try:
            loader.exec_module(module)
            self._is_imported = self._is_imported or not is_outer
        finally:
            self._num_outer_imports -= is_outer
            if self._is_imported and not self._num_outer_imports and self in sys.meta_path:
                sys.meta_path.remove(self)
                self._callback()
