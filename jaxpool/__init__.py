"""Pooling and elementwise max for JAX, with derivatives of their own.

This module holds the public names and nothing else; `_public` says where they are defined. Behind it are
rooms, each of which imports only from those before it: `_arguments` (what a user passed), `_geometry`
(windows), `_plan` (which form of a kernel), `_kernels` (arrays in, arrays out), `_ops` (kernels with their
derivatives), `_shards` (ops of arrays on several devices), `_accelerate` (lax's reductions handed to the ops),
`_api` (the public functions); then `compat`, `testing` and `_cli`, which none of those need.

Names are imported when the first of them is used. `import jaxpool` alone imports neither jax nor NumPy, so
that the command line answers a question for help at once.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
_MODULES = ("compat", "testing")

if TYPE_CHECKING:
    from jaxpool import _public
    from jaxpool._public import *  # noqa: F403

    __all__: list[str] = []
    __all__ += _public.__all__
else:

    def __getattr__(name: str) -> Any:
        """The public name `name`; from then on all of them are plain attributes of the package."""
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__all__" or not name.startswith("_"):
            from jaxpool import _public

            names = ["__all__", *_public.__all__]
            globals().update({each: getattr(_public, each) for each in names})
            if name in names:
                return globals()[name]
        said = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(said, name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        """What the package holds, the public names among it, and the modules that can be imported here."""
        without = "testing" if importlib.util.find_spec("hypothesis") is None else ""
        there = set(_MODULES) - {without}
        from jaxpool import _public

        shown = {
            name for name in globals() if name not in ("Any", "TYPE_CHECKING", "importlib", "sys")
        }
        return sorted({*shown, "__all__", *there, *_public.__all__})
