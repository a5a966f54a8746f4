"""Error messages of `max`, `min` and `maxout` for invalid arguments."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

nan, inf = np.nan, np.inf
X = np.zeros((2, 3), np.float32)
AXIS = "None, an int or distinct ints from -2 to 1"
NAME = "Name each axis of x once."
START = "a number or an array without axes"
ON_RESULT = "For an array use jaxpool.maximum or jaxpool.minimum on the result."
MASK = "an array of bools"
CHOICE = "'split', 'first' or 'last'"
ERRORS = [
    ({"axis": 2}, ValueError, "axis", AXIS, "2", NAME),
    ({"axis": (0, -2)}, ValueError, "axis", AXIS, "(0, -2)", NAME),
    ({"axis": 1.0}, TypeError, "axis", AXIS, "1.0", "Pass an int or a tuple of ints."),
    ({"axis": True}, TypeError, "axis", AXIS, "True", "Pass an int or a tuple of ints."),
    ({"axis": (0, "1")}, TypeError, "axis", AXIS, "(0, '1')", "Pass an int or a tuple of ints."),
    ({"keepdims": 1}, TypeError, "keepdims", "True or False", "1", "Pass a bool."),
    ({"ties": "all"}, ValueError, "ties", CHOICE, "'all'", "Leave it out for 'split'."),
    ({"autodiff": 1}, TypeError, "autodiff", "'vjp' or 'jvp'", "1", "Leave it out for 'vjp'."),
    (
        {"where": np.ones(3, bool)},
        ValueError,
        "initial",
        "given where `where` is",
        "None",
        "It is the result where nothing counts.",
    ),
    ({"where": [True]}, TypeError, "where", MASK, "[True]", "Pass jnp.asarray(where)."),
    ({"where": np.ones(3)}, TypeError, "where", MASK, "float32", "Pass where != 0.", "dtype"),
    (
        {"where": np.ones(2, bool), "initial": 0},
        ValueError,
        "where",
        "of a shape that broadcasts to that of x",
        "(2,)",
        "Pass where[..., None].",
        "shape",
    ),
    ({"initial": "0"}, TypeError, "initial", START, "'0'", "Pass a number."),
    ({"initial": [0]}, TypeError, "initial", START, "[0]", "Pass a number."),
    ({"initial": np.zeros(3)}, ValueError, "initial", START, "(3,)", ON_RESULT, "shape"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["max", "min"])
def test_messages(name, error):
    options, kind, argument, rule, got, hint, *attribute = error
    source = ".".join([argument, *attribute])
    message = f"jaxpool.{name}: `{argument}` must be {rule}; got {source}={got} (x.shape=(2, 3))."
    with pytest.raises(kind, match=f"^{re.escape(f'{message} {hint}')}$"):
        getattr(jaxpool, name)(X, **options)


@pytest.mark.parametrize(
    ("dtype", "initial"),
    [
        (np.int8, 128),
        (np.int32, 0.5),
        (np.int32, -inf),
        (np.uint8, -1),
        (np.bool_, 2),
        (jnp.float8_e4m3fn, -inf),
        (np.float32, 10**400),
    ],
)
def test_an_initial_value_that_the_type_does_not_hold(dtype, initial):
    shown = str(initial) if len(str(initial)) <= 200 else str(initial)[:199] + "…"
    message = (
        f"jaxpool.max: `initial` must be a number that {np.dtype(dtype)} holds; got "
        f"initial={shown} (x.shape=(2,)). Pass another."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        jaxpool.max(np.zeros(2, dtype), initial=initial)


def test_messages_about_x():
    message = "jaxpool.max: `x` must be an array; got x=[1, 2]. Pass jnp.asarray(x)."
    with pytest.raises(TypeError, match=re.escape(message)):
        jaxpool.max([1, 2])
    message = (
        "jaxpool.max: `initial` must be given to reduce axis 1 of size 0; got initial=None "
        "(x.shape=(2, 0)). It is the result of no elements."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        jaxpool.max(np.zeros((2, 0)))
    message = (
        "jaxpool.min: `initial` must be of a type that int32 holds; got initial.dtype=float32 "
        "(x.shape=(2,)). Cast it."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        jaxpool.min(np.zeros(2, np.int32), initial=jnp.float32(1))
    batch = jax.export.symbolic_shape("b")[0]
    message = (
        "jaxpool.max: `x` must be of known size along axis 0; got x.shape[0]=b (x.shape=(b,)). "
        "Axes that are not reduced may be symbolic."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.eval_shape(jaxpool.max, jax.ShapeDtypeStruct((batch,), np.float32))


@pytest.mark.parametrize(
    ("options", "kind", "argument", "rule", "hint"),
    [
        ({"groups": 4}, ValueError, "groups", 6, "Each group has as many elements."),
        ({"groups": 0}, ValueError, "groups", 6, "Each group has as many elements."),
        ({"groups": 2.0}, TypeError, "groups", 6, "Pass the number of outputs."),
        ({"groups": 2, "axis": 0}, ValueError, "groups", 1, "Each group has as many elements."),
    ],
)
def test_messages_of_maxout(options, kind, argument, rule, hint):
    shown = "(x.shape=(1, 6))"
    message = (
        f"jaxpool.maxout: `groups` must be a positive int that divides the axis of size {rule}; "
        f"got groups={options['groups']} {shown}. {hint}"
    )
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        jaxpool.maxout(np.zeros((1, 6)), **options)
    message = "jaxpool.maxout: `axis` must be an int; got axis=(0, 1)"
    with pytest.raises(TypeError, match=re.escape(message)):
        jaxpool.maxout(np.zeros((1, 6)), 2, axis=(0, 1))
