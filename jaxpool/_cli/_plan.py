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
from jaxpool._api.plan_of import Plans, format_type
from jaxpool._arguments.errors import TRACED_VALUE_HINT
from jaxpool._cli import UsageError
from jaxpool._cli._call import parse_call

# Hints about arrays for programs, as patterns, and hints for calls that write an array as its type.
HINTS = (
    (r"Pass (jnp\.asarray\(.*\)|an array of jax or NumPy)\.$", "Write an array as float32[8,8,3]."),
    (f"{re.escape(TRACED_VALUE_HINT)}$", "Write its value, not the type of an array."),
    (r"Pass jax\.random\.key\(0\), say", "Write key"),
)
JSON_FIELDS = (
    *("function", "where", "inputs", "output", "examples"),
    *("devices", "kept", "kept_bytes", "runs", "passes"),
)


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
            message = str(error)
            for pattern, hint in HINTS if not user_lines else ():
                message = re.sub(pattern, hint, message)
            raise UsageError(": ".join([*user_lines[-1:], message])) from None
    return plans


def plans_as_json(plans: Plans) -> str:
    """The plans of a call as a JSON list with one object per pool."""
    rows = [{name: getattr(plan, name) for name in JSON_FIELDS} for plan in plans]
    return json.dumps(rows, default=_value_as_json)


def _value_as_json(value: Any) -> Any:
    """A value that `json` does not know: an array type, the passes of a pool, or a symbolic size."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return format_type(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)
