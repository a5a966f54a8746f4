"""Pools over boxes and segments of the plane, and their twins in plain jnp."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxpool

# Boxes of the plane: rows and columns of three boxes, one of them partly outside.
BOXES = np.array([[0.3, 0.2, 3.4, 2.6], [1.1, -0.6, 4.7, 1.9], [1.0, 1.0, 2.0, 2.0]])
IDS = np.array([2, 0, 2, 1, 5, 0, -1, 2, 0, 2, 1, 2])


def of_boxes(op, **kwargs):
    """Each image of a batch by itself: the batch may be symbolic."""
    return lambda x: jax.vmap(lambda x: getattr(jaxpool, op)(x, BOXES, 2, **kwargs))(x)


def lines(x):
    """The elements of the plane as rows, batch and channels behind them."""
    moved = jnp.moveaxis(x, 0, 2)
    return moved.reshape(12, *moved.shape[2:])


def of_lines(op, **kwargs):
    return lambda x: jnp.moveaxis(getattr(jaxpool, op)(lines(x), IDS, 4, **kwargs)[:3], 1, 0)


def bilinear(size, low, high):
    """Two cells of two points each of a span, from where a pixel begins."""
    points = low - 0.5 + (np.arange(4) + 0.5) * (high - low) / 4
    near = np.clip(points, 0, size - 1)[:, None]
    there = ((points >= -1) & (points <= size))[:, None]
    weights = np.where(there, np.maximum(1 - np.abs(near - np.arange(size)), 0), 0)
    return weights.reshape(2, 2, size).mean(1)


def mean_of_boxes(x):
    down = np.stack([bilinear(4, box[0], box[2]) for box in BOXES])
    across = np.stack([bilinear(3, box[1], box[3]) for box in BOXES])
    return jnp.einsum("kih,kjw,bhwc->bkijc", down, across, x)


def largest_of_boxes(greatest, x):
    """By `greatest(rows, columns)`, the maximum over windows of the plane."""

    def cells(low, high, size):
        low, high = round(low), round(high)
        step = max(high - low + 1, 1) / 2
        ends = [(low + int(i * step), low + int(np.ceil((i + 1) * step))) for i in range(2)]
        return [list(range(max(a, 0), min(b, size))) for a, b in ends]

    each = [greatest(cells(b[0], b[2], 4), cells(b[1], b[3], 3))(x) for b in BOXES]
    return jnp.stack(each, -4)


def by_segment(formula):
    member = (np.arange(3)[:, None] == IDS)[:, :, None, None]
    return lambda x: jnp.moveaxis(formula(lines(x)[None], member), 1, 0)


def greatest_row(x, member):
    return jnp.where(member, x, -np.inf).max(1)


def mean_row(x, member):
    return jnp.where(member, x, 0).sum(1) / member.sum(1)
