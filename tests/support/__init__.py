"""Helpers shared by tests: compiler options, random arrays, and reference results of each op. No tests."""
