"""Draw the gallery: value and gradient of each pool on one photograph, as PNG files.

The script needs the `demo` extra. The photograph is a part of `flower.jpg` from scikit-learn.

python docs/pictures/gallery.py
"""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

import jaxpool

HERE = Path(__file__).parent / "gallery"
SIDE, SHOWN = 96, 288  # pixels per side of the photograph, and of a panel
DISC = np.hypot(*np.mgrid[-47.5:48, -47.5:48])[..., None] < 40
STARTS = (np.arange(SIDE) % 24 == 0)[:, None]  # an episode every 24 columns
KEY = jax.random.key(0)
WINDOW = {"window_shape": (6, 6), "strides": (3, 3)}
CONE = -0.05 * np.hypot(*np.mgrid[-3:4, -3:4])  # 0 in the middle, falling to all sides
BOX = jnp.array([[20.0, 30.0, 60.0, 70.0]])  # y0, x0, y1, x1
BOXES = jnp.array([[10.0, 10.0, 34.0, 34.0], [30.0, 20.0, 90.0, 80.0]])
RINGS = np.int32(np.hypot(*np.mgrid[-47.5:48, -47.5:48]) // 6).ravel()  # one segment id per pixel


def unpooled(x):
    y, indices = jaxpool.max_pool_with_argmax(x, (4, 4), (4, 4))
    return jaxpool.max_unpool(y, indices, x.shape[:2])


def pyramid(x):
    """The three levels of a pyramid, enlarged to the size of the finest level."""
    levels = (2, 4, 8)
    parts = jnp.split(
        jaxpool.spatial_pyramid_pool(x[None], levels)[0],
        np.cumsum([n * n * 3 for n in levels[:-1]]),
    )
    grids = [part.reshape(n, n, 3) for part, n in zip(parts, levels, strict=True)]
    return jnp.concatenate(
        [jnp.repeat(jnp.repeat(g, 24 // len(g), 0), 24 // len(g), 1) for g in grids], 1
    )


def rings(pool):
    """The result of `pool` for each ring, as vertical bars."""

    def bars(x):
        y = pool(x.reshape(-1, 3), RINGS, 12)
        return jnp.tile(y, (12, 1, 1))

    return bars


def of_two_levels(x):
    """A small box from the photograph and a large box from the half-size photograph, side by side."""
    half = jaxpool.avg_pool(x, (2, 2), (2, 2))
    sizes = {"spatial_scale": 1.0, "canonical_size": 48, "canonical_level": 0}
    y = jaxpool.multilevel_roi_align((x, half), BOXES, (12, 12), **sizes)
    return jnp.concatenate([*y], 1)


# Each pool as a function of an image (H, W, 3) with values from 0 to 1.
POOLS = {
    "max_pool": lambda x: jaxpool.max_pool(x, **WINDOW),
    "max_pool_dilated": lambda x: jaxpool.max_pool(x, (3, 3), (1, 1), window_dilation=(6, 6)),
    "min_pool": lambda x: jaxpool.min_pool(x, **WINDOW),
    "avg_pool": lambda x: jaxpool.avg_pool(x, **WINDOW),
    "sum_pool": lambda x: jaxpool.sum_pool(x, **WINDOW),
    "max_unpool": unpooled,
    "lp_pool": lambda x: jaxpool.lp_pool(x, 4, **WINDOW),
    "gem_pool": lambda x: jaxpool.gem_pool(x, 4.0, **WINDOW),
    "logsumexp_pool": lambda x: jaxpool.logsumexp_pool(x, temperature=0.1, **WINDOW),
    "softmax_pool": lambda x: jaxpool.softmax_pool(x, temperature=0.1, **WINDOW),
    "fractional_max_pool": lambda x: jaxpool.fractional_max_pool(KEY, x, (4, 4), (36, 36)),
    "stochastic_pool": lambda x: jaxpool.stochastic_pool(KEY, x, **WINDOW),
    "fractional_avg_pool": lambda x: jaxpool.fractional_avg_pool(KEY, x, (4, 4), (36, 36)),
    "median_pool": lambda x: jaxpool.median_pool(x, **WINDOW),
    "rank_pool": lambda x: jaxpool.rank_pool(x, 9, **WINDOW),
    "k_max_pool": lambda x: jaxpool.k_max_pool(x, 24, axis=1),
    "dilate": lambda x: jaxpool.dilate(x, CONE, axes=(0, 1)),
    "erode": lambda x: jaxpool.erode(x, CONE, axes=(0, 1)),
    "blur_pool": lambda x: jaxpool.blur_pool(x, (5, 5), (3, 3)),
    "max_blur_pool": lambda x: jaxpool.max_blur_pool(x, (6, 6), (5, 5), (3, 3)),
    "roi_align": lambda x: jaxpool.roi_align(x, BOX, (12, 12))[0],
    "roi_max_pool": lambda x: jaxpool.roi_max_pool(x, BOX, (12, 12))[0],
    "segment_max": rings(jaxpool.segment_max),
    "segment_mean": rings(jaxpool.segment_mean),
    "segment_logsumexp": rings(functools.partial(jaxpool.segment_logsumexp, temperature=0.1)),
    "max_pool_masked": lambda x: jnp.maximum(jaxpool.max_pool(x, **WINDOW, where=DISC), 0),
    "avg_pool_masked": lambda x: jaxpool.avg_pool(x, **WINDOW, where=DISC, count_include_pad=False),
    "local_maxima": lambda x: jnp.where(jaxpool.local_maxima(x, (9, 9)), x, 0),
    "multilevel_roi_align": of_two_levels,
    "adaptive_max_pool": lambda x: jaxpool.adaptive_max_pool(x, (20, 20)),
    "adaptive_avg_pool": lambda x: jaxpool.adaptive_avg_pool(x, (20, 20)),
    "global_max_pool": lambda x: jaxpool.global_max_pool(x, axes=(0, 1), keepdims=True),
    "global_avg_pool": lambda x: jaxpool.global_avg_pool(x, axes=(0, 1), keepdims=True),
    "spatial_pyramid_pool": pyramid,
    "maximum": lambda x: jaxpool.maximum(x, x[:, ::-1]),
    "cummax": lambda x: jaxpool.cummax(x, axis=1),
    "cummax_of_episodes": lambda x: jaxpool.cummax(x, axis=1, reset=STARTS),
}


def photograph():
    picture = load_sample_image("flower.jpg")[60:348, 170:458]
    return (
        jnp.asarray(
            Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BOX), jnp.float32
        )
        / 255
    )


def panel(pixels):
    """Enlarge an image to the height of a panel, without interpolation."""
    image = Image.fromarray(np.uint8(np.clip(pixels, 0, 1) * 255 + 0.5))
    width = max(1, round(SHOWN * image.width / image.height))
    return image.resize((width, SHOWN), Image.Resampling.NEAREST)


def value(y):
    """Scale values to colours from 0 to 1. Values within 0 to 1 stay unchanged."""
    y = np.asarray(y)
    low, high = min(y.min(), 0.0), max(y.max(), 1.0)
    return (y - low) / (high - low)


def gradient(dx):
    """Colours of the gradient magnitude, summed over the channels. Brighter is larger."""
    total = np.abs(np.asarray(dx)).sum(-1)
    return mpl.colormaps["inferno"](np.sqrt(total / total.max()))[..., :3]


def joined(*panels):
    """The panels in a row, with transparent gaps."""
    width = sum(p.width for p in panels) + 8 * (len(panels) - 1)
    sheet, left = Image.new("RGBA", (width, SHOWN)), 0
    for p in panels:
        sheet.paste(p, (left, 0))
        left += p.width + 8
    return sheet


def save(image, name):
    """Write a PNG of 128 colours and a transparent one."""
    colours = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    pixels = np.where(np.asarray(image.convert("RGBA"))[..., 3] == 0, np.uint8(128), colours)
    paletted = Image.fromarray(pixels.astype(np.uint8), "P")
    paletted.putpalette([*colours.getpalette()[:384], 255, 255, 255])
    paletted.save(HERE / f"{name}.png", transparency=128, optimize=True)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    x = photograph()
    save(panel(x), "photograph")
    for name, pool in POOLS.items():
        y, dx = pool(x), jax.grad(lambda x, pool=pool: pool(x).sum())(x)
        save(joined(panel(value(y)), panel(gradient(dx))), name)
