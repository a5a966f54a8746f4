"""The public functions: values, gradients, dtypes, messages; against the oracle, lax, PyTorch and examples by hand."""
