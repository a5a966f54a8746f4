"""Drop-ins for the pools of other libraries, a module each.

They are `flax`, `haiku`, `equinox`, `scipy`, `torch` and `torchvision`.
A function here takes what its original takes and gives what its original gives, gradient included;
where the original is wrong, the docstring says what differs. Import the module you need by name:

    from jaxpool.compat import flax as pooling  # in place of flax.linen

An attribute is as good: `jaxpool.compat.torch` imports the module when it is first used. `import jaxpool`
imports none of them, and only `haiku` and `equinox`, whose pools are modules, need their library.

Here live the arguments and conventions of each library: names, defaults, orders of axes, what it refuses.
What is computed is not here: the ops of `_ops` and the public functions compute it. `_lax` and `_torch_*`
hold what several drop-ins share, and the parts of `torch`.
"""

import importlib
import importlib.util
import sys
from types import ModuleType

_NEEDED = {"equinox": "equinox", "haiku": "haiku"}  # the library that a module imports
_MODULES = ("equinox", "flax", "haiku", "scipy", "torch", "torchvision")


def __getattr__(name: str) -> ModuleType:
    """The drop-in `name`, imported when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    said = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(said, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    """What the package holds, the modules that can be imported here among it: `help` looks at each."""
    there = {name for name in _MODULES if importlib.util.find_spec(_NEEDED.get(name, "jax"))}
    return sorted({*globals(), *there} - {"ModuleType", "importlib", "sys"})
