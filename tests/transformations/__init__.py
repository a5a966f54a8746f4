"""Every op under every transformation of jax, and the programs that come out: size, memory, lowering."""
