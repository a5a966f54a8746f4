"""Parts of error messages: the function, the values, and hints that need more than a row of `bad_calls.txt`."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
import jaxpool.compat.torch
import jaxpool.compat.torchvision
from jaxpool._arguments.calls import ARGUMENT_SYNONYMS
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import MAX_SHOWN_CHARS, ArgumentError, name_function_in_errors
from jaxpool.testing import pools

X = np.zeros((1, 4, 4, 1), np.float32)


def error_message(call, *args, **kwargs):
    """Message of the error that a call raises."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_argument_error_is_raised_without_context():
    message = r"^jaxpool.f: `a` must be b; got a='c' \(d=1, e=2\). Do g.$"
    with (
        pytest.raises(TypeError, match=message) as caught,
        name_function_in_errors("f", d=1, e=2),
    ):
        raise ArgumentError("a", "b", "c", "Do g.", TypeError)
    assert caught.value.__suppress_context__
    with pytest.raises(KeyError), name_function_in_errors("f"):
        raise KeyError("others pass")


@pytest.mark.parametrize("name", pools())
def test_hint_for_names_of_other_libraries(name):
    """Each synonym of an argument, where the function has no argument of that name."""
    parameters = pools()[name].parameters
    for ours, theirs in ARGUMENT_SYNONYMS:
        (meant, *_) = [each for each in ours if each in parameters] or [None]
        for word in set(theirs) - set(parameters) if meant else ():
            message = error_message(getattr(jaxpool, name), X, **{word: 2})
            assert re.match(
                rf"jaxpool.{name}: there is no argument `{word}`. Did you mean `", message
            )
            assert message.split("`")[-2] in ours


MASKS = [
    (name, argument)
    for name, pool in pools().items()
    for argument in ("where", "reset")
    if pool.takes(argument)
]


@pytest.mark.parametrize("shape_of_x", [(2, 5, 6, 4), (2, 5, 5, 4), (4, 5, 5, 1)])
@pytest.mark.parametrize(("name", "argument"), MASKS)
def test_hint_for_a_mask_of_other_axes(name, argument, shape_of_x):
    """The test runs the code in the hint for a transposed mask. A mask in the shape of the output has another hint."""
    pool = pools()[name]
    given = pool.given(np.zeros(shape_of_x, np.float32))
    given |= {"initial": 0.0} if pool.takes("initial") else {}
    shape = given["x"].shape
    mask = np.random.default_rng(0).integers(0, 2, shape) > 0
    for order in itertools.permutations(range(len(shape))):
        transposed = mask.transpose(order)
        if transposed.shape != shape:
            message = error_message(pool.run, given | {argument: transposed})
            hint = message.rpartition("of x: pass ")[2].removesuffix(".").partition(";")[0]
            aligned = [eval(code, {argument: transposed}) for code in hint.split(" or ")]
            assert all(each.shape == shape for each in aligned)
            assert any(np.array_equal(each, mask) for each in aligned)
    output = jax.tree.leaves(pool.run(given))[0]
    if output.shape not in ((), shape):
        message = error_message(pool.run, given | {argument: output > 0})
        assert message.endswith("It has the shape of the output. Pass a mask of the elements of x.")


LAYERS = [
    getattr(module, name)
    for module in (jaxpool.compat.torch, jaxpool.compat.torchvision)
    for name in module.__all__
    if isinstance(getattr(module, name), type)
]


@pytest.mark.parametrize("layer", [*LAYERS, type("Mine", (jaxpool.compat.torch.MaxPool2d,), {})])
def test_layer_names_unknown_argument(layer):
    message = error_message(layer, kernel=1)
    public_class = layer if layer in LAYERS else layer.__base__
    module = public_class.__module__.replace("_torch_layers", "torch")
    assert message.startswith(f"{module}.{public_class.__name__}: there is no argument `kernel`.")


@pytest.mark.parametrize("transform", [jax.jit, jax.grad])
def test_message_under_transformations(transform):
    message = error_message(transform(lambda x: jaxpool.max_pool(x, (2, 2), (0, 1)).sum()), X)
    assert message.startswith(
        "jaxpool.max_pool: `strides` must be an int or 2 ints of at least 1, one per pooled axis; "
        "got strides=(0, 1) (x.shape=(1, 4, 4, 1), window_shape=(2, 2)). Pass a tuple such as (2, 2)."
    )


def test_long_value_is_truncated():
    message = error_message(jaxpool.max_pool, [[0.0] * 5000] * 4, (2, 2))
    shown = repr([[0.0] * 100])[: MAX_SHOWN_CHARS - 1] + "…"
    assert message == (
        f"jaxpool.max_pool: `x` must be an array; got x={shown} (window_shape=(2, 2)). Pass jnp.asarray(x)."
    )


def test_value_with_failing_repr_is_shown_by_type():
    class Silent:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.raises(TypeError, match=r"; got a=<Silent>\. Do\.$"), name_function_in_errors("f"):
        raise ArgumentError("a", "b", Silent(), "Do.", TypeError)
    assert "; got window_shape=<int> (x" in error_message(
        jaxpool.max_pool, X, 10**5000, axes=(1, 2)
    )


def test_value_is_shown_once():
    message = error_message(jaxpool.max_pool, X, (2, 2), jnp.ones(2))
    assert message.count("strides=") == message.count("window_shape=") == 1


def test_message_includes_the_public_module():
    def pool(x):
        return x

    pool.__module__ = "jaxpool.sharded._pool"
    assert error_message(public(pool), X, stride=2) == (
        "jaxpool.sharded.pool: there is no argument `stride`. It takes x."
    )


def test_type_error_of_user_function_is_unchanged():
    def fails(*args):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        jaxpool.accelerate(fails)(X)


@pytest.mark.parametrize("name", ["max_pool_with_argmax", "cummax", "maximum"])
def test_forward_mode_error_names_autodiff(name):
    pool = pools()[name].of()
    message = error_message(lambda: jax.jvp(pool, (X,), (X,)))
    assert message.startswith(f"jaxpool.{name}: `autodiff` must be 'jvp' for forward-mode")
    assert message.endswith('. Pass autodiff="jvp".')


def test_static_arguments():
    pool = jax.jit(jaxpool.max_pool, static_argnums=1, static_argnames="strides")
    assert pool(X, (2, 2), strides=2).shape == (1, 2, 2, 1)


# Tensors of other libraries


class EagerTensor:
    """A class with TensorFlow's module name and repr."""

    __module__ = "tensorflow.python.framework.ops"

    def numpy(self):
        return X

    def __repr__(self):
        return "<tf.Tensor: shape=(1, 4, 4, 1), dtype=float32, numpy=...>"


def test_tensorflow_tensor_message():
    message = error_message(jaxpool.maximum, X, EagerTensor())
    assert message.startswith(
        "jaxpool.maximum: `xs[1]` must be an array or a number; "
        "got xs[1] of type tensorflow.EagerTensor"
    )
    assert message.endswith(" Pass jnp.asarray(xs[1].numpy()).")


def test_pytorch_tensor_message():
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 4, 4, 1)
    assert error_message(jaxpool.max_pool, x, (2, 2)) == (
        "jaxpool.max_pool: `x` must be an array; got x of type torch.Tensor (window_shape=(2, 2)). "
        "Pass jnp.asarray(x.numpy())."
    )
    assert "got x=[torch.float32[1, 4, 4, 1]]" in error_message(jaxpool.max_pool, [x], (2, 2))
    assert jaxpool.max_pool(jnp.asarray(x.numpy()), (2, 2)).shape == (1, 3, 3, 1)
    assert error_message(jaxpool.max_pool, x.requires_grad_(), (2, 2)).endswith(
        " Pass jnp.asarray(x.detach().numpy())."
    )
