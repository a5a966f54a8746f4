"""What a user passed: arrays, numbers, words, and the message when one of them cannot be taken.

Here live the checks that know of no window and the exception that says which argument is wrong. They
may look at a shape, a dtype and a Python value, and compute nothing. The arithmetic of windows is in
`_geometry`; a check that only one public function makes stands beside that function in `_api`.
"""
