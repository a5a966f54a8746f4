"""Drop-ins for the pools of other libraries, a module each: `flax`, `haiku`, `equinox`, `torch`, `torchvision`.

A function here takes what its original takes and gives what its original gives, gradient included;
where the original is wrong, the docstring says what differs. Import the module you need by name:

    from jaxpool.compat import flax as pooling  # in place of flax.linen

`import jaxpool` imports none of them, and only `haiku` and `equinox`, whose pools are modules, need
their library.

Here live the arguments and conventions of each library: names, defaults, orders of axes, what it refuses.
What is computed is not here: the ops of `_ops` and the public functions compute it. `_lax` and `_torch_*`
hold what several drop-ins share, and the parts of `torch`.
"""
