"""Whole training steps: the same net and numbers with lax's pools, with ours, and with lax's
under `jaxpool.accelerate`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._case import TRAIN_STEP, Case
from bench._jax_peer import compile_timed, peak_bytes
from bench._lax_pools import LAX_POOLS
from bench._peer import Device, Prepared, Unsupported, Work
from bench.nets import NETS, Pools
from bench.timing import timed_calls

_KEYS = "rbg"  # compiles in a third of the time of the default
_RATE = 1.0  # new weights then differ by as much as gradients do


def prepare(work: Work, implementation: str, device: Device) -> Prepared:
    """A step with plain SGD; the difference is over loss and new state, against lax's own pools."""
    arguments = work.shared(
        "train", lambda: jax.device_put(_arguments(work), jax.devices(device)[0])
    )

    def compiled_step(implementation: str) -> tuple[Any, float]:
        step = step_of(work.case, implementation)
        return work.shared(f"step {implementation}", lambda: compile_timed(step, *arguments))

    compiled, compile_s = compiled_step(implementation)
    results, expected = (
        jax.tree.map(np.asarray, program(*arguments))
        for program in (compiled, compiled_step("lax")[0])
    )
    return Prepared(
        timed_calls(lambda: compiled(*arguments), jax.block_until_ready),
        compile_s,
        _difference(results, expected),
        peak_bytes(compiled),
    )


def step_of(case: Case, implementation: str) -> Any:
    """The step as "lax", "jaxpool" or "accelerate" computes it."""
    if implementation == "lax":
        return _make_step(case, LAX_POOLS)
    try:
        import jaxpool
    except ImportError as error:
        raise Unsupported(f"jaxpool cannot be imported: {error}") from error
    if implementation == "accelerate":
        return jaxpool.accelerate(_make_step(case, LAX_POOLS))
    ours = (jaxpool.max_pool, jaxpool.max_pool_with_argmax, jaxpool.max_unpool)
    return _make_step(case, Pools(*ours))


def first_step(net: str, images: jax.Array) -> tuple[jax.Array, Any]:
    """The step of a net of its name, of weights and labels that are 0: what the name of a case calls."""
    case = Case(TRAIN_STEP, images.shape, dtype=str(images.dtype), net=net)
    variables, _, labels = jax.tree.map(
        lambda kind: jnp.zeros(kind.shape, kind.dtype), shapes(case)
    )
    loss, new = step_of(case, "jaxpool")(variables, images, labels)
    return loss, new


def _make_step(case: Case, pools: Pools) -> Any:
    """`step(variables, images, labels) -> (loss, variables)`."""
    net = NETS[case.net](pools)

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


def _arguments(work: Work) -> tuple[Any, np.ndarray, np.ndarray]:
    """Weights, images, and a label for each thing the net scores: an image, or a pixel of it."""
    images = work.xs[0]
    init = jax.jit(NETS[work.case.net](LAX_POOLS).init)
    variables = init(jax.random.key(0, impl=_KEYS), images[:1])
    *labelled, classes = _initialised(work.case)[0].shape
    return variables, images, np.random.default_rng(2).integers(0, classes, labelled, np.int32)


def shapes(case: Case) -> tuple[Any, Any, Any]:
    """The shapes and types of the arguments of a step."""
    images = jax.ShapeDtypeStruct(case.shape, np.dtype(case.dtype))
    scores, variables = _initialised(case)
    return variables, images, jax.ShapeDtypeStruct(scores.shape[:-1], np.dtype(np.int32))


def _initialised(case: Case) -> tuple[Any, Any]:
    """What the net scores, and its variables, as shapes and types."""
    net = NETS[case.net](LAX_POOLS)
    images = jax.ShapeDtypeStruct(case.shape, np.dtype(case.dtype))
    key = jax.eval_shape(lambda: jax.random.key(0, impl=_KEYS))
    return jax.eval_shape(net.init_with_output, key, images)


def _difference(results: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(got - want).max()) for got, want in pairs)
