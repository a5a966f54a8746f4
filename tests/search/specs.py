"""Random specs: an op, arguments, shapes and a dtype, with sizes on both sides of the plans' thresholds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, TUNING
from jaxpool.testing import Pool, pools
from jaxpool.testing._windows import NoWindowError
from tests.search.arguments import arguments, draw_other_arguments

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "bool")
FUNCTIONS = tuple(pools())
MAX_WINDOW_ELEMENTS = (
    1 << 19
)  # window elements of all arrays of a spec, which take the oracle a second
ARRAYS = 128


@dataclasses.dataclass(frozen=True)
class Spec:
    """One program: a function of arrays of `shapes` with `arguments`, by the plan of a platform."""

    function: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    arguments: tuple[tuple[str, Any], ...]
    platform: Platform = "cpu"
    hasty: bool = True
    arrays: int = ARRAYS

    @property
    def pool(self) -> Pool:
        """The record of the function."""
        return pools()[self.function]

    @property
    def adds(self) -> bool:
        """True if values are rounded sums."""
        given = dict(self.arguments)
        return self.pool.rounds({"key": given.get("draw"), **given})

    def text(self) -> str:
        """Return the spec as one line, which `read` parses."""
        return json.dumps(dataclasses.asdict(self))


def read(text: str) -> Spec:
    """Parse the output of `Spec.text`."""
    fields = json.loads(text)
    return Spec(**{name: _frozen(value) for name, value in fields.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thresholds() -> list[int]:
    """Return every integer threshold from 2 to 128, and its neighbours."""
    fields = [*dataclasses.asdict(LIMITS).values()]
    for tuning in TUNING.values():
        fields += dataclasses.asdict(tuning).values()
    whole = {n for n in fields if type(n) is int and 1 < n <= 128}
    return sorted({n + step for n in whole for step in (-1, 0, 1)})


THRESHOLD_SIZES = _thresholds()


def _sizes(most: int) -> st.SearchStrategy[int]:
    """Strategy of sizes up to `most`: small sizes, or sizes around a threshold."""
    near = [n for n in THRESHOLD_SIZES if n <= most]
    small = st.integers(1, min(most, 9))
    return small | st.sampled_from(near) if near else small


@st.composite
def specs(draw: st.DrawFn, functions: tuple[str, ...] = FUNCTIONS) -> Spec:
    """Draw an op with arguments that it accepts."""
    pool = pools()[draw(st.sampled_from(functions))]
    try:
        shapes, kwargs, members = arguments(draw, pool, _sizes)
    except NoWindowError:
        assume(False)
    assume(0 < members * 2 <= MAX_WINDOW_ELEMENTS)
    draw_other_arguments(draw, pool, kwargs)
    exact = pool.rounds({"key": kwargs.get("draw"), **kwargs}) or pool.takes("kernel")
    dtype = draw(st.sampled_from(FLOATS[:3] if exact else FLOATS + INTEGERS))
    platform = draw(st.sampled_from(["cpu", "cpu", "gpu", "tpu", "portable"]))
    hasty = platform != "cpu" or draw(st.integers(0, 7)) > 0
    count = max(2, min(ARRAYS, MAX_WINDOW_ELEMENTS // (members * (4 if exact else 1))))
    return Spec(pool.name, shapes, dtype, tuple(sorted(kwargs.items())), platform, hasty, count)
