"""Drop-in replacements for the pools of other libraries, one module per library.

The modules are `flax`, `haiku`, `equinox`, `scipy`, `torch` and `torchvision`. Each function takes the arguments of its
original and returns the same values and gradients, except for differences in the docstring. Import a module by name:

    from jaxpool.compat import flax as pooling  # in place of flax.linen

The attribute `jaxpool.compat.torch` also works, and imports the module on first use. `import jaxpool` imports none of
the modules. `flax`, `haiku` and `equinox` need the library of their name and run its functions and layers
(`_originals`), so arguments, conventions and error messages are those of the library.

`scipy`, `torch` and `torchvision` need no other library. These modules implement names, defaults, axis orders and
argument checks. Ops of `_ops` and public functions compute the results.
"""

import importlib
import importlib.util
import sys
from types import ModuleType

# Modules that import the library of their name.
_MODULES_NEEDING_THEIR_LIBRARY = ("equinox", "flax", "haiku")
_PUBLIC_MODULES = ("equinox", "flax", "haiku", "scipy", "torch", "torchvision")


def __getattr__(name: str) -> ModuleType:
    """Import the module `name` on first use."""
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    hint = ""
    if not name.startswith("_"):
        from jaxpool import __all__ as public_names
        from jaxpool._arguments.other_names import public_function_hint

        hint = public_function_hint(name, public_names)
    message = f"module {__name__!r} has no attribute {name!r}{hint}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    """List only modules whose library is installed, because `help` imports every listed module."""
    importable_names = {
        name
        for name in _PUBLIC_MODULES
        if importlib.util.find_spec(name if name in _MODULES_NEEDING_THEIR_LIBRARY else "jax")
    }
    return sorted({*globals(), *importable_names} - {"ModuleType", "importlib", "sys"})
