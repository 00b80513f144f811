"""What ``kcl-mld doctor`` says of facts."""

from __future__ import annotations

from typing import Any

import pytest

from kcl_mld.config.stream import DYNAMODB_STREAMS
from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    MldError,
    NotFound,
    ServiceError,
    Throttled,
    Unreachable,
)
from kcl_mld.ops.rules.doctor import (
    ERROR,
    FILES_OF_WORKER,
    OK,
    THREADS_OF_WORKER,
    WARNING,
    Attempt,
    ChildTrial,
    EndpointFact,
    Identity,
    MachineLimits,
    MostHeld,
    StreamFacts,
    TableFacts,
    judge_child,
    judge_clock,
    judge_endpoints,
    judge_identity,
    judge_limits,
    judge_permissions,
    judge_stream,
    judge_table,
    most_held,
)

NOT_FOUND = NotFound("X", "ResourceNotFoundException")
DENIED = Denied("X", "AccessDeniedException")
SUMMARY = {"StreamStatus": "ACTIVE", "OpenShardCount": 4, "RetentionPeriodHours": 24}
TABLE: dict[str, Any] = {
    "TableStatus": "ACTIVE",
    "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
}
MIB = 2**20


def test_the_identity_is_that_of_this_shell():
    known = judge_identity(Identity(key="K", provider="env", arn="arn:aws:iam::1:user/u"))
    assert known.severity is OK
    assert "arn:aws:iam::1:user/u, by the provider env, in this shell" in known.text
    unknown = judge_identity(Identity(key="K", provider="env", why="no answer"))
    assert (unknown.severity, "not known (no answer)" in unknown.text) == (OK, True)
    none = judge_identity(Identity(key="K", why="no credentials found"))
    assert (none.severity, none.text) == (ERROR, "no credentials found")
    assert none.severity.word == "error"


@pytest.mark.parametrize(
    ("ahead_s", "severity", "text"),
    [
        (None, WARNING, "not compared"),
        (0.0, OK, "within 2 s"),
        (-59.9, OK, "within 60 s"),
        (60.0, WARNING, "60 s ahead of"),
        (-299.9, WARNING, "300 s behind"),
        (-300.0, ERROR, "300 s behind"),
    ],
)
def test_the_clock_may_be_a_minute_off(ahead_s, severity, text):
    check = judge_clock(ahead_s)
    assert check.severity is severity
    assert text in check.text


def test_endpoints_of_the_environment_are_asked_about():
    aws = EndpointFact("kinesis", "https://kinesis.us-east-1.amazonaws.com")
    (check,) = judge_endpoints([aws])
    assert (check.severity, check.todo) == (OK, "")
    of_file = EndpointFact("kinesis", "http://k", "property kinesisEndpoint", is_of_file=True)
    of_shell = EndpointFact("dynamodb", "http://d", "environment AWS_ENDPOINT_URL")
    found = list(judge_endpoints([of_file, of_shell, aws]))
    assert [(one.subject, one.severity) for one in found] == [
        ("endpoint kinesis", OK),
        ("endpoint dynamodb", WARNING),
    ]
    assert found[1].text == "http://d, by environment AWS_ENDPOINT_URL"


@pytest.mark.parametrize(
    ("change", "severity", "text"),
    [
        ({}, OK, "ACTIVE, 4 open shards, keeps records for 24 hours"),
        ({"StreamStatus": "UPDATING"}, OK, "UPDATING"),
        ({"StreamStatus": "DELETING"}, ERROR, "DELETING"),
        ({"StreamStatus": "DISABLED"}, WARNING, "DISABLED"),
        ({"OpenShardCount": None}, OK, "ACTIVE, keeps records for 24 hours"),
        ({"EncryptionType": "KMS", "KeyId": "k"}, OK, "encrypted with k: readers need kms:Decrypt"),
    ],
)
def test_a_stream_must_be_active(change, severity, text):
    (check,) = judge_stream(StreamFacts(name="s", summary=SUMMARY | change))
    assert (check.subject, check.severity) == ("stream s", severity)
    assert text in check.text


@pytest.mark.parametrize(
    ("error", "severity", "todo"),
    [
        (NOT_FOUND, ERROR, "create it"),
        (CredentialsRefused("X", "ExpiredTokenException"), ERROR, "renew the credentials"),
        (DENIED, WARNING, "kcl-mld iam"),
        (Throttled("X", "Throttling"), WARNING, "later"),
        (ServiceError("X", "ValidationException"), ERROR, "correct"),
        (Unreachable("X", "ConnectTimeoutError"), ERROR, "network"),
        (MldError("odd"), ERROR, "network"),
    ],
)
def test_what_is_not_described_is_judged_by_its_error(error, severity, todo):
    (check,) = judge_stream(StreamFacts(name="s", error=error))
    assert check.severity is severity
    assert str(error) in check.text
    assert todo in check.todo
    if error is not NOT_FOUND:
        (check,) = judge_table(TableFacts(name="t", error=error))
        assert (check.subject, check.severity) == ("table t", severity)


@pytest.mark.parametrize(
    ("status", "severity"), [("", OK), ("ACTIVE", OK), ("CREATING", OK), ("DELETING", WARNING)]
)
def test_a_consumer_may_be_missing(status, severity):
    _, check = judge_stream(StreamFacts(name="s", summary=SUMMARY, consumer=status))
    assert (check.subject, check.severity) == ("consumer of s", severity)


def test_a_table_may_be_missing_and_must_be_a_lease_table():
    (check,) = judge_table(TableFacts(name="t", error=NOT_FOUND))
    assert (check.severity, "first worker creates it" in check.text) == (OK, True)
    (check,) = judge_table(TableFacts(name="t", table=TABLE))
    assert (check.severity, check.text) == (OK, "ACTIVE, a lease table")
    (check,) = judge_table(TableFacts(name="t", table=TABLE | {"TableStatus": "CREATING"}))
    assert check.severity is ERROR
    encrypted = TABLE | {"SSEDescription": {"KMSMasterKeyArn": "k"}, "TableStatus": "UPDATING"}
    (check,) = judge_table(TableFacts(name="t", table=encrypted))
    assert (check.severity, "encrypted with k" in check.text) == (OK, True)
    other = TABLE | {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}
    (check,) = judge_table(TableFacts(name="t", table=other))
    assert (check.severity, "no lease table" in check.text) == (ERROR, True)


@pytest.mark.parametrize(
    ("status", "severity"), [(None, WARNING), ("CREATING", WARNING), ("ACTIVE", OK)]
)
def test_an_assigned_fleet_wants_its_index(status, severity):
    index = {"IndexName": "LeaseOwnerToLeaseKeyIndex", "IndexStatus": status}
    table = TABLE | ({"GlobalSecondaryIndexes": [index]} if status else {})
    _, check = judge_table(TableFacts(name="t", table=table, is_assigned=True))
    assert check.severity is severity


def test_permissions_are_tried_denied_or_not_tried():
    needed = ["k:Read", "k:List", "k:See", "k:Write", "k:Read"]
    found = list(
        judge_permissions(
            [
                Attempt("k:Read", "stream s"),
                Attempt("k:List", "stream s", NOT_FOUND),
                Attempt("k:See", "stream s", DENIED),
                Attempt("k:See", "stream t"),
            ],
            needed,
        )
    )
    assert [(one.subject, one.severity) for one in found] == [
        ("k:See", ERROR),
        ("permissions", OK),
        ("not tried", OK),
    ]
    assert "denied on stream s" in found[0].text
    assert found[1].text.endswith(": k:Read, k:List")
    assert found[2].text == "k:Write"


def test_credentials_that_are_refused_say_nothing_of_permissions():
    refused = Attempt("k:Read", "stream s", CredentialsRefused("X", "ExpiredTokenException"))
    (check,) = judge_permissions([refused], ["k:Read"])
    assert (check.subject, check.text) == ("not tried", "k:Read")
    assert list(judge_permissions([], [])) == []


def test_limits_are_those_for_all_shards_in_one_worker():
    most = MostHeld(10, 10)
    checks = list(judge_limits(MachineLimits(), most, None))
    assert [one.severity for one in checks] == [OK] * 3
    files, processes = 50 + FILES_OF_WORKER, 10 + THREADS_OF_WORKER
    enough = MachineLimits(files=files, processes=processes, memory_bytes=1000 * MIB)
    assert [one.severity for one in judge_limits(enough, most, None)] == [OK] * 3
    assert [one.severity for one in judge_limits(enough, most, 99 * MIB)] == [OK] * 3
    few = MachineLimits(files=files - 1, processes=processes - 1, memory_bytes=1000 * MIB)
    checks = list(judge_limits(few, most, 100 * MIB))
    assert [one.severity for one in checks] == [WARNING] * 3
    assert "one worker with 10 shards needs about 250" in checks[0].text
    assert "ulimit -n" in checks[0].todo
    assert "threads of the children" in checks[1].text
    assert "10 children take 1000 MiB" in checks[2].text


def test_limits_count_each_child_of_a_shard():
    most = MostHeld(10, 80)
    files, processes = 10 + 320 + FILES_OF_WORKER, 80 + THREADS_OF_WORKER
    enough = MachineLimits(files=files, processes=processes, memory_bytes=1000 * MIB)
    assert [one.severity for one in judge_limits(enough, most, 12 * MIB)] == [OK] * 3
    few = MachineLimits(files=files - 1, processes=processes - 1, memory_bytes=1000 * MIB)
    checks = list(judge_limits(few, most, 13 * MIB))
    assert [one.severity for one in checks] == [WARNING] * 3
    assert "one worker with 10 shards and 80 children needs about 530" in checks[0].text
    assert "80 children take 1040 MiB" in checks[2].text


@pytest.mark.parametrize(
    ("streams", "limit", "most"),
    [
        ([(4, 1)], 2**31 - 1, MostHeld(4, 4)),
        ([(4, 1)], 3, MostHeld(3, 3)),
        ([(4, 8)], 100, MostHeld(4, 32)),
        ([(4, 1), (3, 8), (2, 2)], 100, MostHeld(9, 32)),
        ([(4, 1), (3, 8), (2, 2)], 4, MostHeld(4, 26)),
        ([], 4, MostHeld(0, 0)),
    ],
)
def test_of_a_bound_of_leases_those_with_most_children_count(streams, limit, most):
    assert most_held(streams, limit) == most


def test_a_child_is_judged_by_its_answers():
    good = judge_child(ChildTrial(answered_s=0.25, resident_bytes=20 * MIB))
    assert (good.severity, good.text) == (
        OK,
        "answered initialize after 0.2 s, 20 MiB, and leaseLost",
    )
    assert "MiB" not in judge_child(ChildTrial(answered_s=1.0)).text
    assert judge_child(ChildTrial(error="it died")).severity is ERROR


def test_of_a_table_without_a_stream_the_cure_is_another_arn():
    missing = StreamFacts(name="s", error=NotFound("DescribeStream", "ResourceNotFoundException"))
    (check,) = judge_stream(missing, DYNAMODB_STREAMS)
    assert (check.severity, "enable its stream" in check.todo) == (ERROR, True)
    summary = SUMMARY | {"StreamStatus": "DISABLED", "NewerStreamARN": "arn:newer"}
    (check,) = judge_stream(StreamFacts(name="s", summary=summary), DYNAMODB_STREAMS)
    assert check.text.endswith("the table's newest stream is arn:newer")
    assert check.todo == "name the newest stream of the table"
