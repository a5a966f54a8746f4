"""Run one call and check its result or error message."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import symbolic_shape

from jaxpool.testing._record import TUPLE_PARAMETERS, call_by_argument_names
from tests.fuzz.shapes import expected
from tests.support.junk import Traced

MAIN_ARRAY_NAMES = ("x", "input", "inputs", "y")


TRACER_PATTERN = r"Tracer\(|Traced<"  # messages must not show the unreadable repr of a tracer


def is_signature_error(error):
    """Return True for Python's own errors about a signature, which drop-ins may raise."""
    said = r"\w+\(\) (missing|got|takes)|missing a|got an unex|too many"
    return isinstance(error, (TypeError, ValueError)) and re.match(said, str(error))


class WrongResultError(Exception):
    """A wrong result or message."""


def is_traced(value):
    return isinstance(value, (Traced, jax.ShapeDtypeStruct))


def as_struct(value):
    return value.struct if isinstance(value, Traced) else value


def outcome(call, compiles=lambda: None):
    """Run a call. Return "result" or "refused" (a proper error), or raise what is wrong."""
    try:
        found = perform(call, compiles)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        message = str(error)
        # Errors of ops, for instance while a gradient is traced, do not name the public function.
        op = call.how == "grad" or "where" in call.arguments
        sharded = call.name.startswith("sharded.")
        names = (f"jaxpool.{call.name.removeprefix('sharded.')}: ", *["jaxpool: "] * op)
        names += ("jaxpool.sharded: ",) * sharded
        own = (
            isinstance(error, (TypeError, ValueError))
            and message.startswith(names)
            and not re.search(TRACER_PATTERN, message)
        )
        if not own and not (call.name.startswith("compat.") and is_signature_error(error)):
            raise
        return "refused"
    check(call, found)
    return "result"


def perform(call, compiles):
    """Make the call in its way of calling, and return results or their shapes and dtypes."""
    arguments, how = dict(call.arguments), call.how
    for name in {*TUPLE_PARAMETERS} & {*arguments}:
        value = arguments[name]
        arguments[name] = value if isinstance(value, tuple) else (value,)
    main = next((name for name in MAIN_ARRAY_NAMES if name in arguments), None)
    if how == "symbolic" and isinstance(arguments.get(main), jax.ShapeDtypeStruct):
        arguments[main] = call.arguments[main] = with_symbolic_size(arguments[main], call)
    array = main and isinstance(arguments[main], (np.ndarray, jax.Array))
    # jax cannot trace longdouble
    if how in ("grad", "vmap") and array and arguments[main].dtype != np.longdouble:
        arguments[main] = jax.ShapeDtypeStruct(arguments[main].shape, arguments[main].dtype)
    several = arguments.get("xs") or arguments.get("features") or (None,)
    call.main = as_struct(arguments[main] if main else several[0])
    leaves, tree = jax.tree.flatten(arguments)
    places = [i for i, value in enumerate(leaves) if is_traced(value)]
    structs = [as_struct(leaves[i]) for i in places]

    def run(*traced):
        filled = list(leaves)
        for place, value in zip(places, traced, strict=True):
            filled[place] = value
        y = call_by_argument_names(call.function, jax.tree.unflatten(tree, filled))
        return [leaf for leaf in jax.tree.leaves(y) if isinstance(leaf, (jax.Array, np.ndarray))]

    if how == "real" and all(np.prod(s.shape) < 2**10 for s in structs):
        compiles()
        return run(*[jnp.zeros(s.shape, s.dtype) for s in structs])
    found = jax.eval_shape(run, *structs)
    if how == "grad" and main and is_traced(arguments[main]):
        at = next(i for i, place in enumerate(places) if leaves[place] is arguments[main])
        check_cotangent(run, structs, at, found)
    if how == "vmap" and structs:
        wide = [jax.ShapeDtypeStruct((3, *s.shape), s.dtype) for s in structs]
        mapped = jax.eval_shape(jax.vmap(run), *wide)
        if [(3, *y.shape) for y in found] != [y.shape for y in mapped]:
            raise WrongResultError(f"vmap of {call.name} gives {mapped} for {found}")
    return found


def with_symbolic_size(x, call):
    """Return x with a symbolic size along an axis."""
    if not x.ndim:
        return x
    axis = call.symbolic_axis % x.ndim
    sizes = [("b" if i == axis else str(n)) for i, n in enumerate(x.shape)]
    return jax.ShapeDtypeStruct(symbolic_shape(", ".join(sizes) + ","), x.dtype)


def check_cotangent(run, structs, at, found):
    """Check shape and dtype of the cotangent of the main array."""
    x = jax.eval_shape(lambda x: x, structs[at])  # without x64 a float64 is a float32
    if not all(jnp.issubdtype(y.dtype, jnp.inexact) for y in (x, found[0])):
        return

    def total(x):
        return run(*[x if i == at else jnp.zeros(s.shape, s.dtype) for i, s in enumerate(structs)])[
            0
        ].sum()

    dx = jax.eval_shape(jax.grad(total), x)
    if (dx.shape, dx.dtype) != (x.shape, x.dtype):
        raise WrongResultError(f"the cotangent of {x} is {dx}")


def check(call, found):
    """Raise unless the results have the expected shapes and dtypes."""
    if not found:
        return
    parameters = inspect.signature(call.function).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    given |= {name: as_struct(value) for name, value in call.arguments.items()}
    main = call.main
    if hasattr(main, "__jax_array__"):
        main = main.__jax_array__()
    if not hasattr(main, "shape"):
        main = np.asarray(main)
    main = jax.ShapeDtypeStruct(main.shape, jax.dtypes.canonicalize_dtype(main.dtype))
    try:
        want = expected(call.name, main, given)
    except Exception as error:
        raise WrongResultError(
            f"{call.name}: nobody can tell the shape: {error!r} of {given}"
        ) from error
    got = [(y.shape, y.dtype) for y in found]
    if want is not None and [(tuple(s), jnp.dtype(d)) for s, d in want] != got:
        raise WrongResultError(
            f"{call.name} of {main.shape} gives {got} for {want}: {call.arguments}"
        )
