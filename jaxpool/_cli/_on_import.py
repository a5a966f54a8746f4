"""What is to be done once a module is imported, before whoever imports it goes on.

So a program may still set variables of the environment that jax reads when it is imported. What is done then may
need modules of a package, of which one may be what imports the module: that one is made whole first.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def on_import(name: str, then: Callable[[], None], after: str) -> None:
    """Calls `then` after the module is imported, or now if it was.

    If modules of the package `after` are being imported at that time, once the outermost of them is.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then, f"{after}."))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as the finders after it do, and gives those it looks for a loader that tells it."""

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
        """A module that it looks for is about to run."""
        if name != self._name:
            self._begun.append(name)

    def ended(self, name: str, whole: bool) -> None:
        """A module that it looks for has run, or with `whole` false has raised."""
        if name != self._name:
            self._begun.remove(name)
        elif whole:
            self._imported = True
        if self._imported and not self._begun and self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


class _Loader(importlib.abc.Loader):
    """A loader that gives place to the one it stands for, and tells a finder when that begins and has ended."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        """What else the loader can do that it stands for: who only looks for a module keeps this one."""
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
