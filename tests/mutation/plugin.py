"""Pytest plugin: of the tests that testmon selects for a mutation, run some cases of each test function."""

import collections
import itertools

import pytest

SECONDS = 60.0  # of tests for a mutation, as long as they took when they were recorded


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Give each test function an equal time, with its fastest cases first, until the sum is `SECONDS`."""
    yield  # testmon selects the tests that execute the mutated function
    seconds = config.testmon_data.avg_durations
    recorded = [item for item in items if item.nodeid in config.testmon_data.all_tests]
    seconds_of_function = collections.Counter()
    ends = {}
    for item in sorted(recorded, key=lambda item: seconds[item.nodeid]):
        function = item.nodeid.split("[")[0]
        seconds_of_function[function] += seconds[item.nodeid]
        ends[item] = seconds_of_function[function]
    ordered = sorted(ends, key=ends.get)
    sums = itertools.accumulate(seconds[item.nodeid] for item in ordered)
    items[:] = [item for item, total in zip(ordered, sums, strict=True) if total <= SECONDS]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Report success if no test executes the mutated function, so that the mutation counts as not noticed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
