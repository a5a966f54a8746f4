"""Checks of arguments (arrays, numbers, strings) and the error message for an invalid argument.

The checks inspect only shapes, dtypes and Python values, not windows. The arithmetic of windows is in `_geometry`. A
check that only one public function needs is next to this function in `_api`.
"""
