"""Every op under every transformation of jax, and properties of the resulting programs: size, memory, lowering."""
