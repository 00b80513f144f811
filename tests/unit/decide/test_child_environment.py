"""What a child finds in its environment."""

import json

import pytest

from mld.decide.child_environment import ChildFacts, environment_of_child

FACTS = {
    "shard_id": "shardId-1",
    "lease_key": "1:s:2:shardId-1",
    "stream_name": "s",
    "application_name": "app",
    "worker_id": "w",
    "pid": 7,
}


def test_what_is_always_told():
    assert ChildFacts(**FACTS).variables() == {
        "KCL_SHARD_ID": "shardId-1",
        "KCL_LEASE_KEY": "1:s:2:shardId-1",
        "KCL_STREAM_NAME": "s",
        "KCL_APPLICATION_NAME": "app",
        "KCL_WORKER_ID": "w",
        "KCL_MLD_PID": "7",
    }


def test_what_is_told_where_it_is_there():
    more = {"announced": frozenset({"tick", "intent"}), "answer_timeout_s": 4.0}
    told = ChildFacts(**FACTS, **more, spark={"spark.sink": "é"}).variables()
    assert told["KCL_MLD_CAPABILITIES"] == "intent,tick"
    assert told["KCL_MLD_TIMEOUT_S"] == "4"
    assert json.loads(told["KCL_MLD_SPARK"]) == {"spark.sink": "é"}


@pytest.mark.parametrize(
    ("inherited", "added", "shim", "expected"),
    [
        ({"A": "1", "B": "1"}, {"B": "2"}, None, {"A": "1", "B": "2"}),
        ({}, {}, "/shim", {"PYTHONPATH": "/shim"}),
        ({"PYTHONPATH": ""}, {}, "/shim", {"PYTHONPATH": "/shim"}),
        ({"PYTHONPATH": "/a:/b"}, {}, "/shim", {"PYTHONPATH": "/a:/b:/shim"}),
        ({"PYTHONPATH": "/a"}, {"PYTHONPATH": "/c"}, "/shim", {"PYTHONPATH": "/c:/shim"}),
    ],
)
def test_the_stand_in_is_looked_for_last(inherited, added, shim, expected):
    assert environment_of_child(inherited, added, shim) == expected
