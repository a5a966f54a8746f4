"""Checks of arguments (arrays, numbers, strings) and the error message for an invalid argument.

The checks look at shapes, dtypes and Python values only, and know nothing about windows. The arithmetic of windows
is in `_geometry`. A check for a single public function is next to that function in `_api`.
"""
