"""`accelerate` for functions of existing models, and the context manager `accelerated` for a block of code.

Every windowed max, min and sum of a JAX program calls `bind` of one of four public primitives, such as
`jax.lax.reduce_window_max_p`. `bind.py` replaces these methods by a dispatcher, which calls our pools while an
accelerated function runs or is traced. The switch is a `jax.make_user_context`, local to a thread and part of jax's
cache keys: functions jitted before are traced again.

Our pools bring their own derivatives, and no jaxpr is rewritten: names, donation, static arguments, effects and mutable
state (Flax NNX, Keras) stay as they are. Replacing the function `jax.lax.reduce_window` would miss code that imported
it by name, and jaxprs that are evaluated or differentiated later. Overriding the lowering would miss
`jax.jit(accelerate(f))` and every derivative.

docs/howto/port-from-lax.md lists the differences from lax.

`report` gives the reason for each reduction that lax still computes. Reductions in other threads (host callbacks) and
in programs traced outside are not replaced: a nested jaxpr that is evaluated and not transformed, `jax.export`, a
pullback or a linearised function. `jax.experimental.jet` fails: it has no rules for custom derivatives.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, overload

import jax

from jaxpool._accelerate import bind
from jaxpool._accelerate.bind import ReportCallback
from jaxpool._arguments.arrays import is_array
from jaxpool._arguments.calls import CONTEXT_MANAGER_HINTS, FunctionWrapper
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., object])


@overload
def accelerate(fn: F, *, report: ReportCallback | None = None) -> F: ...
@overload
def accelerate(*, report: ReportCallback) -> Callable[[F], F]: ...
@public
def accelerate(fn: Any = None, *, report: ReportCallback | None = None) -> Any:
    """`fn` with its windowed max, min and sum, and their derivatives, computed by jaxpool.

    Works on a forward pass or a whole train step of any library. The function may contain `grad`, `jit`, `scan`,
    `while_loop`, `cond`, `checkpoint`, `vmap`, `shard_map` and functions with custom derivatives. The result composes
    with them too: `jax.jit(accelerate(f))`, `accelerate(jax.jit(f))`, `jax.grad(accelerate(f))`. Names, signature,
    donation and static arguments stay. Reductions that cannot be replaced run as before. A function jitted before is
    traced once more when it is called from here.

    Gradient: the gradient of `max_pool` or `min_pool` with `ties="first"`, or of `sum_pool`. Forward and reverse mode,
    any order. It equals the gradient of lax if that is correct, bit for bit if windows are disjoint.

    Args:
      fn: a train step, a loss, `model.apply` (Flax Linen, Haiku) or `model.fit` (Keras), jitted or not. State that it
        changes in place is changed in place. Objects that hold parameters raise: as functions they would hide the
        parameters from `jax.grad`. With `report` alone, the result is a decorator: `@jaxpool.accelerate(report=print)`.
      report: called once with each reduction, when it is traced, such as `print` or `reports.append`. A reduction has
        `kind`, `shape`, `where`, `taken_over`, and the `reason` if it stays with lax. A first call without any
        reduction is reported with the kind "none". With `report`, functions that were jitted before are traced
        again for this call of `accelerate`.

    Returns:
      A function with the arguments and results of fn, and with its `lower`, `trace` and `eval_shape` if fn is jitted.
      It can be pickled and copied if fn and `report` can.

    Raises:
      TypeError: fn is a model, a class, a generator or coroutine function, or a compiled program.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> x = jnp.array([1.0, jnp.nan, 5.0, 2.0])
      >>> jax.grad(jaxpool.accelerate(loss))(x)
      Array([0., 1., 1., 0.], dtype=float32)
      >>> reports = []
      >>> jaxpool.accelerate(loss, report=reports.append)(x)
      Array(nan, dtype=float32)
      >>> [(reduction.kind, reduction.taken_over) for reduction in reports]
      [('max', True)]

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    replacer = _replacer_with(report)
    if fn is None and report is not None:
        return functools.partial(accelerate, report=report)
    _check_function(fn)
    if bind.is_disabled_by_environment():
        return fn
    if isinstance(fn, jax.tree_util.Partial):
        func = accelerate(fn.func, report=report)
        return jax.tree_util.Partial(func, *fn.args, **fn.keywords)
    bind.install_dispatcher()
    return _AcceleratedFunction(fn, report, replacer)


@public
def accelerated(*, report: ReportCallback | None = None) -> contextlib.AbstractContextManager[None]:
    """A context manager under which jaxpool computes windowed max, min and sum, and their derivatives.

    It is `accelerate` for everything that runs or is traced in a block of code, such as the cells of a notebook, in
    this thread. A function jitted before is traced once more when it is called from the block. A pullback made in the
    block uses jaxpool also after the block. For a whole program with all its threads use `python -m jaxpool run`.

    Gradient: see `accelerate`.

    Args:
      report: called once with each reduction, when it is traced. See `accelerate`.

    Returns:
      A context manager for one block. With JAXPOOL_DISABLE=1 in the environment, neither it nor `accelerate` changes
      anything.

    Raises:
      TypeError: `report` cannot be called.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> with jaxpool.accelerated(report=lambda reduction: print(reduction.kind, reduction.taken_over)):
      ...     jax.grad(loss)(jnp.array([1.0, jnp.nan, 5.0, 2.0]))
      max True
      Array([0., 1., 1., 0.], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    replacer = _replacer_with(report)
    if bind.is_disabled_by_environment():
        return _AcceleratedContext(contextlib.nullcontext())
    bind.install_dispatcher()
    return _AcceleratedContext(bind.replacing_reductions(replacer))


class _AcceleratedContext(contextlib.AbstractContextManager[None]):
    """A context manager that raises with a hint when it is used as a decorator."""

    def __init__(self, context: contextlib.AbstractContextManager[None]) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._context.__exit__(*exc_info)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        hint = CONTEXT_MANAGER_HINTS["accelerated"]
        raise TypeError(f"jaxpool.accelerated: what it returns cannot be called. {hint}")


class _AcceleratedFunction(FunctionWrapper):
    """`fn` and its tracing methods (`lower`, `trace`, `eval_shape`), run under `replacing_reductions`."""

    def __init__(
        self,
        fn: Callable[..., Any],
        report: ReportCallback | None,
        replacer: bind.ReductionReplacer | None,
    ) -> None:
        super().__init__(fn, functools.partial(accelerate, report=report))
        self._fn, self._replacer = fn, replacer
        if not hasattr(fn, "__name__"):
            self.__name__ = getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__)
        for method in ("lower", "trace", "eval_shape"):
            if hasattr(fn, method):
                call = functools.partial(_call_with_replacer, getattr(fn, method), self._replacer)
                setattr(self, method, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call_with_replacer(self._fn, self._replacer, *args, **kwargs)


def _call_with_replacer(
    fn: Callable[..., Any], replacer: bind.ReductionReplacer | None, /, *args: Any, **kwargs: Any
) -> Any:
    with bind.replacing_reductions(replacer):
        return fn(*args, **kwargs)


def _replacer_with(report: ReportCallback | None) -> bind.ReductionReplacer | None:
    if report is not None and not callable(report):
        rule = "a function of one argument"
        raise ArgumentError("report", rule, report, "Pass print or a list's append.", TypeError)
    return None if report is None else bind.ReductionReplacer(report)


def _check_function(fn: object) -> None:
    function = _underlying_function(fn) if callable(fn) else None
    if not callable(fn):
        suggestion = "accelerate(model.apply)" if hasattr(fn, "apply") else "a train step or a loss"
        hint = f"Pass {suggestion}."
    elif inspect.isclass(fn):
        hint = "Pass a function that makes and calls it."
    elif isinstance(fn, jax.stages.Compiled):
        hint = "It is compiled already: accelerate the function, then compile that."
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        hint = "A generator runs after its call: accelerate the function that it calls."
    elif inspect.iscoroutinefunction(function):
        hint = "A coroutine runs after its call: accelerate the function that it awaits."
    elif _is_model(fn):
        hint = (
            "It is a model or a layer. Pass a train step or a loss that takes it as an argument, "
            "model.apply for Flax Linen, or model.fit for Keras."
        )
    else:
        return
    is_shown = function is None or inspect.isroutine(fn) or inspect.isclass(fn)
    shown_fn = fn if is_shown else type(fn)
    raise ArgumentError("fn", "a function", shown_fn, hint, TypeError, must_be_static=False)


def _underlying_function(fn: Any) -> Any:
    """The Python function that a call of `fn` runs, after unwrapping partials, bound methods and `__call__`."""
    while isinstance(fn, functools.partial) or inspect.ismethod(fn):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    return fn if inspect.isfunction(fn) else type(fn).__call__


def _is_model(fn: object) -> bool:
    """Whether fn is a model: a module or layer of a known library, or a pytree with arrays."""
    if isinstance(fn, jax.tree_util.Partial):
        return False
    for cls in type(fn).__mro__:
        library = cls.__module__.split(".")[0]
        if cls.__name__ in ("Module", "Layer") and library in ("flax", "haiku", "keras"):
            return True
    return any(is_array(leaf) for leaf in jax.tree.leaves(fn))
