"""Calls of every public function with arguments that a fuzzer chooses: `python -m tests.fuzz`."""
