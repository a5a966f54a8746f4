"""The windows of an array side by side, so that a pool is a formula along the last axis."""

import itertools

import numpy as np

from jaxpool._geometry.window import make_window


class Gathered:
    """Where the elements of every window lie: `gather` reads them, `scatter` adds to them."""

    def __init__(self, shape, *geometry, **options):
        window = make_window(shape, *geometry, **options)
        self.shape = shape
        outputs = np.indices(window.pooled(shape))
        positions, real = [], []
        for taps in itertools.product(*map(range, window.window_shape)):
            position, inside = outputs.copy(), True
            for dim, tap in zip(window.dims, taps, strict=True):
                at = outputs[dim.axis] * dim.stride - dim.low + tap * dim.dilation
                inside = inside & (at >= 0) & (at < dim.size)
                position[dim.axis] = np.clip(at, 0, dim.size - 1)
            positions.append(np.ravel_multi_index(tuple(position), shape))
            real.append(inside)
        self.positions, self.real = np.stack(positions, -1), np.stack(real, -1)

    def gather(self, x, fill):
        """The elements of each window along a new last axis, `fill` where there is none."""
        return np.where(self.real, x.ravel()[self.positions], fill)

    def scatter(self, shares):
        """Shares of the elements of each window, added up where windows meet."""
        dx = np.zeros(int(np.prod(self.shape)))
        np.add.at(dx, self.positions[self.real], shares[self.real])
        return dx.reshape(self.shape)
