"""The operations: one frozen description each of value, residual, linear map and transpose, and the rules of AD.

`op` attaches derivatives to any `Op`; each other module holds the ops of one topic, what chooses among
them and what only they use. An op takes arrays and a geometry that are known to be right. It says
which kernels make up its four maps, and has none of its own: those are in `_kernels`. Arguments are
checked in `_api`, which nothing here imports.
"""
