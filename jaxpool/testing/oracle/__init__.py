"""Reference implementation of each public function as readable NumPy loops. Slow, for small arrays.

An oracle function has the name and the arguments of the public function, without `autodiff`. It returns an `Answer`:
the value, and the share of each output's cotangent that each input element receives. Its decorator `@record` adds the
function to `jaxpool.testing.pools`. Oracle functions share neither kernels nor geometry with the library. Their
windows come from `jaxpool.testing._windows`.
"""

# ruff: noqa: F401, F403
from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    as_exact_numbers,
    exact_sum,
    is_floating,
    round_to_dtype,
)
from jaxpool.testing.oracle._parts import Reducer, Ties
from jaxpool.testing.oracle.chance import *
from jaxpool.testing.oracle.extrema import *
from jaxpool.testing.oracle.morphology import *
from jaxpool.testing.oracle.ranks import *
from jaxpool.testing.oracle.regions import *
from jaxpool.testing.oracle.soft import *
from jaxpool.testing.oracle.windowed import *
