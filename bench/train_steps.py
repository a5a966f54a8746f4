"""Whole training steps: the same net, the same numbers, with lax's pool and with ours."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bench._case import Case
from bench._jax_peer import compile_timed, peak_bytes
from bench._peer import Device, Prepared, Unsupported, Work
from bench.nets import NETS, Pool
from bench.timing import timed_calls

_RATE = 0.01


def prepare(work: Work, implementation: str, device: Device) -> Prepared:
    """A step with plain SGD; the difference is over loss and new state, against lax's own pool."""
    step = make_step(work.case, _max_pool(implementation))
    arguments = work.shared(
        "train", lambda: jax.device_put(_arguments(work), jax.devices(device)[0])
    )
    compiled, compile_s = compile_timed(step, *arguments)
    results = jax.tree.map(np.asarray, compiled(*arguments))
    expected = work.shared("train results", lambda: _lax_results(work, arguments))
    return Prepared(
        timed_calls(lambda: compiled(*arguments), jax.block_until_ready),
        compile_s,
        _difference(results, expected),
        peak_bytes(compiled),
    )


def make_step(case: Case, max_pool: Pool) -> Any:
    """`step(variables, images, labels) -> (loss, variables)`."""
    net = NETS[case.net](max_pool)

    def step(variables: Any, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            scores, state = net.apply(
                {**variables, "params": params}, images, mutable=["batch_stats"]
            )
            right = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1)
            return -right.mean(), state

        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, state), gradient = gradient_of(variables["params"])
        params = jax.tree.map(lambda p, g: p - _RATE * g, variables["params"], gradient)
        return loss, {**variables, **state, "params": params}

    return step


def _max_pool(implementation: str) -> Pool:
    if implementation == "lax":
        return nn.max_pool
    # `jaxpool.accelerate` on lax's own step goes here as a third implementation.
    import jaxpool

    if not hasattr(jaxpool, "max_pool"):
        raise Unsupported("jaxpool has no max_pool yet")
    return jaxpool.max_pool


def _arguments(work: Work) -> tuple[Any, np.ndarray, np.ndarray]:
    images = work.xs[0]
    labels = np.random.default_rng(2).integers(0, 10, images.shape[:1], np.int32)
    net = NETS[work.case.net](nn.max_pool)
    variables = jax.jit(net.init)(jax.random.key(0), images[:1])
    return variables, images, labels


def _lax_results(work: Work, arguments: Any) -> Any:
    results = jax.jit(make_step(work.case, nn.max_pool))(*arguments)
    return jax.tree.map(np.asarray, results)


def _difference(results: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(got - want).max()) for got, want in pairs)
