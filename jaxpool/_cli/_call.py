"""Parser of the calls of `info --plan`, with arrays written as dtype and shape.

    max_pool(float32[8,40,40,128], (13, 13), padding="SAME")
    model:train_step({"w": float32[3,3,64]}, bfloat16[b,28,28,64])

A name without a colon is a function of jaxpool. `module:name` imports the module. A size written as a name is symbolic.
"""

from __future__ import annotations

import ast
import math
import pkgutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

import jaxpool
from jaxpool._cli import UsageError, did_you_mean, quote_text

DTYPE_NAMES = (
    *("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
EXAMPLE_CALL_HINT = " Write it as in \"max_pool(float32[8,40,40,128], (13, 13), padding='SAME')\"."


def parse_call(call_text: str) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """The function of the call and its arguments; arrays are `jax.ShapeDtypeStruct`s."""
    name, bracket, arguments_text = call_text.partition("(")
    function = _find_function(name.strip().removeprefix("jaxpool."))
    try:
        tree = ast.parse(f"call({arguments_text}" if bracket else "", mode="eval")
        call = _ArrayTypeParser().visit(tree).body
        args = [_literal(node) for node in call.args]
        kwargs = {node.arg: _literal(node.value) for node in call.keywords}
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        rule = "a call of numbers, texts, tuples and arrays of a dtype and sizes that jax knows"
        hint = f" {error}" if isinstance(error, _UnreadableError) else ""
        got = quote_text(call_text)
        raise UsageError(f"`--plan` must be {rule}; got {got}.{hint}{EXAMPLE_CALL_HINT}") from None
    return function, args, kwargs


class _UnreadableError(ValueError):
    """A part of the call that is no value; the message names the part."""


def _literal(node: ast.expr) -> Any:
    """The value of an argument."""
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        word = quote_text(names[0] if names else ast.unparse(node))
        raise _UnreadableError(f"It cannot read {word}; texts have quotes.") from None


def _find_function(name: str) -> Callable[..., Any]:
    module, colon, _ = name.partition(":")
    try:
        function = pkgutil.resolve_name(name if colon else f"jaxpool:{name}")
    except (ImportError, AttributeError, ValueError) as error:
        hint = did_you_mean(name, jaxpool.__all__) or EXAMPLE_CALL_HINT
        if "." in name and not colon and not hasattr(jaxpool, name.partition(".")[0]):
            hint = (
                f" A function of a module has a colon: write {':'.join(name.rsplit('.', 1))}(...)."
            )
        raise UsageError(f"`--plan` must name a function: {error}.{hint}") from None
    if not callable(function):
        where = module if colon else "jaxpool"
        raise UsageError(
            f"`--plan` must be a call of a function of {where}; got {quote_text(name)}."
        )
    return function


class _ArrayTypeParser(ast.NodeTransformer):
    """Replaces array types such as float32[8,b], and names of values. Sizes of the same name are equal."""

    def __init__(self) -> None:
        self._symbolic_scope = export.SymbolicScope()

    def visit_Subscript(self, node: ast.Subscript) -> ast.Constant:
        """An array type."""
        sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        sizes_text = ",".join(map(ast.unparse, sizes))
        dtype_text = ast.unparse(node.value)
        try:
            dtype = jnp.dtype(dtype_text)
        except TypeError:
            hint = did_you_mean(dtype_text, DTYPE_NAMES)
            raise _UnreadableError(f"It knows no dtype {quote_text(dtype_text)}.{hint}") from None
        try:
            shape = export.symbolic_shape(sizes_text, scope=self._symbolic_scope)
        except ValueError:
            raise _UnreadableError(f"It cannot read sizes {quote_text(sizes_text)}.") from None
        array_type = jax.ShapeDtypeStruct(shape, dtype)
        return ast.Constant(array_type)  # type: ignore[arg-type]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The value of a name, if it has one."""
        if node.id == "key":
            return ast.Constant(jax.eval_shape(lambda: jax.random.key(0)))
        return ast.Constant(getattr(math, node.id)) if node.id in ("inf", "nan") else node
