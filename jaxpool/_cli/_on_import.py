"""A hook that runs a function right after a module is imported, before its importer continues.

`python -m jaxpool run` waits for the import of jax, so that a program may set environment variables that jax reads.
If jaxpool itself imports jax, the function runs after the outermost import of jaxpool, because it needs its modules.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def on_import(name: str, then: Callable[[], None], after: str) -> None:
    """Call `then` after the module `name` is imported, or now if it is imported already.

    If modules of the package `after` are being imported at that time, the call waits for the outermost import.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then, f"{after}."))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules by the next finders, and wraps the loaders of modules that it watches."""

    def __init__(self, name: str, then: Callable[[], None], after: str) -> None:
        self._name, self._then, self._after = name, then, after
        self._begun: list[str] = []  # modules of the package that are being imported
        self._imported = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name and not name.startswith(self._after):
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def begins(self, name: str) -> None:
        """Called before a watched module runs."""
        if name != self._name:
            self._begun.append(name)

    def ended(self, name: str, whole: bool) -> None:
        """Called after a watched module has run; `whole` is False if it raised."""
        if name != self._name:
            self._begun.remove(name)
        elif whole:
            self._imported = True
        if self._imported and not self._begun and self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


class _Loader(importlib.abc.Loader):
    """Wraps a loader, and notifies a finder before and after the module runs. The module keeps the original loader."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
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
        whole = False
        self._finder.begins(module.__name__)
        try:
            self._loader.exec_module(module)
            whole = True
        finally:
            self._finder.ended(module.__name__, whole)
