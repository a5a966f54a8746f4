"""Whole train steps: one net with lax's pools, with jaxpool, and with lax's pools under `jaxpool.accelerate`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._case import TRAIN_STEP, Case
from bench._jax_peer import calls_of, compile_timed, peak_bytes
from bench.nets import LAX_POOLS, NETS, Net, Pools
from bench.oracle import largest_difference
from bench.results import Row
from bench.run import Device, Prepared, Work

_KEYS = "rbg"  # compiles in a third of the time of the default PRNG
_RATE = 1.0  # errors of the new weights then equal errors of the gradients
_TOLERANCE = 1e-4  # losses and weights of two correct train steps only differ by rounding


def prepare(work: Work, implementation: str, device: Device) -> Prepared:
    """A step of SGD. The difference compares loss and new variables with lax's pools."""
    place = jax.devices(device)[0]
    arguments = work.shared(
        "train", lambda: jax.device_put(_arguments(work.case, work.xs[0]), place)
    )
    lax = work.shared("lax step", lambda: compile_timed(step_of(work.case, "lax"), *arguments))
    compiled, compile_s = lax
    if implementation != "lax":
        compiled, compile_s = compile_timed(step_of(work.case, implementation), *arguments)
    pairs = zip(
        *(jax.tree.leaves(program(*arguments)) for program in (compiled, lax[0])), strict=True
    )
    difference = float(np.max([largest_difference(*pair) for pair in pairs]))
    wrong = not difference <= _TOLERANCE
    return calls_of(compiled, *arguments), Row(
        None, compile_s, difference, wrong, peak_bytes(compiled)
    )


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
