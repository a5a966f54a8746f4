"""Fixtures of the benchmark tests."""

import pytest

from bench import run


@pytest.fixture(autouse=True)
def disable_gc(monkeypatch):
    """Disable garbage collection after each case: it makes timings reproducible, but takes longer than a small case."""
    monkeypatch.setattr(run.gc, "collect", lambda: None)
