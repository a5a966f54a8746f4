"""Drop-ins transfer nothing under `jax.transfer_guard("disallow")`, and an equal eager call compiles nothing."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.junk import CALLS

NAMES = [name for name in CALLS if name.startswith("compat.")]
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")


@pytest.mark.parametrize("name", NAMES)
def test_calls(name, caplog):
    function, given = CALLS[name]
    given = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    variants = [{}]
    if "boxes" in given:  # an array or a list
        variants = [{"boxes": jnp.zeros((3, 5))}, {"boxes": [jnp.zeros((3, 4))]}]
    if "scipy" in name:
        integers = {k: v.astype(np.int32) for k, v in given.items() if isinstance(v, jax.Array)}
        if "structure" in inspect.signature(function).parameters:
            integers["structure"] = jnp.ones((3,) * given["input"].ndim, np.int32)
        variants = [*[{"mode": mode} for mode in MODES], integers]
    for variant in variants:
        call = given | variant
        arrays = {k: v for k, v in call.items() if isinstance(v, jax.Array)}
        with jax.transfer_guard("disallow"):
            function(**call)
            with jax.log_compiles():
                function(**call)
            assert "Finished XLA compilation" not in caplog.text
            jax.jit(lambda arrays, call=call: function(**call | arrays))(arrays)
