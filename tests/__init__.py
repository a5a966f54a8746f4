"""The tests: one folder for each package of `jaxpool`, and folders for what crosses them; helpers are in `support`."""
