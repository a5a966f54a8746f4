"""Drop-ins for the pools of other libraries, a module each.

They are `flax`, `haiku`, `equinox`, `scipy`, `torch` and `torchvision`.
A function here takes what its original takes and gives what its original gives, gradient included;
where the original is wrong, the docstring says what differs. Import the module you need by name:

    from jaxpool.compat import flax as pooling  # in place of flax.linen

An attribute is as good: `jaxpool.compat.torch` imports the module when it is first used. `import jaxpool`
imports none of them. `flax`, `haiku` and `equinox` need their library, whose own functions and layers they run
(`_originals`): those are written in jax, so that what they take, refuse and say is theirs.

Of the others, here live the arguments and conventions: names, defaults, orders of axes, what is refused.
What is computed is not here: the ops of `_ops` and the public functions compute it. `_scipy_*` and `_torch_*`
are the parts of `scipy` and `torch`.
"""

import importlib
import importlib.util
import sys
from types import ModuleType

_NEEDED = ("equinox", "flax", "haiku")  # modules that import the library of their name
_MODULES = ("equinox", "flax", "haiku", "scipy", "torch", "torchvision")


def __getattr__(name: str) -> ModuleType:
    """The drop-in `name`, imported when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    said = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(said, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    """What the package holds, the modules that can be imported here among it: `help` looks at each."""
    there = {
        name for name in _MODULES if importlib.util.find_spec(name if name in _NEEDED else "jax")
    }
    return sorted({*globals(), *there} - {"ModuleType", "importlib", "sys"})
