"""Pytest plugin that replaces the tested functions of another library by those of jaxpool."""

from __future__ import annotations

import collections
import functools
import importlib
import os
from typing import Any

import pytest

import jaxpool

# Modules whose names are replaced by those of a module of `compat`.
REPLACED = {
    "flax": ("flax.linen", "flax.linen.pooling", "flax.nnx"),
    "haiku": ("haiku._src.pool",),
    "equinox": ("equinox.nn",),
}
# Reasons of failures without a fault of jaxpool, by a part of the test's name.
KNOWN = {
    "test_roialign_mode_max": (
        "ONNX takes the largest corner times its weight; ours the largest interpolated point"
    ),
}

peer = os.environ["PEER"]
calls: collections.Counter[str] = collections.Counter()


def pytest_configure() -> None:
    for module in map(importlib.import_module, REPLACED.get(peer, ())):
        ours = importlib.import_module(f"jaxpool.compat.{peer}")
        for name in filter(functools.partial(hasattr, module), ours.__all__):
            setattr(module, name, _count_calls(name, getattr(ours, name)))


def _count_calls(name: str, ours: Any) -> Any:
    """Wrap a function or a layer class so that it counts its calls."""
    called = ours.__call__ if isinstance(ours, type) else ours

    @functools.wraps(called)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[f"calls of our {name}"] += 1
        return called(*args, **kwargs)

    if not isinstance(ours, type):
        return call
    if "__call__" in vars(ours):
        ours.__call__ = call
    return ours


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if peer == "jax":
            item.runtest = jaxpool.accelerate(item.runtest, report=_count_reduction)
        for name, reason in KNOWN.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _count_reduction(reduction: Any) -> None:
    calls[f"reductions {reduction.reason or 'taken over'}"] += 1


def pytest_sessionfinish(session: Any) -> None:
    if peer in ("jax", *REPLACED) and not calls:
        session.exitstatus = 99  # no test called jaxpool


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for what, count in calls.most_common():
        terminalreporter.write_line(f"{count:6} {what}")
