"""Results put together from regions: what reaches over an end of an axis is computed apart from what does not.

Padding an array copies it, and padding each slice of it keeps the loops of XLA for CPU from
vectorising. Only at the ends of an axis something is missing: elsewhere the array is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax

from jaxpool._geometry.access import Cut


def concatenated(
    axes: Sequence[int],
    columns: Sequence[Sequence[Cut]],
    region: Callable[[Sequence[Cut]], Any],
) -> Any:
    """Arrays from `region(cuts)`, of every combination of the cuts of each axis.

    The minor axis is put together last, whatever the order of the axes: other orders vectorise less.
    """

    def parts_of(chosen: dict[int, Cut], rest: Sequence[int]) -> Any:
        if not rest:
            return region([chosen[which] for which in range(len(axes))])
        *others, which = rest
        parts = [parts_of({**chosen, which: cut}, others) for cut in columns[which]]
        return jax.tree.map(lambda *leaves: _concatenate(leaves, axes[which]), *parts)

    return parts_of({}, sorted(range(len(axes)), key=lambda which: axes[which]))


def _concatenate(parts: Sequence[Array], axis: int) -> Array:
    """The parts one after another along an axis.

    XLA for CPU does not fuse a concatenation along the last axis with what makes its parts (jax 0.12; 0.10 for
    one axis alone), and along the last but one it does: an axis of size 1 stands after it.
    """
    if len(parts) == 1:
        return parts[0]
    if axis < parts[0].ndim - 1:
        return lax.concatenate(parts, axis)
    apart = [lax.expand_dims(part, [part.ndim]) for part in parts]
    return lax.squeeze(lax.concatenate(apart, axis), [parts[0].ndim])
