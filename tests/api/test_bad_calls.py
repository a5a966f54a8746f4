"""Malformed calls of every public function and drop-in, and parts of their messages.

The calls are listed in `bad_calls.txt`, one for each rule. Nothing is compiled, because invalid arguments raise before
tracing.
"""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.testing import pools
from tests.support.bad_calls import NAMESPACE, exception_text, matches_parts, read

MALFORMED_CALLS = read()
POOLS = pools()
# Arguments that calls of the table trace, although they must be static
STATIC_ARGUMENTS = {"window_shape", "axes", "ties", "return_indices", "footprint", "levels"}
STATIC_ARGUMENTS |= {"image_shapes", "spatial_shape", "output_shape", "kernel_size"}
INVALID_NUMBERS = (None, "1", True, 1j, [1.0], 0, np.nan)
INVALID_FLAGS = (1, None, "yes")
INVALID_INTS = (0, -1, 1.5, "2", True, (1,) * 9, np.array([1.0, 2.0]))
COMPLEX = np.ones((2, 5, 6, 3), np.complex64)
INVALID_VALUES = {  # by argument, values that no function accepts
    "x": (
        None,
        "x",
        {},
        [[1.0, 2.0]],
        np.array([["a"]]),
        np.array([[None]]),
        COMPLEX,
        jax.random.split(jax.random.key(0), (2, 5)),
    ),
    "y": (None, "y", COMPLEX),
    "xs": ((COMPLEX, 1.0), (1.0, COMPLEX), (1.0,)),
    "features": (None, (), (COMPLEX,)),
    "window_shape": (
        *(None, (), (2, 0), (2, -1), (2, 2.5), [2, "2"], 1.5, "2", True, {2, 3}),
        *((True, True), ((2, 2), (2, 2)), np.array([2.0, 2.0]), np.array(["a", "b"])),
        jnp.array([2, 2]),
    ),
    "strides": INVALID_INTS,
    "padding": (None, "same", (), (1, -1), ((1, 1, 1), (0, 0, 0)), -1, 1.0, True),
    "window_dilation": INVALID_INTS,
    "axes": ("12", (1, 1), (1, -3), (1, 9), (1, 2.0), (False, True)),
    "axis": (9, 1.0, "1", (0, 0), (0, 9)),
    "output_shape": ((), (0, 2), (3, 2.0), "33", 1.5),
    "ceil_mode": INVALID_FLAGS,
    "keepdims": INVALID_FLAGS,
    "reverse": INVALID_FLAGS,
    "count_include_pad": INVALID_FLAGS,
    "indices_are_sorted": INVALID_FLAGS,
    "aligned": INVALID_FLAGS,
    "ties": ("First", "middle", None, 0),
    "autodiff": ("grad", "JVP", None, True),
    "where": ([True], "all", np.ones(3)),
    "temperature": (*INVALID_NUMBERS, -1, np.inf),
    "eps": (*INVALID_NUMBERS, -1, np.inf),
    "divisor": (*INVALID_NUMBERS[1:], 1e60),
    "spatial_scale": ("1", True, 0, np.nan, -1),
    "segment_ids": ([0, 1], np.zeros(1), np.zeros(99, int)),
    "num_segments": (-1, 2.0, True, 10**12),
    "boxes": (None, np.zeros((3, 5)), np.zeros(4)),
    "batch_indices": ([0], np.zeros(3), np.zeros(99, int)),
    # `jnp.float32` has a dtype but no shape.
    "key": (0, jax.random.split(jax.random.key(0)), jnp.float32),
    "p": ("1", 0, np.nan, np.ones(2, bool)),
    "rank": (99, 0.5, "higher", True),
    "k": (0, 99, 1.0, True),
    "groups": (0, 3, 2.0),
    "levels": (3, (), (1, 0), (1, 2.0)),
    "samples": (0, 10**9, 1.5),
    "kind": ("sum", None),
    "method": ("Lower", "median", None),
    "kernel": (None, "k", np.ones((2, 2), bool), np.ones((2, 2), np.complex64)),
    "blur_shape": ((), (0, 2), (2, 2.0), (3, 3, 3)),
    "spatial_shape": ((), (8, 0), (8.0, 8), 8),
    "indices": (None, [0], np.zeros(1, int), np.ones((2, 4, 6, 4))),
    "initial": ("0", np.ones(2), 1j),
    "reset": ([True], np.ones(3, bool), np.ones(2)),
}


@pytest.mark.parametrize(
    ("call", "parts"), MALFORMED_CALLS, ids=[call for call, _ in MALFORMED_CALLS]
)
def test_error_message(call, parts):
    assert matches_parts(exception_text(call), parts)


ADVICE = re.compile(
    r"`(\w+)` must be (.+?); got .* [Pp]ass ((?:jnp\.asarray\()?\1\b(?!=).*?)(?:, say|(?: or|,? with|, a count) .+)?\.$"
)


@pytest.mark.parametrize("name", sorted(POOLS))
def test_advice_works(name, monkeypatch):
    """An expression of the wrong argument in a hint, such as `where[:, None]`, is accepted in its place."""
    function, failed = POOLS[name].function, []

    def apply_advice(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            arg_name, rule, advice = ADVICE.search(str(error)).groups()
        arguments = inspect.signature(function).bind_partial(*args, **kwargs)
        known = {"numpy": np, "jnp": jnp, arg_name: arguments.arguments[arg_name]}
        try:
            arguments.arguments[arg_name] = eval(advice.replace("(value)", "(0)"), known)
            return function(*arguments.args, **arguments.kwargs)
        except Exception as error:
            # Another rule may be broken in addition.
            if isinstance(error, SyntaxError | NameError | AttributeError) or f"be {rule};" in str(
                error
            ):
                failed.append((advice, error))

    with_advice = [
        call
        for call, _ in MALFORMED_CALLS
        if call.startswith(f"{name}(") and ADVICE.search(exception_text(call))
    ]
    monkeypatch.setitem(NAMESPACE, name, apply_advice)
    for call in with_advice:
        exception_text(call)
    assert not failed


@pytest.mark.parametrize("call", [call for call, _ in MALFORMED_CALLS if ".astype(" not in call])
def test_arrays_may_be_traced(call):
    """No message asks for a static array. With NumPy arrays in a call, jnp arrays under jit are traced too."""
    traced_call = re.sub(r"\bnp\.(zeros|ones|array|full)\(", r"jnp.\1(", call)
    names = [name for name in ("X", "IMAGES", "AT") if re.search(rf"\b{name}\b", call)]
    text = exception_text(f"jax.jit(lambda {', '.join(names)}: {traced_call})({', '.join(names)})")
    static_argument = re.search(r"`(.+)` must be static", text)
    assert static_argument is None or static_argument[1] in STATIC_ARGUMENTS


@pytest.mark.parametrize("name", POOLS)
def test_invalid_argument_values_raise(name):
    pool = POOLS[name]
    arguments = pool.samples()["small"]
    for argument, values in INVALID_VALUES.items():
        for value in values if pool.takes(argument) else ():
            with pytest.raises((TypeError, ValueError)) as caught:
                pool.run(arguments | {argument: value})
            message = str(caught.value)
            assert message.startswith(f"jaxpool.{name}: `{argument}"), (argument, value, message)
