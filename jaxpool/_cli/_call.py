"""Parser of the calls of `info --plan`, with arrays written as dtype and shape.

    max_pool(float32[8,40,40,128], (13, 13), padding="SAME")
    model:train_step({"w": float32[3,3,64]}, bfloat16[b,28,28,64])

A name without a colon is a function of jaxpool. `module:name` imports the module. A size written as a name is symbolic.
"""

from __future__ import annotations

import ast
import contextlib
import math
import pkgutil
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

import jaxpool
from jaxpool._cli import UsageError, did_you_mean, quote_text, shorten

DTYPE_NAMES = (
    *("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
MAX_SIZE = 2**63 - 1
EXAMPLE_CALL_HINT = " Write it as in \"max_pool(float32[8,40,40,128], (13, 13), padding='SAME')\"."


def parse_call(call_text: str) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """The function of the call and its arguments; arrays are `jax.ShapeDtypeStruct`s."""
    name = re.split(r"[^\w.:]", call_text.strip(), maxsplit=1)[0]
    function = _find_function(name, call_text)
    arguments_text = call_text.strip().removeprefix(name).lstrip()
    # Like jax, a call may write a scalar as float32[].
    source = "call " + re.sub(r"(?<=\w)\[\s*\]", "[()]", arguments_text)
    try:
        args, kwargs = _ArgumentParser(source).parse()
    except (SyntaxError, UnicodeError, _UnreadableError, RecursionError, MemoryError) as error:
        rule = "a call of numbers, texts, tuples and arrays of a dtype and sizes that jax knows"
        got, hint = quote_text(call_text), _hint_at_word(error)
        raise UsageError(f"`--plan` must be {rule}; got {got}. {hint}{EXAMPLE_CALL_HINT}") from None
    return function, args, kwargs


class _UnreadableError(Exception):
    """A part of the call that is no value; the message names the part."""


def _hint_at_word(error: BaseException) -> str:
    """A sentence that names the part of the call that cannot be read."""
    if isinstance(error, UnicodeError):
        return "It has bytes that are not UTF-8."
    if not isinstance(error, SyntaxError):
        return str(error) if isinstance(error, _UnreadableError) else "It is nested too deeply."
    if error.msg.startswith("Exceeds the limit"):
        return "It has a number of too many digits."
    if not error.offset or not error.text:
        return f"{error.msg}."
    start = error.offset - 1
    end = max((error.end_offset or 0) - 1, start + 1)
    # Python names perhaps one character. The word around it ends at a space, comma or parenthesis.
    before = re.split(r"[\s,()]", error.text[:start])[-1]
    after = re.split(r"[\s,()]", error.text[end:])[0]
    return f"It cannot read {quote_text(before + error.text[start:end] + after)} ({error.msg})."


def _drop_in_hint(name: str) -> str:
    """The message about `jaxpool.<name>` if `name` is a pool of another library, else ""."""
    try:
        getattr(jaxpool, name)
    except AttributeError as error:
        return str(error) if ": use jaxpool." in str(error) else ""
    return ""


def _find_function(name: str, call_text: str) -> Callable[..., Any]:
    module, colon, _ = name.partition(":")
    name = name if colon else name.removeprefix("jaxpool.")
    is_valid_name = name.count(":") < 2 and all(map(str.isidentifier, re.split("[.:]", name)))
    try:
        function = is_valid_name and pkgutil.resolve_name(name if colon else f"jaxpool:{name}")
    except (ImportError, AttributeError) as error:
        reason = shorten(str(error))
        similar_name = did_you_mean(name, jaxpool.__all__) if name.isidentifier() else ""
        hint = f".{similar_name or EXAMPLE_CALL_HINT}"
        if known_name := _drop_in_hint(re.split("[.:]", name)[-1]):
            is_in_module = colon and module != "jaxpool"
            reason, hint = f"{reason}: {known_name}" if is_in_module else known_name, "."
        elif "." in name and not colon and not hasattr(jaxpool, name.partition(".")[0]):
            module, _, last_name = re.sub(r"^jnp\.", "jax.numpy.", name).rpartition(".")
            hint = f". A function of a module has a colon: write {module}:{last_name}(...)."
            if last_name in jaxpool.__all__:
                hint += f" For jaxpool.{last_name}, write {last_name}(...)."
        raise UsageError(f"`--plan` must name a function: {reason}{hint}") from None
    if not callable(function):
        where = module if colon and is_valid_name else "jaxpool"
        raise UsageError(
            f"`--plan` must be a call of a function of {where}; got {quote_text(name or call_text)}."
        )
    return function


class _ArgumentParser(ast.NodeTransformer):
    """The arguments of a call in `source`.

    It replaces array types such as float32[8,b], and names of values, by values. Sizes of the same name are equal.
    """

    def __init__(self, source: str) -> None:
        self._source, self._symbolic_scope = source, export.SymbolicScope()

    def parse(self) -> tuple[list[Any], dict[str, Any]]:
        """The positional arguments, and the keyword arguments."""
        if not self._source.startswith("call ("):
            word = re.split(r"[\s,(]", self._source.removeprefix("call "))[0]
            where = f", not {quote_text(word)}" if word else ""
            raise _UnreadableError(f"After the name, the arguments are in parentheses{where}.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as a SyntaxWarning for "\d"
            call = ast.parse(self._source, mode="eval").body
        if not isinstance(call, ast.Call) or self._text(call.func) != "call":
            raise _UnreadableError("A call ends with its arguments in parentheses.")
        kwargs: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in kwargs:
                raise _UnreadableError(f"It cannot read {quote_text(self._text(keyword))}.")
            kwargs[keyword.arg] = self._value(keyword.value)
        return [self._value(node) for node in call.args], kwargs

    def _text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._source, node) or ""

    def _value(self, node: ast.expr) -> Any:
        """The value of an argument."""
        node = self.visit(node)
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            word, hint = self._text(node), ""
            if names:
                word, hint = names[0], "; texts have quotes, arrays have brackets: float32[8,8,3]"
            if found := re.search(r"[\w.]+\.(?:(inf|nan)\b|(?:key|PRNGKey)\()", self._text(node)):
                word, hint = found[0].rstrip("("), f": write {found[1] or 'key'}"
            raise _UnreadableError(f"It cannot read {quote_text(word)}{hint}.") from None

    def visit_Subscript(self, node: ast.Subscript) -> ast.Constant:
        """An array type."""
        dtype_text = self._text(node.value)
        try:
            dtype = jnp.dtype(dtype_text)
            getattr(jnp, dtype.name)  # NumPy has more dtypes than jax
        except (TypeError, ValueError, AttributeError):
            hint = did_you_mean(dtype_text, DTYPE_NAMES)
            raise _UnreadableError(f"It knows no dtype {quote_text(dtype_text)}.{hint}") from None
        size_nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = [self._size(size_node) for size_node in size_nodes]
        return ast.Constant(jax.ShapeDtypeStruct(shape, dtype))  # type: ignore[arg-type]

    def _size(self, node: ast.expr) -> Any:
        """A size of an array type: an int, or a symbolic size."""
        text = self._text(node)
        size: Any = None
        with contextlib.suppress(ValueError):
            (size,) = export.symbolic_shape(text, scope=self._symbolic_scope)
        is_size = 0 <= size <= MAX_SIZE if isinstance(size, int) else export.is_symbolic_dim(size)
        if not is_size or (isinstance(node, ast.Constant) and type(node.value) is not int):
            raise _UnreadableError(f"It cannot read the size {quote_text(text)}.")
        return size

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The value of a name, if it has one."""
        if node.id == "key":
            return ast.Constant(jax.eval_shape(lambda: jax.random.key(0)))
        return ast.Constant(getattr(math, node.id)) if node.id in ("inf", "nan") else node
