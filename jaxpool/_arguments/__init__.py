"""Checks of arguments (arrays, numbers, strings) and the error message for an invalid argument.

A check that only one public function needs is next to this function in `_api`.
"""
