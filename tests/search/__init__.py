"""Random programs of all platforms, each compared with the oracle on many arrays."""
