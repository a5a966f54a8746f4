"""Benchmarks of jaxpool against lax, PyTorch and TensorFlow: `python -m bench --help`."""
