"""The example programs run, and learn."""
