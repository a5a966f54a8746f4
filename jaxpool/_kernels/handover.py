"""Whether lax's windowed reductions are handed over to this library, as under `accelerate`; those of kernels are not.

A user context of jax: it belongs to one thread, and is part of the key of every cache.
"""

import jax

# Made with the module: jax asks that contexts are not made while other threads use it.
handover = jax.make_user_context(None)
