"""The public functions, one module per topic. Each checks its arguments, builds an op and applies it."""
