"""What each public function should give, in NumPy by loops written to be read. Slow, for small arrays.

The loops of a function have its name and its arguments, without `autodiff`, and give an `Answer`: the value, and which
elements each output comes from with what share. Above them stands the record of the function (`jaxpool.testing.pools`).
They share no code with the kernels, nor the geometry of windows, which is that of `jaxpool.testing._windows`.
"""

# ruff: noqa: F401, F403
from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    exact_sum,
    exact_values,
    is_floating,
    rounded,
)
from jaxpool.testing.oracle._parts import Rule, Ties
from jaxpool.testing.oracle.adaptive import *
from jaxpool.testing.oracle.blur import *
from jaxpool.testing.oracle.chance import *
from jaxpool.testing.oracle.cumulative import *
from jaxpool.testing.oracle.elementwise import *
from jaxpool.testing.oracle.morphology import *
from jaxpool.testing.oracle.peaks import *
from jaxpool.testing.oracle.power import *
from jaxpool.testing.oracle.ranks import *
from jaxpool.testing.oracle.reduce import *
from jaxpool.testing.oracle.regions import *
from jaxpool.testing.oracle.segments import *
from jaxpool.testing.oracle.soft import *
from jaxpool.testing.oracle.windowed import *
