"""Whole train steps: one net with lax's pools, with jaxpool, and with lax's pools under `jaxpool.accelerate`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from bench._case import TRAIN_STEP, Case
from bench._jax_peer import calls_of, compile_timed, peak_bytes
from bench.oracle import largest_difference
from bench.plain_ways import image_positions, side_by_side, unpooled
from bench.results import Row
from bench.run import Device, Prepared, Work

_KEYS = "rbg"  # compiles in a third of the time of the default PRNG
_RATE = 1.0  # errors of the new weights then equal errors of the gradients
_TOLERANCE = 1e-4  # losses and weights of two correct train steps only differ by rounding

# Nets

# `jaxpool`, or an object with its `max_pool`, `max_pool_with_argmax` and `max_unpool`.
Pools = Any


def max_pool_with_argmax(
    x: jax.Array, window: tuple[int, int], strides: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Flax for the maxima, and an argmax over disjoint 2x2 patches for their positions."""
    assert window == strides == (2, 2)
    b, h, w, c = x.shape
    patches = side_by_side(lax.stop_gradient(x)).transpose(0, 1, 3, 2, 4, 5)
    tap = jnp.argmax(patches.reshape(b, h // 2, w // 2, 4, c), axis=3)
    return nn.max_pool(x, window, strides), image_positions(tap, 2, 2, w)


# The pools in Flax and jax.numpy, as a user without jaxpool would write them.
LAX_POOLS = SimpleNamespace(
    max_pool=nn.max_pool,
    max_pool_with_argmax=max_pool_with_argmax,
    # A scatter. Disjoint patches have unique positions, so it may assume them.
    max_unpool=functools.partial(unpooled, unique=True),
)


class Net(nn.Module):
    """A function of images and pools that returns features, and a dense layer for ten classes."""

    pools: Pools
    features: Callable[[jax.Array, Pools], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(self.features(x, self.pools))


def lenet(x: jax.Array, pools: Pools) -> jax.Array:
    """Two convolutions with ReLU, each with a 2x2 max pool, and dense layers."""
    for features in (6, 16):
        x = nn.relu(nn.Conv(features, (5, 5))(x))
        x = pools.max_pool(x, (2, 2), (2, 2))
    x = x.reshape(x.shape[0], -1)
    for features in (120, 84):
        x = nn.relu(nn.Dense(features)(x))
    return x


def resnet_stem(x: jax.Array, pools: Pools) -> jax.Array:
    """The stem of a ResNet: 7x7 stride 2, batch norm, ReLU, 3x3 stride 2 max pool; then a mean."""
    x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
    x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
    return pools.max_pool(x, (3, 3), (2, 2), "SAME").mean((1, 2))


def inception(x: jax.Array, pools: Pools) -> jax.Array:
    """A stem and two Inception modules, each with a 3x3 stride 1 max pool in one of its branches."""
    x = nn.relu(nn.Conv(32, (3, 3), (2, 2))(x))
    x = pools.max_pool(x, (3, 3), (2, 2), "SAME")
    for width in (32, 48):
        branches = [nn.Conv(width, (1, 1))(x)]
        for reduced, window in ((16, 3), (8, 5)):
            narrow = nn.relu(nn.Conv(reduced, (1, 1))(x))
            branches.append(nn.Conv(width, (window, window))(narrow))
        pooled = pools.max_pool(x, (3, 3), (1, 1), "SAME")
        branches.append(nn.Conv(width, (1, 1))(pooled))
        x = nn.relu(jnp.concatenate(branches, axis=-1))
    return x.mean((1, 2))


def spatial_pyramid(x: jax.Array, pools: Pools) -> jax.Array:
    """A stem and the spatial pyramid pooling of YOLO: max pools of 5, 9 and 13 at stride 1, concatenated with x."""
    for features in (16, 32):
        x = nn.relu(nn.Conv(features, (3, 3), (2, 2))(x))
    levels = [pools.max_pool(x, (window, window), (1, 1), "SAME") for window in (5, 9, 13)]
    x = nn.relu(nn.Conv(64, (1, 1))(jnp.concatenate([x, *levels], axis=-1)))
    return x.mean((1, 2))


def unet(x: jax.Array, pools: Pools) -> jax.Array:
    """Two levels down and up. The unpool of a level uses the positions of the pool of that level."""
    left = []
    for features in (16, 32):
        x = nn.relu(nn.Conv(features, (3, 3))(x))
        pooled, positions = pools.max_pool_with_argmax(x, (2, 2), (2, 2))
        left.append((x, positions))
        x = pooled
    for features in (32, 16):
        x = nn.relu(nn.Conv(features, (3, 3))(x))
        skipped, positions = left.pop()
        x = pools.max_unpool(x, positions, skipped.shape[1:3])
        x = nn.relu(nn.Conv(features, (3, 3))(jnp.concatenate([x, skipped], axis=-1)))
    return x


NETS: dict[str, Callable[[jax.Array, Pools], jax.Array]] = {
    "LeNet": lenet,
    "ResNetStem": resnet_stem,
    "Inception": inception,
    "SpatialPyramid": spatial_pyramid,
    "UNet": unet,
}


# Steps


def prepare(work: Work, implementation: str, device: Device) -> Prepared:
    """A step of SGD. The difference compares loss and new variables with lax's pools."""
    place = jax.devices(device)[0]
    arguments = work.shared(
        "train", lambda: jax.device_put(_arguments(work.case, work.xs[0]), place)
    )
    theirs = work.shared("lax step", lambda: compile_timed(step_of(work.case, "lax"), *arguments))
    compiled, compile_s = theirs
    if implementation != "lax":
        compiled, compile_s = compile_timed(step_of(work.case, implementation), *arguments)
    pairs = zip(
        *(jax.tree.leaves(program(*arguments)) for program in (compiled, theirs[0])), strict=True
    )
    difference = float(np.max([largest_difference(*pair) for pair in pairs]))
    wrong = not difference <= _TOLERANCE
    row = Row(None, compile_s, difference, wrong, peak_bytes(compiled))
    return calls_of(compiled, *arguments, device=device), row


def step_of(case: Case, implementation: str) -> Any:
    """The step with the pools of "lax", "jaxpool" or "accelerate"."""
    if implementation == "lax":
        return _make_step(case, LAX_POOLS)
    import jaxpool  # `bench.against` changes the version

    if implementation == "accelerate":
        return jaxpool.accelerate(_make_step(case, LAX_POOLS))
    return _make_step(case, jaxpool)


def first_step(net: str, images: jax.Array) -> tuple[jax.Array, Any]:
    """One step of the named net with zero weights and labels: the call in the name of a case."""
    case = Case(TRAIN_STEP, images.shape, dtype=str(images.dtype), net=net)
    variables, _, labels = jax.tree.map(jnp.zeros_like, shapes(case))
    return step_of(case, "jaxpool")(variables, images, labels)


def _make_step(case: Case, pools: Pools) -> Any:
    """`step(variables, images, labels) -> (loss, variables)`."""
    net = Net(pools, NETS[case.net])

    def step(variables: Any, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            scores, state = net.apply(
                {**variables, "params": params}, images, mutable=["batch_stats"]
            )
            right = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], axis=-1)
            return -right.mean(), state

        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, state), gradient = gradient_of(variables["params"])
        params = jax.tree.map(lambda p, g: p - _RATE * g, variables["params"], gradient)
        return loss, {**variables, **state, "params": params}

    return step


def _arguments(case: Case, images: Any) -> tuple[Any, Any, np.ndarray]:
    """Variables, images, and one label per image or per pixel, as the net requires."""
    net, key = Net(LAX_POOLS, NETS[case.net]), jax.random.key(0, impl=_KEYS)
    variables = jax.jit(net.init)(key, images[:1])
    *labelled, classes = jax.eval_shape(net.init_with_output, key, images)[0].shape
    return variables, images, np.random.default_rng(2).integers(0, classes, labelled, np.int32)


def shapes(case: Case) -> tuple[Any, Any, Any]:
    """Shapes and dtypes of the arguments of a step."""
    images = jax.ShapeDtypeStruct(case.shape, np.dtype(case.dtype))
    return jax.eval_shape(functools.partial(_arguments, case), images)
