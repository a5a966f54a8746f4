"""The plan of a call as text and as JSON; for `python -m jaxpool info --plan`."""

from __future__ import annotations

import dataclasses
import json
import re
import traceback
from typing import Any

import jax

import jaxpool
from jaxpool._accelerate.report import is_users, line
from jaxpool._api.kernel_passes import Pass, PoolPasses
from jaxpool._api.plan_of import Plans
from jaxpool._api.plan_text import of_type
from jaxpool._cli import UsageError
from jaxpool._cli._call import parse_call


def plans_of(call_text: str) -> Plans:
    """The plans of the call in `call_text`. An error of the function becomes a `UsageError` with the user's line."""
    wide = re.search(r"\b(float|u?int)64\b", call_text) is not None
    with jax.enable_x64(wide or jax.config.read("jax_enable_x64")):
        function, args, kwargs = parse_call(call_text)
        try:
            plans: Plans = jaxpool.plan_of(function)(*args, **kwargs)
        except (TypeError, ValueError) as error:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            users = [line(frame) for frame in frames if is_users(frame.f_code.co_filename)]
            raise UsageError(": ".join([*users[-1:], str(error)])) from None
    return plans


def plans_as_text(call_text: str) -> str:
    """The plans of a call as text."""
    return str(plans_of(call_text))


def plans_as_json(call_text: str) -> str:
    """The plans of a call as a JSON list with one object per pool."""
    return json.dumps([_pool_plan_as_dict(row) for row in plans_of(call_text)])


def _pool_plan_as_dict(row: Any) -> dict[str, Any]:
    sizes = row.kept_bytes
    return {
        "function": row.function,
        "where": row.where,
        "inputs": [of_type(each) for each in row.inputs],
        "output": of_type(row.output),
        "examples": row.examples,
        "devices": row.devices,
        "kept": [of_type(each) for each in row.kept],
        "kept_bytes": sizes if isinstance(sizes, int) else str(sizes),
        "runs": row.runs,
        "passes": {platform: _op_plan_as_dict(plan) for platform, plan in row.passes.items()},
    }


def _op_plan_as_dict(plan: PoolPasses) -> dict[str, Any]:
    ways = ((field.name, getattr(plan, field.name)) for field in dataclasses.fields(plan))
    return {way: [*map(_pass, passes)] for way, passes in ways}


def _pass(one: Pass) -> dict[str, Any]:
    return {
        "axes": one.axes,
        "terms": one.terms if isinstance(one.terms, int) else str(one.terms),
        "how": one.how,
        "writes": [of_type(each) for each in one.writes],
        "where": one.where,
    }
