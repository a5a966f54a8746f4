"""Show versions, the backend and its devices, and how each op is computed and differentiated."""

import argparse
import importlib.metadata
import inspect
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import jax

import jaxpool

SUMMARY = "versions, backend, and how each op is computed and differentiated"
PACKAGES = ("jaxpool", "jax", "jaxlib", "numpy")
OPTIONAL = ("flax", "dm-haiku", "equinox", "keras", "optax", "hypothesis")
NOT_OPS = ("accelerate",)
HUGE_PAGES = "glibc.malloc.hugetlb=1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`info` takes no options."""


def implementation(name: str, backend: str) -> str:
    """How `jaxpool.<name>` would be computed on `backend`."""
    return "dense XLA"


def derivatives(function: Callable[..., Any]) -> str:
    """What can be differentiated through `function`, read off its arguments."""
    if "autodiff" in inspect.signature(function).parameters:
        return 'reverse; forward too with autodiff="jvp"'
    return "reverse and forward"


def run(args: argparse.Namespace) -> int:
    """Prints the tables."""
    backend = jax.default_backend()
    _table(
        "versions",
        [("Python", platform.python_version()), *_versions(PACKAGES), *_versions(OPTIONAL)],
    )
    _table(
        "machine",
        [
            ("platform", platform.platform()),
            ("backend", backend),
            ("devices", ", ".join(str(device) for device in jax.devices())),
            ("64-bit types", "on" if jax.config.read("jax_enable_x64") else "off"),
            *_huge_pages(backend),
        ],
    )
    rows = [
        (name, implementation(name, backend), derivatives(getattr(jaxpool, name)))
        for name in jaxpool.__all__
        if name not in NOT_OPS
    ]
    _table("ops: implementation, derivatives", rows)
    return 0


def _versions(packages: tuple[str, ...]) -> list[tuple[str, str]]:
    rows = []
    for package in packages:
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def _huge_pages(backend: str) -> list[tuple[str, str]]:
    """Whether the setting is there that makes large results on Linux CPUs cheaper."""
    if backend != "cpu" or platform.system() != "Linux":
        return []
    if HUGE_PAGES in os.environ.get("GLIBC_TUNABLES", "").split(":"):
        return [("huge pages", "on")]
    return [("huge pages", f"off; GLIBC_TUNABLES={HUGE_PAGES} makes large results faster")]


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    print(title)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())
    print()
