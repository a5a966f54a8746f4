"""Pytest plugin for mutation testing: for each mutation, run as many of the selected tests as a time limit allows."""

import collections
import itertools

import pytest

SECONDS = 60.0  # time limit of the tests of a mutation: the sum of their recorded durations


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Sort tests by the seconds that the test function needs up to this case, if it runs its fastest cases first."""
    yield  # testmon selects the tests that execute the mutated function
    seconds = config.testmon_data.avg_durations
    recorded = [item for item in items if item.nodeid in config.testmon_data.all_tests]
    elapsed = collections.Counter()  # of each test function
    elapsed_after = {}  # a case of the function
    for item in sorted(recorded, key=lambda item: seconds[item.nodeid]):
        function = item.nodeid.split("[")[0]
        elapsed[function] += seconds[item.nodeid]
        elapsed_after[item] = elapsed[function]
    ordered = sorted(elapsed_after, key=elapsed_after.get)
    sums = itertools.accumulate(seconds[item.nodeid] for item in ordered)
    items[:] = [item for item, total in zip(ordered, sums, strict=True) if total <= SECONDS]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Report success if no test executes the mutated function, so that the mutation counts as not noticed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
