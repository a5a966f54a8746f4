"""What the tests of the benchmark suite share."""

import pytest

from bench import run


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """A case that is over is collected, so that the next is timed well; here that takes longer than the case."""
    monkeypatch.setattr(run.gc, "collect", lambda: None)
