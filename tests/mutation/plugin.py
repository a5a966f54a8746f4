"""Pytest plugin: among the tests that testmon selects for a mutation, run a few cases of each test function."""

import collections

import pytest

MOST = 92  # number of tests of a mutation


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Order the recorded tests: the fastest case of each test function, fastest first, then the second cases."""
    yield  # testmon selects the tests that execute the mutated function
    seconds = config.testmon_data.avg_durations
    recorded = [item for item in items if item.nodeid in config.testmon_data.all_tests]
    number = collections.Counter()
    cases = []
    for item in sorted(recorded, key=lambda item: seconds[item.nodeid]):
        function = item.nodeid.split("[")[0]
        cases.append((number[function], len(cases), item))
        number[function] += 1
    items[:] = [item for *_, item in sorted(cases, key=lambda case: case[:2])][:MOST]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Report success if no test executes the mutated function, so that the mutation counts as not noticed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
