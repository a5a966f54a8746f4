"""Pooling and elementwise max for JAX, with custom derivatives.

This module holds the public names; `_public` imports them from the modules that define them. Each internal package
imports only from packages before it in this list: `_arguments` (checks of arguments), `_geometry` (windows), `_plan`
(the choice of a kernel), `_kernels` (functions of arrays), `_ops` (kernels with their derivatives), `_shards` (ops on
sharded arrays), `_accelerate` (reductions of lax computed by the ops), `_api` (the public functions). `compat`,
`testing` and `_cli` come last.

Public names are imported at first use. `import jaxpool` alone imports neither jax nor NumPy, so that the help of the
command line is fast. Editors and type checkers read `__init__.pyi`, which `python -m tests.docs.written` writes.
"""

import importlib
import importlib.util
import sys
from typing import Any

__version__ = "0.1.0"
_PUBLIC_MODULES = ("compat", "testing")


def __getattr__(name: str) -> Any:
    """Import all public names as attributes of the package, and return `name`."""
    hint = ""
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__all__" or not name.startswith("_"):
        from jaxpool import _public

        names = ["__all__", *_public.__all__]
        globals().update({attribute: getattr(_public, attribute) for attribute in names})
        if name in names:
            return globals()[name]
        from jaxpool._arguments.other_names import public_function_hint

        hint = public_function_hint(name, names)
    message = f"module {__name__!r} has no attribute {name!r}{hint}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    """Attributes, public names, and modules of the package; `testing` only if hypothesis is installed."""
    missing_module = "testing" if importlib.util.find_spec("hypothesis") is None else ""
    modules = set(_PUBLIC_MODULES) - {missing_module}
    from jaxpool import _public

    listed_names = {name for name in globals() if name not in ("Any", "importlib", "sys")}
    return sorted({*listed_names, "__all__", *modules, *_public.__all__})
