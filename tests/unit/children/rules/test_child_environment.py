"""What a child finds in its environment."""

import json

import pytest

from kcl_mld.children.rules.child_environment import ChildFacts, PythonPath, environment_of_child

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
    more = {"announced": frozenset({"tick"}), "answer_timeout_s": 4.0}
    told = ChildFacts(**FACTS, **more, schemas="/tmp/s", spark={"spark.sink": "é"}).variables()
    assert told["KCL_MLD_SCHEMAS"] == "/tmp/s"
    assert told["KCL_MLD_CAPABILITIES"] == "tick"
    assert told["KCL_MLD_TIMEOUT_S"] == "4"
    assert json.loads(told["KCL_MLD_SPARK"]) == {"spark.sink": "é"}


@pytest.mark.parametrize(
    ("inherited", "added", "path", "expected"),
    [
        ({"A": "1", "B": "1"}, {"B": "2"}, PythonPath(), {"A": "1", "B": "2"}),
        ({"PYTHONPATH": ""}, {}, PythonPath(), {"PYTHONPATH": ""}),
        ({}, {}, PythonPath(last="/z"), {"PYTHONPATH": "/z"}),
        ({"PYTHONPATH": ""}, {}, PythonPath(last="/z"), {"PYTHONPATH": "/z"}),
        ({"PYTHONPATH": "/a:/b"}, {}, PythonPath(last="/z"), {"PYTHONPATH": "/a:/b:/z"}),
        (
            {"PYTHONPATH": "/a"},
            {"PYTHONPATH": "/c"},
            PythonPath(last="/z"),
            {"PYTHONPATH": "/c:/z"},
        ),
        ({}, {}, PythonPath(first="/f"), {"PYTHONPATH": "/f"}),
        ({"PYTHONPATH": "/a"}, {"PYTHONPATH": "/c"}, PythonPath("/f"), {"PYTHONPATH": "/f:/c"}),
    ],
)
def test_the_stand_in_is_looked_for_last_or_first(inherited, added, path, expected):
    assert environment_of_child(inherited, added, path) == expected


def test_one_of_several_children_learns_which():
    facts = ChildFacts(**FACTS, child=3, children=8)
    assert facts.variables() == ChildFacts(**FACTS).variables() | {
        "KCL_MLD_CHILD": "3",
        "KCL_MLD_CHILDREN": "8",
    }
    assert facts.extras() == {}
    words = ("app.py", "{childIndex}", "--to=/d/{childIndex}.db", "{shardId}", "{}")
    assert facts.command(words) == ("app.py", "3", "--to=/d/3.db", "{shardId}", "{}")
    of_many = ChildFacts(**MULTI, child=0, children=2)
    assert of_many.variables().items() >= {"KCL_MLD_CHILD": "0", "KCL_STREAM_ARN": ARN}.items()
    assert of_many.command(words)[1:4] == ("0", "--to=/d/0.db", "shardId-1")


@pytest.mark.parametrize("told", [{}, {"child": 0, "children": 1}])
def test_the_only_child_of_a_shard_learns_nothing_of_children(told):
    for facts in (FACTS, MULTI):
        only = ChildFacts(**facts, **told)
        assert only.variables() == ChildFacts(**facts).variables()
        assert only.command(("app.py", "{childIndex}")) == ("app.py", "{childIndex}")


ARN = "arn:aws:kinesis:us-east-1:1:stream/s"
MULTI = FACTS | {"stream_arn": ARN, "stream_identifier": "1:s:2"}
COMMAND = ("app.py", "{streamName}/{shardId}", "{streamArn} {streamIdentifier}", "{other}", "{")


def test_a_child_of_one_of_many_streams_learns_which():
    facts = ChildFacts(**MULTI)
    assert facts.variables() == ChildFacts(**FACTS).variables() | {
        "KCL_MULTI_STREAM": "true",
        "KCL_STREAM_IDENTIFIER": "1:s:2",
        "KCL_STREAM_ARN": ARN,
    }
    assert list(facts.extras().items()) == [
        ("streamIdentifier", "1:s:2"),
        ("streamName", "s"),
        ("streamArn", ARN),
        ("leaseKey", "1:s:2:shardId-1"),
    ]
    assert facts.command((*COMMAND, "{leaseKey}{applicationName}")) == (
        "app.py",
        "s/shardId-1",
        f"{ARN} 1:s:2",
        "{other}",
        "{",
        "1:s:2:shardId-1app",
    )


def test_with_a_single_stream_nothing_is_added():
    facts = ChildFacts(**FACTS)
    assert facts.extras() == {}
    assert facts.command(COMMAND) == COMMAND
