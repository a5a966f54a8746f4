"""`jaxpool.accelerate` on programs of jax and of the layer libraries."""
