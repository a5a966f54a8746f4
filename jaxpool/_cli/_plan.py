"""The plan of a call as text and as JSON; for `python -m jaxpool info --plan`."""

from __future__ import annotations

import dataclasses
import json
import re
import traceback
from typing import Any

import jax

import jaxpool
from jaxpool._accelerate.report import format_frame_line, is_user_file
from jaxpool._api.kernel_passes import Pass, PoolPasses
from jaxpool._api.plan_of import Plans, format_type
from jaxpool._cli import UsageError
from jaxpool._cli._call import parse_call


def trace_plans(call_text: str) -> Plans:
    """The plans of the call in `call_text`. An error of the function becomes a `UsageError` with the user's line."""
    needs_x64 = re.search(r"\b(float|u?int)64\b", call_text) is not None
    with jax.enable_x64(needs_x64 or jax.config.read("jax_enable_x64")):
        function, args, kwargs = parse_call(call_text)
        try:
            plans: Plans = jaxpool.plan_of(function)(*args, **kwargs)
        except (TypeError, ValueError) as error:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            user_lines = [
                format_frame_line(frame)
                for frame in frames
                if is_user_file(frame.f_code.co_filename)
            ]
            raise UsageError(": ".join([*user_lines[-1:], str(error)])) from None
    return plans


def plans_as_text(call_text: str) -> str:
    """The plans of a call as text."""
    return str(trace_plans(call_text))


def plans_as_json(call_text: str) -> str:
    """The plans of a call as a JSON list with one object per pool."""
    return json.dumps([_pool_plan_as_dict(row) for row in trace_plans(call_text)])


def _pool_plan_as_dict(pool_plan: Any) -> dict[str, Any]:
    num_bytes = pool_plan.kept_bytes
    return {
        "function": pool_plan.function,
        "where": pool_plan.where,
        "inputs": [format_type(array_type) for array_type in pool_plan.inputs],
        "output": format_type(pool_plan.output),
        "examples": pool_plan.examples,
        "devices": pool_plan.devices,
        "kept": [format_type(array_type) for array_type in pool_plan.kept],
        "kept_bytes": num_bytes if isinstance(num_bytes, int) else str(num_bytes),
        "runs": pool_plan.runs,
        "passes": {platform: _passes_as_dict(plan) for platform, plan in pool_plan.passes.items()},
    }


def _passes_as_dict(pool_passes: PoolPasses) -> dict[str, Any]:
    named_passes = (
        (field.name, getattr(pool_passes, field.name)) for field in dataclasses.fields(pool_passes)
    )
    return {direction: [*map(_pass_as_dict, passes)] for direction, passes in named_passes}


def _pass_as_dict(array_pass: Pass) -> dict[str, Any]:
    return {
        "axes": array_pass.axes,
        "terms": array_pass.terms if isinstance(array_pass.terms, int) else str(array_pass.terms),
        "how": array_pass.how,
        "writes": [format_type(array_type) for array_type in array_pass.writes],
        "where": array_pass.where,
    }
