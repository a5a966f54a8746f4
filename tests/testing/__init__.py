"""Tests of `jaxpool.testing`: the records, the oracle and `assert_pool_matches`."""
