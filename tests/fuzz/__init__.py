"""Fuzzing of the arguments of every public function: `python -m tests.fuzz`."""
