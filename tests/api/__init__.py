"""The public functions, against the oracle, lax, PyTorch and worked examples."""
