"""`python -m jaxpool`."""
