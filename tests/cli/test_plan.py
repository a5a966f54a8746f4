"""`python -m jaxpool info --plan CALL`: parsing of the call, and the printed plan."""

import json
import math

import jax
import jax.numpy as jnp
import pytest

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli._call import parse_call


def loss(weights, x):
    """Example of a function of a user's module."""
    return (jaxpool.max_pool(x * weights["scale"], (2, 2), (2, 2)) ** 2).sum()


def plan_stdout(capsys, call, *more):
    assert main(["info", "--plan", call, *more]) == 0
    return capsys.readouterr().out


def error_message(capsys, call):
    assert main(["info", "--plan", call]) == 2
    return capsys.readouterr().err


def test_call_prints_plan_of_output(capsys):
    x = jax.ShapeDtypeStruct((8, 40, 40, 128), jnp.float32)
    plans = jaxpool.plan_of(jaxpool.max_pool)(x, (13, 13), padding="SAME")
    text = 'max_pool(float32[8,40,40,128], (13, 13), padding="SAME")'
    assert plan_stdout(capsys, text) == f"{plans}\n"
    assert plan_stdout(capsys, f"jaxpool.{text}") == f"{plans}\n"


def test_as_json(capsys):
    (row,) = json.loads(plan_stdout(capsys, "max_pool(bfloat16[8,40,40,128], [13, 13])", "--json"))
    assert row["inputs"] == ["bfloat16[8,40,40,128]"]
    assert row["output"] == "bfloat16[8,28,28,128]"
    assert (row["kept"], row["kept_bytes"]) == (["uint8[8,28,28,128]"], 802816)
    x = jax.ShapeDtypeStruct((8, 40, 40, 128), jnp.bfloat16)
    (plan,) = jaxpool.plan_of(jaxpool.max_pool)(x, (13, 13))
    axes = [tuple(each["axes"]) for each in row["passes"]["gpu"]["forward"]]
    assert axes == [each.axes for each in plan.passes["gpu"].forward]
    assert row["passes"]["tpu"]["value"][0]["how"] == "reduce_window_max"


def test_argument_syntax():
    call = "lp_pool(float32[2,b,8,2*c+2], float32[c], (2, [3]), {'a': -1.5}, None, key, [-inf], y=True)"
    function, args, kwargs = parse_call(call)
    assert function is jaxpool.lp_pool
    assert kwargs == {"y": True}
    x, p, *rest, key, infinite = args
    assert str(x.shape) == "(2, b, 8, 2*c + 2)"
    assert x.shape[3] == 2 * p.shape[0] + 2
    assert rest == [(2, [3]), {"a": -1.5}, None]
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    assert infinite == [-math.inf]


@pytest.mark.parametrize(
    "call",
    [
        f"max_pool(float32[{'-' * 5000}8,8,3], (2, 2))",
        f"max_pool(float32[8,8,3], {'-' * 5000}2)",
        f"max_pool(float32[8,8,3], {'~' * 500}2)",
        f"max_pool(float32[8,8,3], {'(' * 500}2{')' * 500})",
        f"max_pool(float32[8,8,3], {'[' * 150}2{']' * 150})",
        f"max_pool(float32[{'9' * 5000},8,3], (2, 2))",
        "max_pool(\0float32[8,8,3], (2, 2))",
        "max_pool(\udcfffloat32[8,8,3], (2, 2))",  # a byte that is not UTF-8
    ],
)
def test_extreme_text_prints_one_line(call, capsys):
    message = error_message(capsys, call)
    assert message.startswith("jaxpool info: ")
    assert (message.count("\n"), len(message) < 1000) == (1, True)


def test_scalar_type():
    _, (x, scalar), _ = parse_call("gem_pool(float32[1,8,8,3], float32[ ])")
    assert (x.shape, scalar.shape) == ((1, 8, 8, 3), ())


@pytest.mark.parametrize(
    "call",
    [
        "lp_pool(float32[16,128,128,32], 2, (2, 2), (2, 2))",
        "stochastic_pool(key, float32[2,8,8,3], (2, 2), (2, 2))",
        "max_unpool(float32[1,4,4,2], int32[1,4,4,2], (8, 8))",
        "global_avg_pool(float32[b,7,7,8])",
        "roi_align(float32[2,50,50,256], float32[512,4], 7, batch_indices=int32[512])",
        "compat.torch.max_pool2d(float32[2,3,8,8], 2)",
        "jaxpool.compat.torch:max_pool2d(float32[2,3,8,8], 2)",
    ],
)
def test_every_kind_of_call_is_printed(call, capsys):
    assert "\n  keeps       " in plan_stdout(capsys, call)


def widened(x):
    return jaxpool.max_pool(x * jnp.ones(()), (2,), axes=(0,))


def test_float64_arrays_enable_x64(capsys):
    call = "tests.cli.test_plan:widened(int32[64])"
    assert "max_pool of float32[64] to" in plan_stdout(capsys, call)
    assert "max_pool of float64[64] to" in plan_stdout(capsys, call.replace("int32", "float64"))


def test_user_function(capsys):
    text = plan_stdout(capsys, "tests.cli.test_plan:loss({'scale': float32[3]}, float32[2,8,8,3])")
    assert "test_plan.py:" in text
    assert "(loss): max_pool of float32[2,8,8,3] to float32[2,4,4,3]" in text
    assert plan_stdout(capsys, "math:hypot(3, 4)") == "no pool of jaxpool\n"


def multiplies_wrong_shapes(x):
    return (x * 2) @ jnp.ones(3)


def pools_too_much(x):
    return jaxpool.max_pool(x, (9, 9))


@pytest.mark.parametrize(
    ("function", "start"),
    [
        (multiplies_wrong_shapes, "dot_general requires "),
        (pools_too_much, "jaxpool.max_pool: `window_shape` "),
    ],
)
def test_user_function_error_names_line(function, start, capsys):
    message = error_message(capsys, f"tests.cli.test_plan:{function.__name__}(float32[1,8,8,1])")
    place = f"test_plan.py:{function.__code__.co_firstlineno + 1} ({function.__name__})"
    assert message.startswith(f"jaxpool info: {place}: {start}")
