"""Random programs of all platforms, compared with the oracle on many arrays, and odd calls of all functions."""
