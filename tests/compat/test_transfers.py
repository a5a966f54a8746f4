"""Drop-ins transfer nothing under `jax.transfer_guard("disallow")`, in eager calls and inside a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.junk import CALLS

NAMES = [name for name in CALLS if name.startswith("compat.")]
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")


@pytest.mark.parametrize("name", NAMES)
def test_calls(name):
    function, given = CALLS[name]
    given = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    if "boxes" in given:
        given["boxes"] = jnp.zeros((3, 5))  # of the first image
    arrays = {k: v for k, v in given.items() if isinstance(v, jax.Array)}
    for options in [{"mode": mode} for mode in MODES] if "scipy" in name else [{}]:
        with jax.transfer_guard("disallow"):
            function(**given, **options)
            jax.jit(lambda arrays, options=options: function(**given | arrays, **options))(arrays)
