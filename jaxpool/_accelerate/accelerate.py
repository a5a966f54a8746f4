"""One line for existing models: `accelerate`, and `accelerated` for a block of lines.

Mechanism. Every windowed max, min and sum of a JAX program, from whatever library, passes through
`bind` of one of four public primitives, `jax.lax.reduce_window_max_p` and its kin. The first call
of `accelerate` puts a dispatcher in front of these. While an accelerated function runs or is
traced, the dispatcher calls our pools (with `autodiff="jvp"`); at all other times it passes the
call on. "While" is a value of `jax.make_user_context`: a part of the keys of all of jax's caches,
so that functions jitted before are traced anew, and local to a thread.

Why there. Derivatives are those of our pools, so none of jax's rule tables is touched, and each
transformation works that works on a function of jax. No boundary is crossed and no jaxpr
rewritten, so structure, names, donation, static arguments, effects, and state that a function
changes in place (Flax NNX, Keras) stay as they are. Taking `jax.lax.reduce_window` itself would do
the same but miss code that imported it by name, and jaxprs that are evaluated or differentiated
again; overriding the lowering would miss `jax.jit(accelerate(f))` and every derivative.

Arrays whose type says that a pooled axis is sharded are pooled shard by shard, with halos of their
neighbours (`_shards`), where lax raises.

What stays lax's: general reductions, `base_dilation`, negative padding, complex numbers, arrays
sharded along a pooled axis that would not give shards of one size, windows of one element, and
running reductions in the form to which lax lowers `cumsum` and `cummax` (`report` names each). On
TPUs all maxima and minima: lax's derivative is one instruction there, which needs the array and so
keeps it, where ours keep an index. What is kept is fixed while tracing, before jax knows the target
platform, so the platform of the default device decides. Also programs that were finished elsewhere:
a nested jaxpr of `jax.make_jaxpr` that is run but not transformed, `jax.export`, a pullback or
linearised function made outside, and Python that runs in another thread, such as host callbacks.
`jax.experimental.jet` fails on what is taken over: it has no rules for custom derivatives.

Where the numbers differ: the order in which the elements of a window and overlapping cotangents
are added; NaN keeps its cotangent; the cotangent of a window of -inf goes to an element, never to
padding; 8- and 16-bit floats add in float32; types without an infinity are padded with their least
value. A window that is all padding keeps lax's value.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import jax

from jaxpool._accelerate.bind import Handover, Report, handing_over, install, switched_off
from jaxpool._arguments.arrays import is_array
from jaxpool._arguments.calls import Wrapper, public
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.words import WITHOUT_FUNCTION

F = TypeVar("F", bound=Callable[..., Any])

_STAGES = ("lower", "trace", "eval_shape")  # methods of a jitted function that trace it
_LIBRARIES = ("flax", "haiku", "keras")


@public
def accelerate(fn: F, *, report: Report | None = None) -> F:
    """`fn` with its windowed max, min and sum, and their derivatives, computed by jaxpool.

    Works on a forward pass or a whole train step, with `grad`, `jit`, `scan`, `while_loop`, `cond`,
    `checkpoint`, `vmap`, `shard_map` and functions with custom derivatives inside, whichever
    library wrote its layers, and composes with all of them from outside:
    `jax.jit(accelerate(f))`, `accelerate(jax.jit(f))`, `jax.grad(accelerate(f))`. Names, signature,
    donation and static arguments stay. What cannot be taken over runs as before. A function jitted
    before is traced once more, for its calls from here.

    Gradient: of a max or min as of `max_pool` and `min_pool` with `ties="first"`, of a sum as of
    `sum_pool`; forward and reverse mode, any order. It equals lax's where lax is right, to the bit
    where windows do not overlap.

    Args:
      fn: a function: a train step, a loss, `model.apply` (Flax Linen, Haiku), `model.fit` (Keras),
        jitted or not. State that it changes in place is changed in place. Objects that hold
        parameters are refused: as functions they would hide them from `jax.grad`.
      report: called with each reduction as it is traced, once: `print` to read them, `found.append`
        to collect them. Each has `kind`, `shape`, `where`, `taken_over` and, if it was not, the
        `reason`. With it, functions that were jitted before are traced for this call of
        `accelerate` alone, so that nothing is missed.

    Returns:
      A function that takes and returns what fn does; with `lower`, `trace` and `eval_shape` if fn
      is jitted. It can be pickled and copied if fn and `report` can.

    Raises:
      TypeError: fn is a model, a class, a generator or coroutine function, a compiled program.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> x = jnp.array([1.0, jnp.nan, 5.0, 2.0])
      >>> jax.grad(jaxpool.accelerate(loss))(x)
      Array([0., 1., 1., 0.], dtype=float32)
      >>> found = []
      >>> jaxpool.accelerate(loss, report=found.append)(x)
      Array(nan, dtype=float32)
      >>> [(reduction.kind, reduction.taken_over) for reduction in found]
      [('max', True)]

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    with calling("accelerate"):
        _check(fn, report)
    if switched_off():
        return fn
    if isinstance(fn, jax.tree_util.Partial):
        inner = accelerate(fn.func, report=report)
        return cast(F, jax.tree_util.Partial(inner, *fn.args, **fn.keywords))
    install()
    return cast(F, _Accelerated(fn, report))


@public
def accelerated(*, report: Report | None = None) -> contextlib.AbstractContextManager[None]:
    """A block in which windowed max, min and sum, and their derivatives, are computed by jaxpool.

    What `accelerate` does for a function, for the cells of a notebook or the body of a script: whatever
    runs or is traced in the block, in this thread. A function jitted before is traced once more, for its
    calls from the block. A pullback made in the block is ours wherever it is called. A whole program as
    it is, threads too: `python -m jaxpool run`.

    Gradient: as of `accelerate`.

    Args:
      report: called with each reduction as it is traced, once, as that of `accelerate`.

    Returns:
      A context manager for one block. With JAXPOOL_DISABLE=1 in the environment it
      changes nothing, and neither does `accelerate`.

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
    with calling("accelerated"):
        _check_report(report)
    if switched_off():
        return _Block(contextlib.nullcontext())
    install()
    return _Block(handing_over(None if report is None else Handover(report)))


class _Block(contextlib.AbstractContextManager[None]):
    """A context manager that says what to write where it is called as a decorator is."""

    def __init__(self, context: contextlib.AbstractContextManager[None]) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._context.__exit__(*raised)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        hint = WITHOUT_FUNCTION["accelerated"]
        raise TypeError(f"jaxpool.accelerated: what it returns cannot be called. {hint}")


class _Accelerated(Wrapper):
    """`fn`, and its methods that trace it, with windowed reductions handed over."""

    def __init__(self, fn: Callable[..., Any], report: Report | None) -> None:
        super().__init__(fn, functools.partial(accelerate, report=report))
        self._handover = None if report is None else Handover(report)
        if not hasattr(fn, "__name__"):
            self.__name__ = getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__)
        for stage in _STAGES:
            if hasattr(fn, stage):
                setattr(self, stage, functools.partial(_call, getattr(fn, stage), self._handover))
        self._fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self._fn, self._handover, *args, **kwargs)


def _call(fn: Callable[..., Any], handover: Handover | None, /, *args: Any, **kwargs: Any) -> Any:
    with handing_over(handover):
        return fn(*args, **kwargs)


def _check(fn: Any, report: Any) -> None:
    def refuse(hint: str) -> ArgumentError:
        shown = fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn)
        return ArgumentError("fn", "a function", shown, hint, TypeError)

    if not callable(fn):
        form = "accelerate(model.apply)" if hasattr(fn, "apply") else "a train step or a loss"
        raise refuse(f"Pass {form}.")
    if inspect.isclass(fn):
        raise refuse("Pass a function that makes and calls it.")
    if isinstance(fn, jax.stages.Compiled):
        raise refuse("It is compiled already: accelerate the function, then compile that.")
    body = _body(fn)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise refuse("A generator runs after its call: accelerate the function that it calls.")
    if inspect.iscoroutinefunction(body):
        raise refuse("A coroutine runs after its call: accelerate the function that it awaits.")
    if _holds_state(fn):
        raise refuse(
            "It is a model or a layer. Pass a train step or a loss that takes it as an argument, "
            "model.apply for Flax Linen, or model.fit for Keras."
        )
    _check_report(report)


def _check_report(report: Any) -> None:
    if report is not None and not callable(report):
        rule = "a function of one argument"
        raise ArgumentError("report", rule, report, "Pass print or a list's append.", TypeError)


def _body(fn: Any) -> Any:
    """The Python function that a call of `fn` runs: behind partials, a bound method, an object's `__call__`."""
    fn = _unwrapped(fn)
    return fn if inspect.isfunction(fn) else _unwrapped(type(fn).__call__)


def _unwrapped(fn: Any) -> Any:
    while isinstance(fn, functools.partial) or inspect.ismethod(fn):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    return fn


def _holds_state(fn: Any) -> bool:
    """Whether fn is a model: a module or layer of a library, or any pytree with arrays."""
    if isinstance(fn, jax.tree_util.Partial):
        return False
    if any(
        cls.__name__ in ("Module", "Layer") and cls.__module__.split(".")[0] in _LIBRARIES
        for cls in type(fn).__mro__
    ):
        return True
    return any(is_array(leaf) for leaf in jax.tree_util.tree_leaves(fn))
