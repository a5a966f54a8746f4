"""Show versions, the backend and its devices, and how each function is differentiated.

With --plan CALL, show how each pool of a call is computed on each platform, and what is saved for the backward pass,
like jaxpool.plan_of. An array is written as its dtype and shape. CALL may name a function of your own module:

  --plan "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')"
  --plan "model:loss({'w': float32[3,3]}, float32[batch,28,28,1])"
"""

import argparse
import importlib.metadata
import inspect
import json
import os
import platform
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

SHOWN_PACKAGES = (
    *("jaxpool", "jax", "jaxlib", "numpy"),
    *("flax", "dm-haiku", "equinox", "keras", "optax", "hypothesis"),  # optional
)
HUGE_PAGES_TUNABLE = "glibc.malloc.hugetlb=1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `info`."""
    parser.add_argument("--plan", metavar="CALL", help="how one call is computed, and what is kept")
    parser.add_argument("--json", action="store_true", help="print it for programs to read")


def differentiation_modes(function: Callable[..., Any]) -> str:
    """The differentiation modes of `function`, from its signature."""
    if "autodiff" in inspect.signature(function).parameters:
        return 'reverse; forward too with autodiff="jvp"'
    return "reverse and forward"


def run(args: argparse.Namespace) -> int:
    """Print the tables, or the plan of one call."""
    import jax

    from jaxpool.testing import pools

    if args.plan is not None:
        from jaxpool._cli import _plan

        plans = _plan.trace_plans(args.plan)
        print(_plan.plans_as_json(plans) if args.json else plans)
        return 0
    tables = {
        "versions": {"Python": platform.python_version(), **_versions(SHOWN_PACKAGES)},
        "machine": {
            "platform": platform.platform(),
            "backend": jax.default_backend(),
            "devices": ", ".join(str(device) for device in jax.devices()),
            "64-bit types": "on" if jax.config.read("jax_enable_x64") else "off",
            **_huge_pages_row(),
        },
    }
    functions = {name: differentiation_modes(pool.function) for name, pool in pools().items()}
    if args.json:
        print(json.dumps({**tables, "functions": functions}))
        return 0
    for title, table in tables.items():
        width = max(map(len, table))
        print(title, *(f"  {name:{width}}  {value}" for name, value in table.items()), "", sep="\n")
    print("functions, and how each is differentiated; how one is computed, --plan CALL tells")
    for modes in dict.fromkeys(functions.values()):
        print(f"  {modes}")
        names = ", ".join(name for name in functions if functions[name] == modes)
        print(textwrap.fill(names, 100, initial_indent="    ", subsequent_indent="    "))
    return 0


def _versions(packages: Iterable[str]) -> dict[str, str]:
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _huge_pages_row() -> dict[str, str]:
    """On Linux: whether glibc uses huge pages, which make large results on CPUs cheaper."""
    if platform.system() != "Linux":
        return {}
    if HUGE_PAGES_TUNABLE in os.environ.get("GLIBC_TUNABLES", "").split(":"):
        return {"huge pages": "on"}
    hint = "jaxpool.keep_memory() makes large results on CPUs faster (docs/memory.md)"
    return {"huge pages": f"off; {hint}"}
