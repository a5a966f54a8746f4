"""Parser of the calls of `info --plan`, with arrays written as dtype and shape.

    max_pool(float32[8,40,40,128], (13, 13), padding="SAME")
    model:train_step({"w": float32[3,3,64]}, bfloat16[b,28,28,64])

A name without a colon is a function of jaxpool. `module:name` imports the module. A size written as a name is symbolic.
"""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

import jaxpool
from jaxpool._cli import UsageError, did_you_mean, quote_text

EXAMPLE_CALL_HINT = " Write it as in \"max_pool(float32[8,40,40,128], (13, 13), padding='SAME')\"."
NAMED_CONSTANTS = {"inf": math.inf, "nan": math.nan}


def parse_call(call_text: str) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """The function of the call and its arguments; arrays are `jax.ShapeDtypeStruct`s."""
    function_text, bracket, arguments_text = call_text.partition("(")
    module, colon, name = function_text.strip().rpartition(":")
    try:
        tree = ast.parse(f"call({arguments_text}" if bracket else "", mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise _usage_error("a call", call_text)
    function = _find_function(module if colon else "", name, call_text)
    reader = _ArgumentEvaluator()
    args = [reader.evaluate(node) for node in tree.args]
    return function, args, {node.arg or "": reader.evaluate(node.value) for node in tree.keywords}


def _usage_error(rule: str, shown_value: str, hint: str = EXAMPLE_CALL_HINT) -> UsageError:
    return UsageError(f"`--plan` must be {rule}; got {quote_text(shown_value)}.{hint}")


def _find_function(module: str, name: str, call_text: str) -> Callable[..., Any]:
    target: Any = jaxpool
    if module:
        try:
            target = importlib.import_module(module)
        except ImportError as error:
            raise UsageError(
                f"there is no module {module} that can be imported: {error}."
            ) from None
    for part in name.removeprefix("jaxpool.").split(".") if name else ():
        target = None if part.startswith("_") and not module else getattr(target, part, None)
    if not name or not callable(target):
        hint = did_you_mean(name.removeprefix("jaxpool."), () if module else jaxpool.__all__)
        prefix, dot, function_name = name.rpartition(".")
        if dot and not module:
            hint = (
                hint or f" A function of a module has a colon: write {prefix}:{function_name}(...)."
            )
        rule = f"a call of a function of {module or 'jaxpool'}"
        raise _usage_error(rule, call_text, hint or EXAMPLE_CALL_HINT)
    function: Callable[..., Any] = target
    return function


class _ArgumentEvaluator:
    """Evaluates arguments. Symbolic sizes of the same name are equal."""

    def __init__(self) -> None:
        self._symbolic_scope = export.SymbolicScope()

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an argument: a number, a string, an array type, or a container of these."""
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.evaluate(operand)
            case ast.Tuple(elts=each):
                return tuple(map(self.evaluate, each))
            case ast.List(elts=each):
                return [*map(self.evaluate, each)]
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(keys, values, strict=True)
                return {self.evaluate(key): self.evaluate(value) for key, value in pairs if key}
            case ast.Name(id="key"):
                return jax.eval_shape(lambda: jax.random.key(0))
            case ast.Name(id=name) if name in NAMED_CONSTANTS:
                return NAMED_CONSTANTS[name]
            case ast.Subscript(value=ast.Name(id=name), slice=sizes):
                return self._array_type(name, sizes)
        text = ast.unparse(node)
        raise _usage_error(
            "a call of numbers, texts, tuples and arrays such as float32[8,40,40,128]", text
        )

    def _array_type(self, dtype: str, sizes: ast.expr) -> jax.ShapeDtypeStruct:
        size_nodes = sizes.elts if isinstance(sizes, ast.Tuple) else [sizes]
        sizes_text = ",".join(map(ast.unparse, size_nodes))
        try:
            shape = export.symbolic_shape(sizes_text, scope=self._symbolic_scope)
            return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
        except (TypeError, ValueError):
            raise _usage_error(
                "a call of arrays whose dtype and sizes jax knows", f"{dtype}[{sizes_text}]"
            ) from None
