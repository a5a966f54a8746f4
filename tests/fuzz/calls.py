"""Decode bytes into calls: function, arguments (mostly valid, some odd), and the way of calling it."""

import inspect
import math
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

import jaxpool
from jaxpool.compat import scipy, torch, torchvision
from jaxpool.testing import pools
from tests.support.junk import JUNK, KEY

ARRAY_FUNCTIONS = list(pools())


def sharded(name):
    """Return a function under `jaxpool.sharded`, with `mesh` and `spec` as additional arguments."""
    pool = getattr(jaxpool, name)

    def call(*args, mesh=None, spec=None, **options):
        return jaxpool.sharded(pool, mesh=mesh, spec=spec)(*args, **options)

    known = inspect.signature(pool)
    named = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in ("mesh", "spec")
    ]
    call.__signature__ = known.replace(parameters=[*known.parameters.values(), *named])
    return call


SCIPY_NAMES = re.compile(r"[a-z]+_filter(1d)?|grey_\w+|\w+_tophat|morphological_\w+")
SHARDED = types.SimpleNamespace(**{name: sharded(name) for name in ARRAY_FUNCTIONS})
MODULES = {
    "": (jaxpool, ARRAY_FUNCTIONS),
    "sharded.": (SHARDED, ARRAY_FUNCTIONS),
    "compat.torch.": (torch, [n for n in torch.__all__ if n[0].islower()]),
    "compat.scipy.": (
        scipy,
        [n for n in vars(scipy) if SCIPY_NAMES.fullmatch(n)],
    ),
    "compat.torchvision.": (torchvision, ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"]),
}
FUNCTIONS = [
    (room + name, getattr(module, name))
    for room, (module, names) in MODULES.items()
    for name in names
]
DTYPES = ["float32", "float32", "int32", "bool", "bfloat16", "float16", "uint8", "float8_e4m3fn"]
DTYPES += ["float8_e5m2", "int8", "uint32", "complex64"]
LENGTHS = [8, 5, 12, 9, 4, 3, 2, 1, 6, 7, 16, 0, 64, 33, 2**20]
SMALL = [2, 3, 1, 2, 4, 5, 7, 8, 16, 0, -1, 2**31, 2**63, np.int32(2), 2.0, None]
NUMBERS = [2.0, 1.0, 3, 0.5, 1, 0, -1.0, 1e-6, math.inf, math.nan, 50, 1e308, 10**400, True, "2"]
KEYS = [KEY, KEY, None, jax.random.PRNGKey(0), jax.random.split(KEY)]
STRING_CHOICES = {
    "ties": ["first", "last", "split"],
    "autodiff": ["vjp", "jvp"],
    "kind": ["max", "avg"],
    "mode": [
        "reflect",
        "nearest",
        "mirror",
        "wrap",
        "constant",
        "grid-wrap",
        "Wrap",
        ("wrap",) * 2,
    ],
}
FLAGS = [
    "ceil_mode",
    "count_include_pad",
    "keepdims",
    "keepdim",
    "reverse",
    "return_indices",
    "aligned",
    "indices_are_sorted",
]
NUMERIC = [
    "p",
    "norm_type",
    "temperature",
    "eps",
    "divisor",
    "divisor_override",
    "spatial_scale",
    "cval",
    "percentile",
    "initial",
    "init",
]
COUNTS = ["rank", "k", "groups", "samples", "sampling_ratio", "num_segments"]
ARRAYS = [
    "x",
    "y",
    "input",
    "inputs",
    "other",
    "kernel",
    "structure",
    "boxes",
    "indices",
    "where",
    "footprint",
    "segment_ids",
]


class Bytes:
    """A sequence of choices. After its end, every choice is 0, the most common."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def below(self, n):
        self.at += 1
        return self.data[self.at - 1] % n if self.at <= len(self.data) else 0

    def one(self, choices):
        """Select a choice, half of the time from the first four, which are common."""
        at = self.below(256)
        return choices[at % len(choices) if at % 2 else at // 2 % min(4, len(choices))]

    def rare(self, n):
        return self.below(n) == n - 1


class Call:
    """One call: `arguments` by name, the way of calling `how`, and the rank and shape of its main array."""

    def __init__(self, data):
        self.tape = tape = Bytes(data)
        self.name, self.function = FUNCTIONS[tape.below(len(FUNCTIONS))]
        self.how = tape.one(["value"] * 4 + ["grad", "grad", "vmap", "symbolic", "real"])
        self.rank = 1 + tape.below(3)
        if self.name[-1] == "d" and self.name[-2].isdigit():
            self.rank = int(self.name[-2])
        lengths = LENGTHS[: -4 if self.how == "real" else None]
        self.sizes = tuple(tape.one(lengths) for _ in range(self.rank))
        batch, channels = [tape.one([1, 2, 3, 0, 8]) for _ in range(2)]
        self.layout = tape.below(5)
        if "compat.torch" in self.name:
            self.layout = 2
        self.shape = {
            0: (batch, *self.sizes, channels),
            1: (*self.sizes, channels),
            2: (batch, channels, *self.sizes),
            3: (*self.sizes, batch, channels),
            4: self.sizes,
        }[self.layout]
        first = len(self.shape) - self.rank if self.layout == 2 else 0
        self.axes = tuple(range(first, first + self.rank)) if self.layout > 1 else None
        self.arguments = {}
        signature = inspect.signature(self.function)
        for name, parameter in signature.parameters.items():
            usual = parameter.default is not parameter.empty
            if usual and name not in ("axes", "mesh", "spec") and tape.below(3) < 2:
                continue
            if tape.rare(200):
                continue
            self.arguments[name] = tape.one(JUNK) if tape.rare(16) else self.argument(name)
        if tape.rare(200):
            self.arguments[tape.one(["stride", "dim", "nothing", "key"])] = 2

    def array(self, shape, dtype=None):
        dtype = jnp.dtype(dtype or self.tape.one(DTYPES))
        if math.prod(size or 1 for size in shape) > 2**12 or not self.tape.rare(6):
            return jax.ShapeDtypeStruct(shape, dtype)
        return (np.arange(math.prod(shape)).reshape(shape) % 7).astype(dtype)

    def many(self, choices):
        """Draw an int, or one int per axis, sometimes for a wrong number of axes."""
        tape = self.tape
        count = self.rank + tape.one([0] * 14 + [1, -1])
        values = [tape.one(choices) for _ in range(count)]
        return tape.one([tuple, tuple, tuple, list, lambda v: v[0] if v else 2, np.array])(values)

    def argument(self, name):
        """Draw a value for the argument `name`, mostly a valid value."""
        tape, small = self.tape, SMALL[: 10 if self.tape.rare(8) else 8]
        small = SMALL if tape.rare(32) else small
        if name in STRING_CHOICES:
            return tape.one(STRING_CHOICES[name])
        if name in FLAGS:
            return tape.one([True, False])
        if name in NUMERIC:
            return tape.one(NUMBERS[: 15 if tape.rare(6) else 5])
        if name in COUNTS:
            return tape.one([1, 2, 0, 3, -1, 4, 8] + ([2**31, 2**70, 1.0] if tape.rare(8) else []))
        if name in ("strides", "stride", "window_dilation", "dilation"):
            return self.many([1, 2, 3, *small])
        if name == "padding":
            words = ["SAME", "VALID", "SAME_LOWER", "same", 1, 0, 2]
            pairs = tuple((tape.one([1, 0, 2, 3]), tape.one([0, 1, 2])) for _ in range(self.rank))
            return tape.one([*words, pairs, list(map(list, pairs)), self.many([1, 0, 2, *small])])
        if name in ("axes", "axis", "dim", "channel_axis"):
            axes = self.many([0, 1, -1, -2, 2, 3, -4, 7])
            if name == "axes":
                return tape.one([self.axes] * 7 + [axes])
            return tape.one([-1, 0, 1, -2, axes])
        if name == "key":
            return tape.one(KEYS)
        if name == "mesh":
            count = tape.one([1, 2, 4])
            return jax.sharding.Mesh(np.array(jax.devices()[:count]), ("rows",))
        if name == "spec":
            entries = [None] * len(self.shape)
            if entries:
                entries[self.axes[0] if self.axes else tape.below(len(entries))] = "rows"
            return PartitionSpec(*entries)
        if name == "reduce_fn":
            return tape.one([lax.max, lax.add, lax.min, lax.mul, max])
        if name == "output":
            return tape.one([None, np.float32, "int8", "float99", jnp.bfloat16])
        if name == "xs":
            return tuple(self.array(self.shape[tape.below(2) :]) for _ in range(tape.below(5)))
        if name == "features":  # one dtype, each level half as large as the previous level
            shape, dtype = (*self.shape[:1], *self.sizes, 2)[tape.below(2) :], tape.one(DTYPES)
            halves = [
                tuple(
                    max(n >> level, 1) if 0 < i < len(shape) - 1 else n for i, n in enumerate(shape)
                )
                for level in range(tape.below(4))
            ]
            return tuple(self.array(each, dtype) for each in halves)
        if name == "batch_indices":
            boxes = getattr(self.arguments.get("boxes"), "shape", (1,))
            return self.array(boxes[:1], tape.one(["int32", "uint8", "float32"]))
        if name in ARRAYS:
            return self.array(*self.kind(name))
        return self.many(small)  # windows, outputs, levels, origins, ratios

    def kind(self, name):
        """Draw shape and dtype of an array argument."""
        tape, main = self.tape, self.shape
        if name == "kernel":
            more = main[-1:] if main and tape.rare(3) else ()
            return tuple(tape.one([2, 1, 3]) for _ in range(self.rank)) + more, "float32"
        if name in ("structure", "footprint"):
            shape = tuple(tape.one([2, 1, 3]) for _ in range(len(main) - tape.rare(4)))
            return shape, "bool" if name == "footprint" else tape.one(["float32", "int32"])
        if name == "boxes":
            return (tape.one([3, 0, 1]), 5 if "torchvision" in self.name else 4), "float32"
        if name == "where":
            return main[tape.below(2) :], tape.one(["bool", "bool", "bool", "int32"])
        if name in ("indices", "segment_ids"):
            return main[:1] if name == "segment_ids" else main, tape.one(
                ["int32", "int8", "float32"]
            )
        if name == "other":
            return main[tape.below(2) :], None
        if "roi" in self.name and self.layout > 1 and "torchvision" not in self.name:
            return (*self.sizes, 2), None
        return main, None
