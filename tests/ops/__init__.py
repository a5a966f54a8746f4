"""Derivative rules and what they keep for the backward pass: `jaxpool._ops`. Transformations have their own folder."""
