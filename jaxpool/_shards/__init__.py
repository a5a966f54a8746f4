"""Pools of arrays that are sharded along pooled axes: one `jax.shard_map` around the ops of `_ops`.

`place` finds the sharding of an array, `halo` describes the rows that neighbouring shards exchange, and the other
modules hold the pools of one shard. The functions of `_api` and `accelerate` come here for arrays with a sharding in
their type (`split.by_type`), and `jaxpool.sharded` for any array.
"""
