"""Pytest plugin: among the tests that testmon selects for a mutation, run a few cases of each test function."""

import collections

import pytest

MOST = 92  # number of tests of a mutation


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Order the tests: one case of each test function, fastest first as testmon sorts them, then a second case."""
    number = collections.Counter()
    cases = []
    for item in items:
        function = item.nodeid.split("[")[0]
        cases.append((number[function], len(cases), item))
        number[function] += 1
    items[:] = [item for *_, item in sorted(cases, key=lambda case: case[:2])][:MOST]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Report success if no test executes the mutated function, so that the mutation counts as not noticed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
