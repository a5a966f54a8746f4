"""The public functions, by topic: check, describe, call.

Each checks what it was passed in the name of the user's call, describes the work as an op, and calls
it. Here live signatures, docstrings and the checks of single functions. What an op computes and how it
is differentiated is in `_ops`; checks that many functions share are in `_arguments` and `_geometry`.
"""
