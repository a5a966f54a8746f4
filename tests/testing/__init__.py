"""`jaxpool.testing`: the oracle and `assert_pool_matches` themselves."""
