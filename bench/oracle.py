"""The reference of a benchmark row: the twin from `jaxpool.testing` in float64, on a sample of the case."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from bench._case import Case
from jaxpool.testing import pools

# The outputs (y, or y and positions), and one dx per input that has a gradient.
Results = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]

_POOLS = pools()  # of the working tree: `bench.against` imports another version later


class Reference:
    """The expected results of one case, computed at first use."""

    def __init__(self, case: Case, xs: Sequence[np.ndarray], dy: np.ndarray | None) -> None:
        self._case = case
        self._xs = [x[case.sample].astype(np.float64) for x in xs[: case.arity]]
        self._positions = [x[case.sample].astype(np.int64) for x in xs[case.arity :]]
        self._dy = None if dy is None else dy[case.sample].astype(np.float64)
        self._results: dict[bool, Results] = {}

    def expected(self, count_include_pad: bool = True) -> Results:
        if count_include_pad not in self._results:
            ties = _POOLS[self._case.op].parameters.get("ties")
            untied = self._xs
            if ties and ties.default == "first":
                untied = [_untied(x, smallest=self._case.op == "min_pool") for x in self._xs]
            arguments = self._xs, untied, self._positions, self._dy
            with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
                results = _program(self._case, count_include_pad)(*arguments)
            self._results[count_include_pad] = jax.tree.map(np.asarray, results)
        return self._results[count_include_pad]

    def check(
        self, outputs: Sequence[Any], dxs: Sequence[Any] = (), *, count_include_pad: bool = True
    ) -> dict[str, Any]:
        """The largest absolute difference over outputs and dxs, samples by `Case.sample`, and whether it is wrong.

        Rounding may cause 16 units in the last place of the largest number.
        """
        want, want_dxs = self.expected(count_include_pad)
        pairs = [*zip(outputs, want, strict=True), *zip(dxs, want_dxs, strict=bool(dxs))]
        difference = float(np.max([largest_difference(*pair) for pair in pairs]))
        tolerance = 0.0
        if not self._case.dtype.startswith("int"):
            largest = max(float(np.abs(a).max(initial=1.0)) for a in (want[0], *want_dxs))
            tolerance = 16 * float(ml_dtypes.finfo(np.dtype(self._case.dtype)).eps) * largest
        return {"difference": difference, "wrong": not difference <= tolerance}


@functools.lru_cache(maxsize=1)  # modes and peers of one case share the program
def _program(case: Case, count_include_pad: bool) -> Any:
    """A function that evaluates the twin at xs, and its VJP at `untied` if there is a dy."""
    pool = _POOLS[case.op]
    counts = {"count_include_pad": count_include_pad}
    options = counts if pool.takes("count_include_pad") else {}
    op = case.bound(functools.partial(pool.twin, **options))

    @jax.jit
    def results(xs: Any, untied: Any, positions: Any, dy: Any) -> Any:
        outputs = jax.tree.leaves(op(*xs, *positions))
        if dy is None:
            return outputs, ()
        _, pullback = jax.vjp(lambda *xs: jax.tree.leaves(op(*xs, *positions))[0], *untied)
        return outputs, pullback(dy)

    return results


def _untied(x: np.ndarray, *, smallest: bool) -> np.ndarray:
    """The ranks of the elements. Among tied elements the first is preferred.

    A selection only depends on the order of the elements, so its derivative at the ranks equals that at x.
    The ranks have no ties, and the twin's derivative is exact there.
    """
    sign = 1 if smallest else -1
    ranks = np.empty(x.size)
    ranks[np.argsort(sign * x, axis=None, kind="stable")] = np.arange(x.size)
    return sign * ranks.reshape(x.shape)


def largest_difference(got: Any, want: Any) -> float:
    """The largest absolute difference of two arrays, or infinity if their shapes differ."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        return math.inf
    with np.errstate(invalid="ignore"):
        return float(np.where(got == want, 0, np.abs(got - want)).max(initial=0.0))
