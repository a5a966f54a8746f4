"""Windows over a small plane, laid side by side by a constant matrix: what the twins of the table are made of."""

import itertools

import jax.numpy as jnp
import numpy as np

SHAPE = (2, 4, 3, 2)  # batch, two pooled axes, channels
PLANE = SHAPE[1:3]


def spans(size, window, stride=1, low=0, dilation=1, out=None):
    """The positions of each window along an axis of `size`; padding left out."""
    out = (size + 2 * low - (window - 1) * dilation - 1) // stride + 1 if out is None else out
    taps = [[i * stride - low + t * dilation for t in range(window)] for i in range(out)]
    return [[position for position in window if 0 <= position < size] for window in taps]


def adaptive(size, out):
    return [list(range(i * size // out, -(-(i + 1) * size // out))) for i in range(out)]


def whole(size):
    return [list(range(size))]


SAME = (spans(4, 3, low=1), spans(3, 2, out=3))  # of a 3x2 window: what is odd goes to the end


class Windows:
    """Windows over a plane, from the positions of each along both axes."""

    def __init__(self, rows, columns):
        self.shape = (len(rows), len(columns))
        lists = [
            [row * PLANE[1] + column for row, column in itertools.product(*window)]
            for window in itertools.product(rows, columns)
        ]
        taps = max(map(len, lists))
        padded = np.array([list_ + [-1] * (taps - len(list_)) for list_ in lists])
        self.positions = padded.reshape(*self.shape, taps)
        self.real = self.positions >= 0
        self.matrix = (self.positions.reshape(-1) == np.arange(12)[:, None]).astype(np.float64)

    def __call__(self, x, fill):
        """The elements of each window along a new last axis, `fill` where there is none."""
        lanes = jnp.moveaxis(x, -1, -3).reshape(*x.shape[:-3], x.shape[-1], 12)
        taken = (lanes @ self.matrix).reshape(*lanes.shape[:-1], *self.positions.shape)
        return jnp.moveaxis(jnp.where(self.real, taken, fill), -4, -2)

    @property
    def taps(self):
        """Which taps are real, and where each lies, as they stand in the windows of an array."""
        return self.real[None, :, :, None], self.positions[None, :, :, None]


def greatest(rows, columns):
    return lambda x: Windows(rows, columns)(x, -np.inf).max(-1)


def least(rows, columns):
    return lambda x: Windows(rows, columns)(x, np.inf).min(-1)


def total(rows, columns):
    return lambda x: Windows(rows, columns)(x, 0).sum(-1)


def mean(rows, columns):
    windows = Windows(rows, columns)
    return lambda x: windows(x, 0).sum(-1) / windows.taps[0].sum(-1, dtype=x.dtype)
