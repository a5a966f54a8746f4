"""Oracle of the pools by rank: `median_pool`, `rank_pool` and `k_max_pool`."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Term, as_exact_numbers
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties


def _rank_pool_in_jnp(x: Any, rank: int | str, windows: Windows, where: Any) -> Any:
    """The element at `rank` of each sorted window, or 0 if the window has too few elements. Padding ranks last."""
    if rank == "midpoint":
        return sum(_rank_pool_in_jnp(x, each, windows, where) / 2 for each in ("lower", "higher"))
    values, tap_exists = jnp_windows.gather(x, windows, where)
    count = tap_exists.sum(-1)
    if isinstance(rank, str):
        index = count // 2 if rank == "higher" else (count - 1) // 2
    else:
        index = rank + count if rank < 0 else jnp.full_like(count, rank)
    sorted_values = jnp.sort(jnp.where(tap_exists, values, np.inf), -1)
    is_at_rank = (
        jnp.arange(sorted_values.shape[-1])
        == jnp.broadcast_to(index, sorted_values.shape[:-1])[..., None]
    )
    has_enough = (index >= 0) & (index < count)
    return jnp.where(is_at_rank & has_enough[..., None], sorted_values, 0).sum(-1)


@record(
    twin=lambda x, method, windows, where: _rank_pool_in_jnp(x, method, windows, where),
    adds=lambda method="higher", **others: method == "midpoint",
    choices={"method": ("lower", "midpoint")},
)
def median_pool(x: Any, windows: Windows, where: Any, method: str, ties: Ties) -> Answer:
    """The median of each window, as in `jaxpool.median_pool`."""
    reducer = parts.rank_reducer(method, ties)
    dtype = parts.mean_dtype(x) if method == "midpoint" else None
    return parts.apply_reducer_to_windows(x, windows, lambda output: reducer, dtype, where)


@record(twin=_rank_pool_in_jnp, choices={"rank": (1, 2, -1)})
def rank_pool(x: Any, rank: int, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The element at `rank` of each window, as in `jaxpool.rank_pool`."""
    reducer = parts.rank_reducer(rank, ties)
    return parts.apply_reducer_to_windows(x, windows, lambda output: reducer, where=where)


def _k_max_pool_in_jnp(x: Any, k: int, axis: int) -> Any:
    lanes = jnp.moveaxis(x, axis, -1)
    top_indices = jnp.argsort(lanes, -1, descending=True)[..., :k]
    return jnp.moveaxis(jnp.take_along_axis(lanes, jnp.sort(top_indices, -1), -1), -1, axis)


@record(
    twin=_k_max_pool_in_jnp, usual={"axis": lambda x: -3}, choices={"k": (1, 3), "axis": (-2, -1)}
)
def k_max_pool(x: Any, k: int, axis: int, ties: Literal["first", "last"] = "first") -> Answer:
    """The k largest elements along an axis, in their original order, as in `jaxpool.k_max_pool`."""
    x = np.asarray(x)
    values, axis, terms = as_exact_numbers(x), axis % x.ndim, []
    y = np.zeros(parts.merge_positions(x.shape, (axis,), (k,)), x.dtype)
    for lane in np.ndindex(parts.merge_positions(x.shape, (axis,), (1,))):
        positions = [parts.merge_positions(lane, (axis,), (i,)) for i in range(x.shape[axis])]
        is_nan = {p: values[p] != values[p] for p in positions}
        candidates = positions if ties == "first" else positions[::-1]
        order = sorted(candidates, key=lambda p: (not is_nan[p], 0 if is_nan[p] else -values[p]))
        for i, position in enumerate(sorted(order[:k])):
            output = parts.merge_positions(lane, (axis,), (i,))
            y[output] = x[position]
            terms.append(Term(output, 0, position, 1.0))
    return Answer(y, ((x.shape, x.dtype),), tuple(terms))
