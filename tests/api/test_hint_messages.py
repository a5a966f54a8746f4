"""Common mistakes of users of other libraries, and the hints in the messages."""

import functools
import inspect
import operator
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors

X = np.zeros((1, 4, 4, 1), np.float32)
SHAPE = "x.shape=(1, 4, 4, 1)"
FULL = "and strides and padding alike. jaxpool.compat.haiku takes windows of full rank."
STATIC = (
    "It is traced, as an argument of a function under jax.jit is: name that argument in "
    "static_argnums or static_argnames, or close over a Python value."
)
POOL = functools.partial(jaxpool.max_pool, X)


def said(call, *args, **kwargs):
    """Message of the error that a call raises."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("x", "window", "advice"),
    [
        (X, (1, 2, 2, 1), "(2, 2)"),
        (X, np.array([1, 2, 2, 1]), "(2, 2)"),
        (X[0], (2, 2, 1), "(2, 2)"),
        (X, (1, 1, 2, 2), "(2, 2) with axes=(2, 3)"),
        (X, [1, 1, 3, 1], "(3,)"),
        (X[0], (1, 2, 2, 1), "(2, 2)"),
        (X[0], (1, 1, 2, 2), "(2, 2) with axes=(1, 2)"),
        (X[0, :, 0], (1, 2, 1), "(2,)"),
    ],
)
def test_a_window_of_full_rank(x, window, advice):
    message = said(jaxpool.max_pool, x, window)
    assert message.endswith(f" Windows list pooled axes alone: pass {advice}, {FULL}")
    assert f"got x.ndim={x.ndim} (x.shape={x.shape}, window_shape=" in message


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5,), (0,)), ((5, 5), (0,)), ((5, 5, 5), (1,)), ((5,) * 4, (1, 2)), ((5,) * 5, (1, 2, 3))],
)
def test_axes_that_an_array_of_this_rank_has(shape, axes):
    x = np.zeros(shape, np.float32)
    assert said(jaxpool.max_pool, x, 2).endswith(f" Pass axes={axes}, say.")
    assert said(jaxpool.max_pool, x, 2, axes=1).endswith(f" Pass a tuple such as {axes}.")
    assert jaxpool.max_pool(x, 2, axes=axes).ndim == x.ndim
    assert said(jaxpool.max_pool, np.float32(1), 2).endswith(" Pass an array with axes.")


@pytest.mark.parametrize("word", ["SAME", "VALID", "same"])
def test_padding_in_the_place_of_strides(word):
    message = said(jaxpool.max_pool, X, (2, 2), word)
    assert f"got strides={word!r} ({SHAPE}" in message
    assert message.endswith(f" Pass padding={word.upper()!r} by name.")


def test_low_and_high_padding_of_one_axis():
    x = np.ones((4, 1), np.float32)
    message = said(jaxpool.max_pool, x, (7,), padding=(6, 0))
    assert message.endswith(" Pass ((6, 0),) for low and high padding of one axis.")
    assert jaxpool.max_pool(x, (7,), padding=((6, 0),)).shape == (4, 1)


def test_the_window_that_is_advised_is_taken_and_haiku_s_too():
    haiku = pytest.importorskip("jaxpool.compat.haiku", exc_type=ImportError)
    np.testing.assert_array_equal(
        jaxpool.max_pool(X, (2, 2), (2, 2)), haiku.max_pool(X, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    )


def test_images_that_look_channels_first():
    message = said(jaxpool.max_pool, np.zeros((8, 3, 32, 32)), (5, 5))
    assert message == (
        "jaxpool.max_pool: `window_shape` must be at most the padded input, 3 along axis 1 (it "
        "spans 5); got window_shape=(5, 5) (x.shape=(8, 3, 32, 32)). Use a smaller window or more "
        "padding. If x is channels first, pass axes=(2, 3)."
    )


@pytest.mark.parametrize(
    ("argument", "rule", "traced"),
    [
        (
            "window_shape",
            "an int or 2 ints of at least 1, one per pooled axis",
            "(traced int32[], traced int32[])",
        ),
        ("strides", "an int or 2 ints of at least 1, one per pooled axis", "traced int32[]"),
        ("ceil_mode", "True or False", "traced bool[]"),
        ("axes", "distinct ints from -4 to 3", "[traced int32[], 2]"),
    ],
)
def test_what_is_traced_must_be_static(argument, rule, traced):
    value = {"(": (2, 2), "[": 1}.get(traced[0], "bool" in traced or 1)

    def pool(value):
        value = [value, 2] if argument == "axes" else value
        return jaxpool.max_pool(X, **{"window_shape": (2, 2), argument: value})

    context = SHAPE if argument == "window_shape" else f"{SHAPE}, window_shape=(2, 2)"
    assert said(jax.jit(pool), value) == (
        f"jaxpool.max_pool: `{argument}` must be static, {rule}; got {argument}={traced} "
        f"({context}). {STATIC}"
    )


def test_what_is_told_of_static_arguments_works():
    pool = jax.jit(jaxpool.max_pool, static_argnums=1, static_argnames="strides")
    assert pool(X, (2, 2), strides=2).shape == (1, 2, 2, 1)


def test_a_list_of_traced_numbers_in_place_of_an_array_is_told_to_be_an_array():
    message = said(jax.jit(lambda x: jaxpool.max([x, x])), 1.0)
    assert message == (
        "jaxpool.max: `x` must be an array; got x=[traced float32[], traced float32[]]. "
        "Pass jnp.asarray(x)."
    )


@pytest.mark.parametrize("ints", [np.array, list, tuple])
def test_sizes_in_an_array_of_numpy(ints):
    y = jaxpool.max_pool(X, ints([2, 2]), ints([2, 2]), ints([0, 0]), axes=ints([1, 2]))
    assert y.shape == (1, 2, 2, 1)
    assert jaxpool.adaptive_avg_pool(X, ints([2, 2])).shape == (1, 2, 2, 1)
    assert jaxpool.spatial_pyramid_pool(X, ints([1, 2])).shape == (1, 5)


FORWARD_MODES = {
    "jvp": lambda f: jax.jvp(f, (X,), (X,)),
    "jacfwd": lambda f: jax.jacfwd(f)(X),
    "jvp of vmap": lambda f: jax.jvp(jax.vmap(f), (X[None],), (X[None],)),
    "vmap of jvp": lambda f: jax.vmap(lambda x: jax.jvp(f, (x,), (x,)))(X[None]),
}


@pytest.mark.parametrize("mode", FORWARD_MODES)
@pytest.mark.parametrize("name", ["max_pool", "max_pool_with_argmax", "cummax", "maximum"])
def test_forward_mode_through_the_default_names_the_argument_that_allows_it(name, mode):
    args = {"cummax": (1,), "maximum": (X,)}.get(name, ((2, 2),))

    def pool(x, **how):
        return jax.tree.leaves(getattr(jaxpool, name)(x, *args, **how))[0]

    message = said(FORWARD_MODES[mode], pool)
    assert message.startswith(
        f"jaxpool.{name}: `autodiff` must be 'jvp' for forward-mode derivatives, those of jax.jvp, "
        "jax.linearize and jax.jacfwd; got autodiff='vjp'"
    )
    assert message.endswith('. Pass autodiff="jvp".')
    FORWARD_MODES[mode](functools.partial(pool, autodiff="jvp"))


ORDER = "x, window_shape, strides, padding"
CALLS = {
    "jaxpool.max_pool: there is no argument `kernel_size`. Did you mean `window_shape`?": (
        lambda: POOL(kernel_size=(2, 2))
    ),
    "jaxpool.max_pool: there is no argument `stride`. Did you mean `strides`?": (
        lambda: POOL((2, 2), stride=2)
    ),
    "jaxpool.max_pool: there is no argument `dilation`. Did you mean `window_dilation`?": (
        lambda: POOL((2, 2), dilation=2)
    ),
    "jaxpool.max_pool: there is no argument `paddin`. Did you mean `padding`?": (
        lambda: POOL((2, 2), paddin=2)
    ),
    "jaxpool.max: there is no argument `dim`. Did you mean `axis`?": lambda: jaxpool.max(X, dim=1),
    "jaxpool.fmax: there is no argument `out`. It takes x, y, ties, autodiff.": (
        lambda: jaxpool.fmax(X, X, out=X)
    ),
    "jaxpool.maximum: there is no argument `axis`. It takes xs, ties, autodiff.": (
        lambda: jaxpool.maximum(X, X, axis=0)
    ),
    f"jaxpool.max_pool: `window_shape` must be given; it is missing. The order is {ORDER}.": POOL,
    f"jaxpool.max_pool: `x` must be given; it is missing. The order is {ORDER}.": (
        lambda: jaxpool.max_pool(window_shape=2)
    ),
    f"jaxpool.max_pool: `x` must be given once; got it by its place and by its name. The order is {ORDER}.": (
        lambda: POOL((2, 2), x=X)
    ),
    "jaxpool.max_pool: at most 4 arguments go by their place; got 5. "
    "Pass window_dilation, ceil_mode, axes, where, ties, autodiff by name.": (
        lambda: POOL((2, 2), 2, "SAME", 1)
    ),
}


@pytest.mark.parametrize("message", CALLS)
def test_calls_that_do_not_match_the_signature(message):
    assert said(CALLS[message]) == message


def test_a_type_error_from_inside_is_left_as_it_is():
    def fails(*args):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        jaxpool.accelerate(fails)(X)


def test_functions_keep_name_signature_and_pickle():
    for name in set(jaxpool.__all__) - {"keep_memory"}:
        function = getattr(jaxpool, name)
        assert function.__name__ == name
        assert re.match(r"jaxpool\._(api|accelerate)\.", function.__module__)
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
        assert pickle.loads(pickle.dumps(function)) is function


def test_a_value_whose_repr_fails_is_named_by_its_type():
    class Silent:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.raises(TypeError, match=r"; got a=<Silent>\. Do\.$"), name_function_in_errors("f"):
        raise ArgumentError("a", "b", Silent(), "Do.", TypeError)
    assert "; got window_shape=<int> (x" in said(POOL, 10**5000, axes=(1, 2))


def test_what_was_shown_is_not_said_twice():
    message = said(POOL, (2, 2), jnp.ones(2))
    assert message.count("strides=") == message.count("window_shape=") == 1


def test_functions_of_public_modules_are_named_with_them():
    def pool(x):
        return x

    pool.__module__ = "jaxpool.sharded._pool"
    assert said(public(pool), X, stride=2) == (
        "jaxpool.sharded.pool: there is no argument `stride`. It takes x."
    )


@pytest.mark.parametrize(
    ("function", "name", "hint"),
    [
        *(
            ("max_pool", name, "Did you mean `window_shape`?")
            for name in ("kernel_size", "pool_size", "window", "size", "kernel")
        ),
        ("max_pool", "stridse", "Did you mean `strides`?"),
        ("max_pool", "dim", "Did you mean `axes`?"),
        ("max_pool", "channels_last", "Did you mean `axes`?"),
        ("max_pool", "ceil", "Did you mean `ceil_mode`?"),
        ("max_pool", "mask", "Did you mean `where`?"),
        ("maxout", "mask", "It takes x, "),
        ("max_pool", "return_indices", "jaxpool.max_pool_with_argmax gives the positions too."),
        ("global_max_pool", "mask", "Did you mean `where`?"),
        ("max", "keepdim", "Did you mean `keepdims`?"),
        ("avg_pool", "count_pad", "Did you mean `count_include_pad`?"),
        ("avg_pool", "ties", "It takes x, "),
        ("roi_align", "sampling_ratio", "Did you mean `samples`?"),
        ("roi_align", "output_size", "Did you mean `output_shape`?"),
        ("roi_align", "rois", "Did you mean `boxes`?"),
        ("roi_align", "box_indices", "Did you mean `batch_indices`?"),
        ("segment_max", "dim_size", "Did you mean `num_segments`?"),
        ("segment_max", "index", "Did you mean `segment_ids`?"),
        ("segment_max", "src", "Did you mean `x`?"),
        ("segment_max", "is_sorted", "Did you mean `indices_are_sorted`?"),
        ("fractional_max_pool", "output_ratio", "Did you mean `output_shape`?"),
        ("fractional_max_pool", "output_size", "Did you mean `output_shape`?"),
        ("compat.torchvision.roi_align", "samples", "Did you mean `sampling_ratio`?"),
        ("compat.torch.max_pool2d", "window_shape", "Did you mean `kernel_size`?"),
        ("compat.torch.max_pool2d", "strides", "Did you mean `stride`?"),
        ("compat.torch.adaptive_avg_pool1d", "output_shape", "Did you mean `output_size`?"),
    ],
)
def test_words_of_other_libraries_and_no_guesses(function, name, hint):
    message = said(operator.attrgetter(function)(jaxpool), X, **{name: 2})
    assert message.startswith(f"jaxpool.{function}: there is no argument `{name}`. {hint}")


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_bools_from_episode_ids_and_lengths(dtype):
    """`ids != 0` would start an episode at every step of episode 1, and `lengths != 0` would select whole sequences."""
    ids, lengths = np.array([0, 0, 1, 1], dtype), np.array([2, 4], dtype)
    assert said(jaxpool.cummax, np.ones(4), reset=ids).endswith(
        " For episode ids pass jnp.diff(ids, prepend=ids[:1] - 1) != 0, for flags reset != 0."
    )
    assert said(jaxpool.max, np.ones((2, 4)), axis=1, where=lengths).endswith(
        " For lengths pass jnp.arange(T) < lengths[:, None], for flags where != 0."
    )
    assert said(jaxpool.max, np.ones(2), where=np.ones(2)).endswith(" Pass where != 0.")
    starts = jnp.diff(ids, prepend=ids[:1] - 1) != 0
    np.testing.assert_array_equal(starts, [True, False, True, False])


@pytest.mark.parametrize(
    ("mask", "shape", "advice"),
    [
        ((24,), (24, 8), "Pass where[..., None]."),
        ((2,), (2, 3, 4), "Pass where[..., None, None]."),
        ((2, 3), (2, 3, 4), "Pass where[..., None]."),
        ((5,), (2, 3), "Reshape it first."),
        ((2, 3, 1), (2, 3), "Reshape it first."),
    ],
)
def test_a_mask_that_lacks_the_last_axes(mask, shape, advice):
    message = said(jaxpool.max, np.ones(shape), where=np.ones(mask, bool))
    assert message.endswith(f"(x.shape={shape}). {advice}")


class EagerTensor:
    """A class with TensorFlow's module name and repr."""

    __module__ = "tensorflow.python.framework.ops"

    def numpy(self):
        return X

    def __repr__(self):
        return "<tf.Tensor: shape=(1, 4, 4, 1), dtype=float32, numpy=...>"


TENSOR_CALLS = {
    "max_pool: `x` must be an array": lambda x: jaxpool.max_pool(x, (2, 2)),
    "maximum: `xs[1]` must be an array or a number": lambda x: jaxpool.maximum(X, x),
    "max: `where` must be an array of bools": lambda x: jaxpool.max(X, where=x),
    "segment_max: `segment_ids` must be an array of integers": lambda x: jaxpool.segment_max(X, x),
    "roi_align: `boxes` must be an array": lambda x: jaxpool.roi_align(X, x, 2),
}


@pytest.mark.parametrize("start", TENSOR_CALLS)
def test_tensors_of_other_libraries(start):
    argument = start.split("`")[1]
    said_of = TENSOR_CALLS[start]
    got = f"; got {argument} of type tensorflow.EagerTensor"
    message = said(said_of, EagerTensor())
    assert message.startswith(f"jaxpool.{start}{got}")
    assert message.endswith(f" Pass jnp.asarray({argument}.numpy()).")
    assert "tf.Tensor" not in message


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 4, 4, 1)
    assert said(jaxpool.max_pool, x, (2, 2)) == (
        "jaxpool.max_pool: `x` must be an array; got x of type torch.Tensor (window_shape=(2, 2)). "
        "Pass jnp.asarray(x.numpy())."
    )
    assert jaxpool.max_pool(jnp.asarray(x.numpy()), (2, 2)).shape == (1, 3, 3, 1)
    assert said(jaxpool.max_pool, x.requires_grad_(), (2, 2)).endswith(
        " Pass jnp.asarray(x.detach().numpy())."
    )


@pytest.mark.parametrize(
    "x", [None, "x", {}, jax.ShapeDtypeStruct((2, 2), np.float32), [[1], [1, 2]]], ids=repr
)
def test_what_no_conversion_makes_an_array(x):
    assert said(jaxpool.max_pool, x, (2, 2)).endswith(" Pass an array of jax or NumPy.")


def test_a_dict_of_features():
    features = {"p2": X, "p3": X}
    assert said(jaxpool.multilevel_roi_align, features, np.ones((1, 4)), 2) == (
        "jaxpool.multilevel_roi_align: `features` must be a list or a tuple of arrays, one for each "
        "level; got a dict of 'p2', 'p3' (boxes.shape=(1, 4), output_shape=2). Pass a list ordered from fine to coarse."
    )


def test_an_unpooled_shape_of_full_rank():
    at = np.zeros((1, 2, 2, 1), np.int32)
    assert said(jaxpool.max_unpool, np.zeros(at.shape), at, (1, 8, 8, 1)) == (
        "jaxpool.max_unpool: `spatial_shape` must be the sizes of unpooled axes alone; got "
        "spatial_shape=(1, 8, 8, 1) (y.shape=(1, 2, 2, 1)). Pass (8, 8)."
    )


def test_an_unpooled_shape_of_full_rank_with_axes():
    at = np.zeros((1, 1, 2, 2), np.int32)
    assert said(jaxpool.max_unpool, at, at, (1, 1, 8, 9), axes=(2, 3)) == (
        "jaxpool.max_unpool: `spatial_shape` must be the sizes of unpooled axes alone; got "
        "spatial_shape=(1, 1, 8, 9) (y.shape=(1, 1, 2, 2)). Pass (8, 9)."
    )
    assert jaxpool.max_unpool(at, at, (1, 1, 8, 9), axes=(0, 1, 2, 3)).shape == (1, 1, 8, 9)


def test_indices_and_sizes_that_have_changed_places():
    at = np.zeros((1, 2, 2, 1), np.int32)
    assert said(jaxpool.max_unpool, at, (4, 4), at) == (
        "jaxpool.max_unpool: `indices` must come before `spatial_shape`; got them the other way round. "
        "The order is y, indices, spatial_shape."
    )
