"""Whether a worker does its job."""

from __future__ import annotations

import pytest

from mld.decide.readiness import Condition, Reason, readiness

DELETED = Condition(Reason.STREAM_DELETED, "stream orders was deleted")


def test_a_running_worker_is_ready_without_any_lease():
    assert readiness("running", ()).as_dict() == {"ready": True, "state": "running", "reasons": []}


@pytest.mark.parametrize("state", ["starting", "stopping", "stopped"])
def test_a_worker_that_does_not_run_is_not_ready(state):
    assert readiness(state, ()).as_dict() == {
        "ready": False,
        "state": state,
        "reasons": [{"reason": "not_running", "message": f"the worker is {state}"}],
    }


def test_what_a_service_reported_makes_it_unready():
    answer = readiness("running", (DELETED,))
    assert not answer.is_ready
    assert answer.as_dict()["reasons"] == [
        {"reason": "stream_deleted", "message": "stream orders was deleted"}
    ]
    assert readiness("stopping", (DELETED,)).reasons[1] == DELETED
