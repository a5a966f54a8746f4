"""Random shapes and arguments of a call, by the arguments in the function's signature.

The number of members of a call is the total number of elements that its outputs depend on. `beside.py` draws the
array arguments other than the pooled arrays, from the seed `draw` among the arguments.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from jaxpool.testing import Pool
from jaxpool.testing._windows import sliding_windows

Shape = tuple[int, ...]
DrawnCall = tuple[tuple[Shape, ...], dict[str, Any], int]
WINDOW_ARGUMENTS = ("window_shape", "strides", "padding", "window_dilation", "ceil_mode", "axes")


def arguments(draw: Any, pool: Pool, sizes: Any) -> DrawnCall:
    """Draw shapes, arguments and number of members of one call. `sizes(most)` is a strategy of sizes."""
    if pool.operands in (("xs",), ("x", "y")):
        return _draw_elementwise(draw, pool)
    if pool.takes("boxes"):
        return _draw_box_call(draw, pool, sizes)
    if pool.takes("window_shape") or pool.takes("kernel"):
        return _draw_windowed(draw, pool, sizes)
    return _draw_axis_call(draw, pool, sizes)


def draw_other_arguments(draw: Any, pool: Pool, kwargs: dict[str, Any]) -> None:
    """Add arguments that do not change shapes: ties, masks, and the choices of the record."""
    for name, values in {"ties": pool.ties, **pool.choices}.items():
        known = [value for value in values if not isinstance(value, np.ndarray)]
        if (
            name in kwargs
            or not known
            or name in ("axis", "k", "rank", "key", "initial", "samples")
        ):
            continue
        if pool.parameters[name].default is not pool.parameters[name].empty and name != "ties":
            known = [None, *known]
        value = draw(st.sampled_from(known))
        if value is not None:
            kwargs[name] = value
    for name in ("where", "reset"):
        if pool.takes(name) and draw(st.booleans()):
            kwargs |= {name: True, "draw": kwargs.get("draw", draw(st.integers(0, 99)))}
            if name == "where" and pool.takes("initial"):
                kwargs["initial"] = 1


def _draw_elementwise(draw: Any, pool: Pool) -> DrawnCall:
    count = len(pool.operands) if pool.operands != ("xs",) else draw(st.integers(2, 9))
    full = draw(st.lists(st.integers(1, 5), max_size=3))
    cut = [draw(st.tuples(st.integers(0, 3), st.integers(0, 7))) for _ in range(count - 1)]
    shapes = (tuple(full), *(_broadcastable_shape(full, lead, ones) for lead, ones in cut))
    return shapes, {}, math.prod(full) * count


def _broadcastable_shape(full: list[int], lead: int, ones: int) -> Shape:
    """Drop the first `lead` axes of a shape, and set the axes in the bit mask `ones` to size 1."""
    return tuple(1 if ones >> i & 1 else n for i, n in enumerate(full) if i >= lead)


def _draw_geometry(draw: Any, sizes: Any) -> tuple[Shape, dict[str, Any]]:
    """Draw the shape and the geometry of a windowed pool."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 2, 3]))
    dilation = draw(st.none() | st.tuples(*[st.integers(1, 3)] * rank))
    window = draw(st.tuples(*[sizes((65, 17, 5)[rank - 1])] * rank))
    strides = draw(st.none() | st.tuples(*[st.integers(1, 4) | st.just(8)] * rank))
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation or (1,) * rank, strict=True)]
    extra = draw(st.tuples(*[st.integers(0, 5) | st.integers(0, (90, 24, 6)[rank - 1])] * rank))
    pairs = st.tuples(*[st.tuples(*[st.integers(0, 3)] * 2)] * rank)
    padding = draw(st.sampled_from(["VALID", "SAME", "SAME", "SAME_LOWER"]) | pairs)
    short = 0 if padding == "VALID" else draw(st.integers(0, 3))
    lengths = [max(1, span + more - short) for span, more in zip(spans, extra, strict=True)]
    geometry: dict[str, Any] = {"window_shape": window, "strides": strides, "padding": padding}
    geometry |= {"window_dilation": dilation, "ceil_mode": draw(st.booleans())}
    row, batch = draw(sizes(33)), draw(st.lists(st.integers(1, 3), max_size=2))
    layout = draw(st.sampled_from(["last", "last", "last", "first", "any"]))
    if layout == "last":
        shape = (*batch, *lengths, row)
        geometry["axes"] = tuple(range(len(batch), len(batch) + rank))
    elif layout == "first":
        shape = (*batch, min(row, 3), *lengths)
        geometry["axes"] = tuple(range(len(shape) - rank, len(shape)))
    else:
        order = draw(st.permutations(range(rank + len(batch))))
        by_axis = dict(zip(order, [*lengths, *batch], strict=True))
        shape = tuple(by_axis[axis] for axis in range(rank + len(batch)))
        geometry["axes"] = tuple(order[:rank])
    return shape, {name: value for name, value in geometry.items() if value is not None}


def _draw_windowed(draw: Any, pool: Pool, sizes: Any) -> DrawnCall:
    """Draw a call of a windowed pool. Some arguments raise `NoWindowError`."""
    shape, kwargs = _draw_geometry(draw, sizes)
    window_shape, axes = kwargs["window_shape"], kwargs["axes"]
    known = [name for name in WINDOW_ARGUMENTS if pool.takes(name) or name == "window_shape"]
    kwargs = {name: value for name, value in kwargs.items() if name in known}
    if pool.takes("output_shape"):  # windows at random positions
        most = [shape[axis] - w + 1 for axis, w in zip(axes, window_shape, strict=True)]
        assume(min(most) > 0)
        outs = tuple(draw(st.integers(1, n)) for n in most)
        lanes = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
        given = {"window_shape": window_shape, "output_shape": outs, "axes": axes}
        given["draw"] = draw(st.integers(0, 99))
        return (shape,), given, lanes * math.prod(outs) * math.prod(window_shape)
    found = sliding_windows(
        shape, **(kwargs if pool.takes("padding") else kwargs | {"padding": "SAME"})
    )
    members = math.prod(found.output_shape_of(shape)) * found.taps_per_window
    if pool.takes("blur_shape"):
        kwargs["blur_shape"] = draw(st.tuples(*[st.integers(1, 4)] * len(axes)))
        kwargs["strides"] = kwargs.get("strides", (1,) * len(axes))
        padding, first = kwargs["padding"], {**kwargs, "strides": None}
        between = sliding_windows(shape, **{n: v for n, v in first.items() if n != "blur_shape"})
        sliding_windows(
            between.output_shape_of(shape),
            kwargs["blur_shape"],
            kwargs["strides"],
            padding,
            axes=axes,
        )
        members *= 4
    if pool.takes("rank"):
        kwargs["rank"] = draw(
            st.integers(-found.min_elements_per_window, found.min_elements_per_window - 1)
        )
    if pool.takes("key"):
        seed = draw(st.integers(0, 99))
        kwargs["draw"] = draw(st.sampled_from([seed, seed, seed, None]))
    if not pool.takes("kernel"):
        return (shape,), kwargs, members
    del kwargs["window_shape"]
    if len(window_shape) < len(shape) and draw(st.booleans()):
        channels = max(set(range(len(shape))) - set(axes))
        window_shape = (*window_shape, shape[channels])
    return (shape, window_shape), kwargs, 2 * members


def _draw_box_call(draw: Any, pool: Pool, sizes: Any) -> DrawnCall:
    shape: Shape = (draw(sizes(30)), draw(sizes(17)), draw(sizes(9)))
    images = draw(st.sampled_from([None, None, 1, 3]))
    count, number = draw(st.integers(1, 5) | st.just(17)), draw(st.integers(0, 99))
    kwargs: dict[str, Any] = {"boxes": count, "draw": number}
    kwargs["spatial_scale"] = draw(st.sampled_from([1.0, 0.5, 2.0]))
    cells = draw(st.tuples(*[st.integers(1, 4)] * 2))
    seen = math.prod(shape[:2])
    if pool.takes("samples"):
        kwargs |= {"aligned": draw(st.booleans()), "samples": draw(st.integers(1, 4))}
        if pool.takes("kind"):
            kwargs["kind"] = draw(st.sampled_from(["avg", "avg", "max"]))
            kwargs["draw"] |= kwargs["kind"] == "max"
        if kwargs["draw"] % 2:  # powers of two, so that weights are exact
            cells = tuple(1 << n // 2 for n in cells)
            kwargs["samples"] = 1 << kwargs["samples"] // 2
        seen = 4 * kwargs["samples"] ** 2
    full = shape if images is None else (images, *shape)
    shapes: tuple[Shape, ...] = (full,)
    if "features" in pool.operands:
        levels = draw(st.integers(1, 3))
        shapes = tuple(
            (*full[:-3], *(max(n >> i, 1) for n in shape[:2]), shape[2]) for i in range(levels)
        )
        kwargs |= {"canonical_size": draw(st.sampled_from([2.0, 5.0])), "canonical_level": 0}
    members = count * math.prod(cells) * shape[2] * seen
    return shapes, kwargs | {"output_shape": cells}, 3 * members


def _draw_axis_call(draw: Any, pool: Pool, sizes: Any) -> DrawnCall:
    """Draw a call of a function over whole axes, groups, segments or indices."""
    rank = draw(st.integers(1 + pool.takes("levels"), 3))
    small = pool.takes("segment_ids") or pool.takes("k") or pool.takes("indices")
    longest = (60, 20, 9) if small or pool.takes("levels") else (130, 40, 18)
    shape = draw(st.tuples(*[sizes(longest[rank - 1])] * rank))
    axes = tuple(draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))])
    axis, members = axes[0], math.prod(shape)
    number = draw(st.integers(0, 99))
    if pool.takes("segment_ids"):
        rows = {"num_segments": draw(st.integers(1, 9)), "indices_are_sorted": draw(st.booleans())}
        many = shape[0] if pool.takes("temperature") else 1  # a row depends on its whole segment
        return (shape,), {**rows, "draw": number}, members * rows["num_segments"] * many
    if pool.takes("k"):
        k = draw(st.integers(1, shape[axis]))
        return (shape,), {"axis": axis, "k": k}, members * k
    if pool.takes("indices"):
        more = draw(st.tuples(*[st.tuples(st.integers(1, 4), st.integers(0, 2))] * len(axes)))
        to = tuple(shape[a] * n + rest for a, (n, rest) in zip(axes, more, strict=True))
        kwargs = {"spatial_shape": to, "axes": axes, "draw": number}
        return (shape,), kwargs, members * 2 + math.prod(to)
    if pool.takes("levels"):
        levels = sorted(draw(st.sets(st.integers(1, 5), min_size=1, max_size=3)))
        kind = draw(st.sampled_from(["max", "avg"]))
        kwargs = {"levels": tuple(levels), "kind": kind, "axes": tuple(range(rank - 1))}
        return (shape,), kwargs, 4 * len(levels) * members
    if pool.takes("output_shape"):
        outs = tuple(draw(sizes(shape[a])) for a in axes)
        return (shape,), {"output_shape": outs, "axes": axes}, members * 4
    if pool.takes("reverse"):
        return (shape,), {"axis": axis, "reverse": draw(st.booleans())}, members * shape[axis]
    if pool.takes("keepdims"):
        name = "axes" if pool.takes("axes") else "axis"
        return (shape,), {name: axes, "keepdims": draw(st.booleans())}, members
    groups = draw(st.integers(1, 4))
    shape = tuple(n * groups if a == axis else n for a, n in enumerate(shape))
    return (shape,), {"groups": groups, "axis": axis}, members * groups
