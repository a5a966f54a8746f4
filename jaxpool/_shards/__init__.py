"""Pools of arrays whose type is sharded: one `jax.shard_map` around the ops of `_ops`.

`split` calls a function on the shards, `halo` describes the rows that neighbouring shards exchange, and the other
modules contain the pools of one shard. Arrays of one device do not enter this package.
"""
