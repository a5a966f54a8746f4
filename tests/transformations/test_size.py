"""The program of `vmap` of a gradient is no larger than the gradient with one more batch axis, and has no loops."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools
from tests.support.later import later

# Under vmap, a plan sees one example. Both the example and the stack exceed `min_sum_region_bytes`.
SHAPE = (8, 9, 10, 3)
SAME = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
# Rank pools compare pairs of elements and have separate tests.
WINDOWED = [n for n, p in pools().items() if p.takes("ceil_mode") and p.topic != "rank"]
SPECIAL = {
    "min_pool": {"ties": "last"},
    "avg_pool": {"count_include_pad": False},
    "lp_pool": {"p": 3.0},
}
POOLS = {
    **{
        name: (name, SAME | dict.fromkeys(pools()[name].coefficients, 3.0) | SPECIAL.get(name, {}))
        for name in WINDOWED
    },
    "max_pool, split": ("max_pool", SAME | {"ties": "split"}),
    "adaptive_max_pool": ("adaptive_max_pool", {"output_shape": (3, 5)}),
    "adaptive_avg_pool": ("adaptive_avg_pool", {"output_shape": (3, 5)}),
}
MODES = ("vjp", "jvp")
CASES = [(name, mode) for name, (op, _) in POOLS.items() for mode in pools()[op].modes or (None,)]
SLOW = pytest.mark.slow
FORBIDDEN = ("scatter", "gather", "while")
# For values out of range of the dtype these loop over the taps. Under vmap, a loop step's slice becomes a gather.
LOOPED = [n for n in WINDOWED if pools()[n].coefficients or pools()[n].takes("p")]


def gradient(name, mode):
    function, kwargs = POOLS[name]
    more = kwargs | ({} if mode is None else {"autodiff": mode})
    pool = functools.partial(getattr(jaxpool, function), **more, axes=(-3, -2))

    def loss(x):
        y = pool(x)
        return ((y[0] if function.endswith("argmax") else y) ** 2).sum()

    return jax.grad(loss)


def lower_vmap_and_stack(name, mode, axis):
    """Return lowered programs of `vmap` of the gradient, and of the gradient of the stack with that axis in front."""
    x = jax.ShapeDtypeStruct((*SHAPE[:axis], 5, *SHAPE[axis:]), np.float32)
    of = gradient(name, mode)

    def whole(x):
        return jnp.moveaxis(of(jnp.moveaxis(x, axis, 0)), 0, axis)

    return [jax.jit(program).lower(x) for program in (jax.vmap(of, axis, axis), whole)]


def compiled(lowered):
    """Return the name of every operation in the compiled program."""
    return re.findall(r" = \S+ ([\w-]+)\(", lowered.compile().as_text())


def contained_words(text, words=FORBIDDEN):
    return [word for word in words if word in text]


@pytest.mark.parametrize("axis", [pytest.param(n, marks=() if n == 3 else SLOW) for n in range(5)])
@pytest.mark.parametrize(
    ("name", "mode"), [case if at % 2 else later(*case) for at, case in enumerate(CASES)]
)
def test_vmap_gradient_has_no_extra_operations(name, mode, axis):
    one, whole = (
        re.findall(r"stablehlo\.(\w+)", low.as_text())
        for low in lower_vmap_and_stack(name, mode, axis)
    )
    ragged = ("gather",) if name.startswith("adaptive") else ()  # the stack has gathers, too
    allowed = ("gather", "while") if name in LOOPED else ragged
    assert [word for word in contained_words(" ".join(one)) if word not in allowed] == []
    if name not in LOOPED:
        assert one.count("gather") <= whole.count("gather")
    assert one.count("reduce_window") == whole.count("reduce_window")


@pytest.mark.parametrize(
    ("name", "mode", "axis"),
    [
        pytest.param(
            name,
            mode,
            axis,
            marks=() if (name, axis) in [("max_pool", 0), ("max_pool", 3)] else SLOW,
        )
        for name, mode in CASES
        for axis in range(5)
    ],
)
def test_vmap_gradient_has_no_extra_fusions(name, mode, axis):
    one, whole = map(compiled, lower_vmap_and_stack(name, mode, axis))
    assert whole.count("fusion") > 0
    more = 2 if name in LOOPED else 0  # in the loop for values out of range
    assert one.count("fusion") <= whole.count("fusion") + more
    if not name.startswith("adaptive"):
        assert contained_words(" ".join(one)) == []
