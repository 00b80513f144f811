"""Coverage traces the tests that show lines, and no others."""

import contextlib
import os
import sys

import pytest

from tests import tracing


def test_every_file_that_is_not_traced_is_there():
    for place in (*tracing.UNTRACED, *tracing.ALONE):
        assert (tracing._TESTS / place).exists(), place


@pytest.mark.untraced
def test_an_untraced_test_runs_without_the_tracer_and_gives_it_back(request):
    def tracer(*_event):
        return None

    hook = tracing.pytest_runtest_call(request.node)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        next(hook)
        during = sys.gettrace()
        with contextlib.suppress(StopIteration):
            hook.send(None)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert during is None
    assert after is tracer


@pytest.mark.untraced
def test_processes_of_an_untraced_test_are_not_traced():
    assert "COVERAGE_PROCESS_CONFIG" not in os.environ
