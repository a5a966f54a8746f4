"""Pytest plugin: of the tests that testmon selects for a mutation, run the fastest cases of each test function."""

import collections
import itertools

import pytest

SECONDS = 60.0  # maximum sum of the recorded times of the tests for one mutation


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Select tests of `SECONDS` in total: about equal time for each test function, its fastest cases first."""
    yield  # testmon selects the tests that execute the mutated function
    seconds = config.testmon_data.avg_durations
    recorded = [item for item in items if item.nodeid in config.testmon_data.all_tests]
    seconds_of_function = collections.Counter()
    seconds_up_to = {}  # time of the cases of the function up to and including this case
    for item in sorted(recorded, key=lambda item: seconds[item.nodeid]):
        function = item.nodeid.split("[")[0]
        seconds_of_function[function] += seconds[item.nodeid]
        seconds_up_to[item] = seconds_of_function[function]
    ordered = sorted(seconds_up_to, key=seconds_up_to.get)
    sums = itertools.accumulate(seconds[item.nodeid] for item in ordered)
    within = [item for item, total in zip(ordered, sums, strict=True) if total <= SECONDS]
    items[:] = within or ordered[:1]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Report success if no test executes the mutated function, so that the mutation counts as not noticed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
