"""Benchmarks of jaxpool beside lax, PyTorch and TensorFlow: `python -m bench --help`."""
