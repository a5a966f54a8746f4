"""Tests of the public functions: values, gradients, dtypes and messages.

References are the oracle, lax, PyTorch and worked examples.
"""
