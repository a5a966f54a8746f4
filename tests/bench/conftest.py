"""Fixtures of the benchmark tests."""

import pytest

from bench import run


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """Disable garbage collection after each case: it makes timings reproducible, but takes longer than a small case."""
    monkeypatch.setattr(run.gc, "collect", lambda: None)
