"""Random pools of small arrays, in the formats of the library and of the `explain` page."""

import dataclasses
import json
import math
import random

import numpy as np

from jaxpool._cli import UsageError
from jaxpool._cli._route import PoolSettings, route_cotangents, window_of_settings
from jaxpool._cli.explain import OPS, OPS_OF_OPTION

TIED_VALUES = [float(value) for value in range(4)]  # few values, so that they tie
SPECIAL_VALUES = [math.nan, -math.inf, math.inf, -0.0, 0.0, -1.5]


def random_case(rng: random.Random) -> tuple[PoolSettings, np.ndarray, np.ndarray]:
    """Random settings, an array, and a cotangent larger than any output. Some settings are invalid."""

    def pair(most):
        return rng.randint(1, most), rng.randint(1, most)

    def side():
        return rng.randint(0, 2), rng.randint(0, 2)

    op = rng.choice(OPS)
    settings = PoolSettings(
        op=op,
        window=pair(4),
        strides=pair(3),
        padding=rng.choice(["VALID", "SAME", "SAME_LOWER", (side(), side())]),
        window_dilation=rng.choice([(1, 1), pair(3)]),
        ceil_mode=op in OPS_OF_OPTION["ceil_mode"] and rng.random() < 0.4,
        ties=rng.choice(["first", "last", "split"]),
        count_include_pad=rng.random() < 0.5,
        divisor=rng.choice([None, None, 2.5, -0.3]),
        p=rng.choice([0.5, 1.0, 1.5, 2.0, 3.0, math.inf]),
        rank=rng.randint(-4, 3),
        output_shape=pair(5),
    )
    rows, columns = rng.choice([pair(7), (rng.randint(3, 7), rng.randint(3, 7))])
    pool = rng.choice(
        [TIED_VALUES, [*TIED_VALUES, *SPECIAL_VALUES], [value / 4 for value in range(-40, 40)]]
    )
    x = [[rng.choice(pool) for _ in range(columns)] for _ in range(rows)]
    dy = [[rng.randint(-9, 9) / 2 for _ in range(20)] for _ in range(20)]
    return settings, np.array(x, np.float32), np.array(dy, np.float32)


def expected_route(settings: PoolSettings, x: np.ndarray, dy: np.ndarray):
    """The library's result for the leading part of `dy` in the shape of the output, or its error message."""
    try:
        shape = window_of_settings(settings, x.shape).output_shape
        shape = x.shape if settings.op == "unpool" else shape
        return route_cotangents(settings, x, dy[: shape[0], : shape[1]])
    except (UsageError, ValueError) as error:
        return str(error)


def array_text(array: np.ndarray) -> str:
    """Text of an array for the page and `--array`."""
    return "; ".join(" ".join(repr(value) for value in row) for row in array.tolist())


def assert_close(said, expected: np.ndarray) -> None:
    """Assert that the page printed the numbers of the library, up to float32 rounding."""
    said = np.array(said).astype(float).reshape(expected.shape)
    np.testing.assert_allclose(said, expected, rtol=1e-5, atol=1e-6)


def settings_json(settings: PoolSettings) -> str:
    fields = dataclasses.asdict(settings)
    return json.dumps(fields | {"p": "inf" if settings.p == math.inf else settings.p})
