"""Pools of arrays that are sharded along pooled axes: one `jax.shard_map` around the ops of `_ops`.

`split` finds the sharding of an array, `halo` describes the rows that neighbouring shards exchange, and the other
modules contain the pools of one shard. `_api` and `accelerate` call this package for arrays with a sharding in their
type (`split.shard_pool_by_type`), and `jaxpool.sharded` calls the package for any array.
"""
