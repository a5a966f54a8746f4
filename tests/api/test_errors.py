"""Error messages about every argument of the public functions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors

X = np.zeros((1, 4, 4, 1), np.float32)
POOLS = ("max_pool", "min_pool", "avg_pool", "sum_pool")

TUPLE = "Pass a tuple such as (2, 2)."
INTS = "an int or 2 ints of at least 1, one per pooled axis"
WINDOW = "an int or a tuple of positive ints, one per pooled axis"
AXES = "distinct ints from -4 to 3"
ONCE = "Name each pooled axis of x once."
PADDING = "'VALID', 'SAME', 'SAME_LOWER', a non-negative int, or one int or (low, high) pair per pooled axis"
PAIRS = "Pass 'SAME' or pairs such as ((1, 1), (1, 1))."
LARGE = "Use a smaller window or more padding."
CHANNELS = (
    "Pass axes=... to pool an array without a channel axis, or add the axis with x[..., None]."
)

# argument, value, error class, rule, hint: messages about the geometry of every windowed pool
GEOMETRY = [
    ("window_shape", 2.0, TypeError, WINDOW, TUPLE),
    ("window_shape", "2", TypeError, WINDOW, TUPLE),
    ("window_shape", None, TypeError, WINDOW, TUPLE),
    ("window_shape", True, TypeError, WINDOW, TUPLE),
    ("window_shape", (), ValueError, "at least one positive int", TUPLE),
    ("window_shape", (2, 0), ValueError, INTS, TUPLE),
    ("window_shape", (2, -1), ValueError, INTS, TUPLE),
    ("window_shape", (2, True), TypeError, INTS, TUPLE),
    ("window_shape", [2, 2.0], TypeError, INTS, TUPLE),
    (
        "window_shape",
        (5, 2),
        ValueError,
        "at most the padded input, 4 along axis 1 (it spans 5)",
        LARGE,
    ),
    (
        "window_shape",
        (2, 6),
        ValueError,
        "at most the padded input, 4 along axis 2 (it spans 6)",
        LARGE,
    ),
    ("strides", 0, ValueError, INTS, TUPLE),
    ("strides", (0, 1), ValueError, INTS, TUPLE),
    ("strides", (2,), ValueError, INTS, TUPLE),
    ("strides", 1.5, TypeError, INTS, TUPLE),
    ("strides", False, TypeError, INTS, TUPLE),
    ("strides", ("1", 1), TypeError, INTS, TUPLE),
    ("strides", np.array([1, 0]), ValueError, INTS, TUPLE),
    ("strides", np.array([1.0, 1.0]), TypeError, INTS, TUPLE),
    ("strides", (1, 2, 2, 1), ValueError, INTS, "Sizes stand for pooled axes alone: pass (2, 2)."),
    ("strides", (1, 2, 2, 3), ValueError, INTS, TUPLE),
    ("strides", (3, 2, 2, 1), ValueError, INTS, TUPLE),
    ("window_dilation", (1, 0), ValueError, INTS, TUPLE),
    ("window_dilation", (1, 1, 1), ValueError, INTS, TUPLE),
    ("window_dilation", True, TypeError, INTS, TUPLE),
    ("padding", "same", ValueError, PADDING, "Case matters: pass 'SAME'."),
    ("padding", "Same_lower", ValueError, PADDING, "Case matters: pass 'SAME_LOWER'."),
    (
        "padding",
        (0, 1, 1, 0),
        ValueError,
        PADDING,
        "Sizes stand for pooled axes alone: pass (1, 1).",
    ),
    ("padding", "CIRCULAR", ValueError, PADDING, PAIRS),
    ("padding", -1, ValueError, PADDING, PAIRS),
    ("padding", (), ValueError, PADDING, PAIRS),
    ("padding", (1, 2, 3), ValueError, PADDING, PAIRS),
    ("padding", (1, -1), ValueError, PADDING, PAIRS),
    ("padding", ((1, 1),), ValueError, PADDING, PAIRS),
    ("padding", ((1, -1), (0, 0)), ValueError, PADDING, PAIRS),
    ("padding", ((1, 1, 1), (0, 0, 0)), TypeError, PADDING, PAIRS),
    ("padding", ((1, 1), 1), TypeError, PADDING, PAIRS),
    ("padding", 1.0, TypeError, PADDING, PAIRS),
    ("padding", None, TypeError, PADDING, PAIRS),
    ("padding", True, TypeError, PADDING, PAIRS),
    ("ceil_mode", 1, TypeError, "True or False", "Pass a bool."),
    ("ceil_mode", None, TypeError, "True or False", "Pass a bool."),
    ("axes", (1, 1), ValueError, AXES, ONCE),
    ("axes", (1, -3), ValueError, AXES, ONCE),
    ("axes", (1, 4), ValueError, AXES, ONCE),
    ("axes", (), ValueError, AXES, ONCE),
    (
        "axes",
        (1,),
        ValueError,
        "2 axes, one for each entry of the shape",
        "Make the lengths agree.",
    ),
    ("axes", 1, TypeError, AXES, "Pass a tuple such as (1, 2)."),
    ("axes", (1, 2.0), TypeError, AXES, "Pass a tuple such as (1, 2)."),
    ("axes", "12", TypeError, AXES, "Pass a tuple such as (1, 2)."),
    ("autodiff", "grad", ValueError, "'vjp' or 'jvp'", "Leave it out for 'vjp'."),
    ("autodiff", None, TypeError, "'vjp' or 'jvp'", "Leave it out for 'vjp'."),
]
TIES = "'first', 'last' or 'split'"
CHOOSING = [
    ("ties", "First", ValueError, TIES, "Case matters: pass 'first'."),
    ("ties", "middle", ValueError, TIES, "Leave it out for 'first'."),
    ("ties", None, TypeError, TIES, "Leave it out for 'first'."),
    ("ties", 0, TypeError, TIES, "Leave it out for 'first'."),
]
NUMBER = "a number other than 0"
HELD = "a number other than 0 in the range of float32"
COUNT = "Leave it out to divide by the count."
AVERAGING = [
    ("divisor", 0, ValueError, NUMBER, COUNT),
    ("divisor", 0.0, ValueError, NUMBER, COUNT),
    ("divisor", 1e60, ValueError, HELD, COUNT),
    ("divisor", -1e-60, ValueError, HELD, COUNT),
    ("divisor", 10**60, ValueError, HELD, COUNT),
    ("divisor", float("nan"), ValueError, HELD, COUNT),
    ("divisor", "2", TypeError, NUMBER, COUNT),
    ("divisor", True, TypeError, NUMBER, COUNT),
    ("divisor", 1j, TypeError, NUMBER, COUNT),
    ("count_include_pad", 1, TypeError, "True or False", "Pass a bool."),
    ("count_include_pad", None, TypeError, "True or False", "Pass a bool."),
]


def raises(kind, message):
    """Match the whole message, and the note that jax adds under a transformation."""
    return pytest.raises(kind, match=f"^{re.escape(message)}(\n-{{20}}\nFor simplicity, JAX .*)?$")


def check(function, argument, value, kind, rule, hint):
    arguments = {"window_shape": (2, 2), argument: value}
    beside = "" if argument == "window_shape" else ", window_shape=(2, 2)"
    context = f"(x.shape=(1, 4, 4, 1){beside})"
    message = f"jaxpool.{function}: `{argument}` must be {rule}; got {argument}={value!r} {context}. {hint}"
    with raises(kind, message):
        getattr(jaxpool, function)(X, **arguments)


def label(value):
    return repr(value) if not isinstance(value, type) else value.__name__


@pytest.mark.parametrize("function", POOLS)
@pytest.mark.parametrize(("argument", "value", "kind", "rule", "hint"), GEOMETRY, ids=label)
def test_geometry(function, argument, value, kind, rule, hint):
    check(function, argument, value, kind, rule, hint)


@pytest.mark.parametrize("function", ["max_pool", "min_pool"])
@pytest.mark.parametrize(("argument", "value", "kind", "rule", "hint"), CHOOSING, ids=label)
def test_ties(function, argument, value, kind, rule, hint):
    check(function, argument, value, kind, rule, hint)


@pytest.mark.parametrize(("argument", "value", "kind", "rule", "hint"), AVERAGING, ids=label)
def test_averages(argument, value, kind, rule, hint):
    check("avg_pool", argument, value, kind, rule, hint)


@pytest.mark.parametrize("function", POOLS)
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"window_shape": 2},
            TypeError,
            "`axes` must be given when `window_shape` is an int; got axes=None "
            "(x.shape=(1, 4, 4, 1), window_shape=2). Pass axes=(1, 2), say.",
        ),
        (
            {"window_shape": (2, 2, 2, 2)},
            ValueError,
            "`x` must be an array of at least 5 axes, 4 pooled and channels; got x.ndim=4 "
            f"(x.shape=(1, 4, 4, 1), window_shape=(2, 2, 2, 2)). {CHANNELS}",
        ),
        (
            {"window_shape": (3, 2), "window_dilation": (2, 1)},
            ValueError,
            "`window_shape` must be at most the padded input, 4 along axis 1 (it spans 5); "
            f"got window_shape=(3, 2) (x.shape=(1, 4, 4, 1)). {LARGE}",
        ),
        (
            {"window_shape": (2, 2), "padding": ((0, 0), (2, 2))},
            ValueError,
            "`padding` must be such that every window holds a real element; window 0 along axis 2 "
            "holds none; got padding=((0, 0), (2, 2)) (x.shape=(1, 4, 4, 1), window_shape=(2, 2)). "
            "Use less padding or a larger window.",
        ),
        (
            {"window_shape": (2, 1), "padding": ((0, 0), (0, 1))},
            ValueError,
            "`padding` must be such that every window holds a real element; window 4 along axis 2 "
            "holds none; got padding=((0, 0), (0, 1)) (x.shape=(1, 4, 4, 1), window_shape=(2, 1)). "
            "Use less padding or a larger window.",
        ),
    ],
    ids=["int window", "rank", "dilated span", "empty first window", "empty last window"],
)
def test_arguments_that_do_not_fit_together(function, arguments, kind, message):
    with raises(kind, f"jaxpool.{function}: {message}"):
        getattr(jaxpool, function)(X, **arguments)


def test_a_window_whose_taps_jump_over_the_input_is_empty():
    """Dilation 9 over 4 elements: one tap falls before them, the other after them."""
    message = (
        "jaxpool.max_pool: `padding` must be such that every window holds a real element; "
        "window 0 along axis 0 holds none; got padding=((3, 3),) (x.shape=(4, 1), "
        "window_shape=(2,)). Use less padding or a larger window."
    )
    with raises(ValueError, message):
        jaxpool.max_pool(np.zeros((4, 1)), (2,), padding=3, window_dilation=9)


@pytest.mark.parametrize("function", POOLS)
@pytest.mark.parametrize("x", [[[1.0, 2.0]], 1.0, "x", None], ids=repr)
def test_what_is_no_array(function, x):
    hint = "Pass an array of jax or NumPy." if x in ("x", None) else "Pass jnp.asarray(x)."
    message = f"jaxpool.{function}: `x` must be an array; got x={x!r} (window_shape=(2, 2)). {hint}"
    with raises(TypeError, message):
        getattr(jaxpool, function)(x, (2, 2))


@pytest.mark.parametrize("function", POOLS)
@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.array([["a"]]), "<U1"),
        (np.array([[None]]), "object"),
        (np.ones((2, 2, 1), np.complex64), "complex64"),
        (jnp.ones((2, 2, 1), np.complex64), "complex64"),
        (jax.random.split(jax.random.key(0), (2, 2)), "key<fry>"),
    ],
    ids=["strings", "objects", "complex numbers", "complex array", "keys"],
)
def test_elements_without_an_order(function, x, dtype):
    rule = "an array of floats, integers or bools"
    got = f"x.dtype={dtype} (x.shape={x.shape}, window_shape=(2, 2))"
    message = f"jaxpool.{function}: `x` must be {rule}; got {got}. Convert it first."
    with raises(TypeError, message):
        getattr(jaxpool, function)(x, (2, 2))


def test_a_sum_of_bools():
    message = (
        "jaxpool.sum_pool: `x` must be an array of floats or integers; got x.dtype=bool "
        "(x.shape=(1, 4, 4, 1), window_shape=(2, 2)). Use x.astype(jnp.int32) to count."
    )
    with raises(TypeError, message):
        jaxpool.sum_pool(X.astype(bool), (2, 2))


def test_a_pooled_axis_of_unknown_size():
    message = (
        "jaxpool.max_pool: `x` must be of known size along pooled axis 1; got x.shape[1]=h "
        "(x.shape=(1, h, 4, 1), window_shape=(2, 2)). Batch and channel axes may be symbolic, "
        "pooled axes not."
    )
    (height,) = jax.export.symbolic_shape("h")
    program = jax.export.export(jax.jit(lambda x: jaxpool.max_pool(x, (2, 2))))
    with raises(ValueError, message):
        program(jax.ShapeDtypeStruct((1, height, 4, 1), np.float32))


ONES = np.ones(3, np.float32)
ORDERED = "an array of floats, integers or bools"
ELEMENTWISE = {
    "one array": (
        ((ONES,), {}),
        TypeError,
        "`xs` must be at least two arrays; got xs=1. For the maximum along an axis use jaxpool.max.",
    ),
    "no array": (
        ((), {}),
        TypeError,
        "`xs` must be at least two arrays; got xs=0. For the maximum along an axis use jaxpool.max.",
    ),
    "list": (
        ((ONES, [1, 2]), {}),
        TypeError,
        "`xs[1]` must be an array or a number; got xs[1]=[1, 2]. Pass jnp.asarray(xs[1]).",
    ),
    "string": (
        ((ONES, "1"), {}),
        TypeError,
        "`xs[1]` must be an array or a number; got xs[1]='1'. Pass an array of jax or NumPy.",
    ),
    "None": (
        ((None, ONES), {}),
        TypeError,
        "`xs[0]` must be an array or a number; got xs[0]=None. Pass an array of jax or NumPy.",
    ),
    "complex number": (
        ((1, 1j), {}),
        TypeError,
        "`xs[1]` must be an array or a number; got xs[1]=1j. Pass an array of jax or NumPy.",
    ),
    "strings": (
        ((ONES, np.array(["a"])), {}),
        TypeError,
        f"`xs[1]` must be {ORDERED}; got xs[1].dtype=<U1. Convert it first.",
    ),
    "complex array": (
        ((jnp.ones(3, np.complex64), ONES), {}),
        TypeError,
        f"`xs[0]` must be {ORDERED}; got xs[0].dtype=complex64. Convert it first.",
    ),
    "keys": (
        ((ONES, jax.random.key(0)), {}),
        TypeError,
        f"`xs[1]` must be {ORDERED}; got xs[1].dtype=key<fry>. Convert it first.",
    ),
    "shapes": (
        ((ONES, np.ones(2)), {}),
        ValueError,
        "`xs` must be of shapes that broadcast together; "
        "got xs[0].shape=(3,), xs[1].shape=(2,). Reshape them first.",
    ),
    "ties": (
        ((ONES, ONES), {"ties": "none"}),
        ValueError,
        "`ties` must be 'split', 'first' or 'last'; got ties='none'. Leave it out for 'split'.",
    ),
    "ties of another kind": (
        ((ONES, ONES), {"ties": None}),
        TypeError,
        "`ties` must be 'split', 'first' or 'last'; got ties=None. Leave it out for 'split'.",
    ),
    "autodiff": (
        ((ONES, ONES), {"autodiff": "both"}),
        ValueError,
        "`autodiff` must be 'vjp' or 'jvp'; got autodiff='both'. Leave it out for 'vjp'.",
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("function", ["maximum", "minimum"])
def test_elementwise(function, name):
    (args, kwargs), kind, message = ELEMENTWISE[name]
    if function == "minimum":
        message = message.replace("For the maximum", "For the minimum")
        message = message.replace("jaxpool.max.", "jaxpool.min.")
    with raises(kind, f"jaxpool.{function}: {message}"):
        getattr(jaxpool, function)(*args, **kwargs)


def test_under_jit_the_message_is_the_same():
    def check_in(transform):
        with raises(
            ValueError,
            "jaxpool.max_pool: `strides` must be an int or 2 ints of at least 1, one per pooled axis; "
            "got strides=(0, 1) (x.shape=(1, 4, 4, 1), window_shape=(2, 2)). "
            "Pass a tuple such as (2, 2).",
        ):
            transform(lambda x: jaxpool.max_pool(x, (2, 2), (0, 1)).sum())(X)

    check_in(jax.jit)
    check_in(jax.grad)


def test_the_reason_is_raised_once_and_without_a_trail():
    with (
        raises(TypeError, "jaxpool.f: `a` must be b; got a='c' (d=1, e=2). Do g."),
        name_function_in_errors("f", d=1, e=2),
    ):
        raise ArgumentError("a", "b", "c", "Do g.", TypeError)
    with (
        raises(ValueError, "jaxpool.f: `a` must be b; got a=3. Do g.") as caught,
        name_function_in_errors("f"),
    ):
        raise ArgumentError("a", "b", 3, "Do g.")
    assert caught.value.__suppress_context__
    with pytest.raises(KeyError), name_function_in_errors("f"):
        raise KeyError("others pass")


def test_a_long_value_is_shown_in_part():
    with pytest.raises(TypeError) as error:
        jaxpool.max_pool([[0.0] * 5000] * 4, (2, 2))
    message = str(error.value)
    assert len(message) < 400
    assert message.startswith("jaxpool.max_pool: `x` must be an array; got x=[[0.0, 0.0, ")
    assert message.endswith("… (window_shape=(2, 2)). Pass jnp.asarray(x).")
