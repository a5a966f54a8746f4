"""Pools of arrays that lie on several devices along pooled axes: one `jax.shard_map` around the ops of `_ops`.

Here live where an array lies on a mesh (`place`), what neighbours send each other (`halo`), what a pool must be told
of rows beyond the array (`ops`), and the pools of one shard. The plain functions and `accelerate` come here with
arrays whose type says how they are sharded (`split.by_type`), the functions of `sharded` with all.
"""
