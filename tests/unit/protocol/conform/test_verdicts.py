"""Verdicts and evidence on daemons and children that are scripted in this process."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from kcl_mld_protocol import (
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    encode,
    errors,
)
from kcl_mld_protocol.conform import child, daemon_cases, startup_cases
from kcl_mld_protocol.conform.child import ChildKit
from kcl_mld_protocol.conform.daemon import Cloud, DaemonKit, DaemonRun
from kcl_mld_protocol.conform.peer import Exchange
from kcl_mld_protocol.events import JunkLine
from kcl_mld_protocol.messages import CheckpointRequest

INITIALIZE = encode(Initialize("shardId-000000000000", "TRIM_HORIZON", 0)).decode().strip()
STARTED = (("in", INITIALIZE),)


class Table(Cloud):
    """An AWS of which only the lease table is looked at."""

    kinesis_url = "http://127.0.0.1:1"
    dynamodb_url = "http://127.0.0.1:2"

    def lease_rows(self, table):
        return [{"leaseKey": "shardId-000000000000", "checkpoint": "9"}]


class SeenRun(DaemonRun):
    """A run that is over: what it said, its exit code, and what its one child recorded."""

    def __init__(self, folder, output, record, code):
        folder.mkdir(exist_ok=True)
        self.folder, self._code = folder, code
        self._out_path, self._err_path = folder / "stdout", folder / "stderr"
        self._out_path.write_text(output)
        self._err_path.write_text("")
        entries = [
            json.dumps({"t": at, "dir": direction, "what": what})
            for at, (direction, what) in enumerate(record)
        ]
        (folder / "child-1.jsonl").write_text("\n".join(entries))

    def exit_code(self, timeout_s):
        return self._code

    def signal(self, number):
        pass

    def kill(self):
        pass

    def wait_for(self, condition, timeout_s):
        return bool(condition(self))


class ScriptedDaemon(DaemonKit):
    """A kit whose runs all say the same.

    Args:
        folder: for the runs' files.
        implementation: see the base class.
        output: on stdout of the daemon.
        record: of its child; a function gets the child's script.
        validated: on stdout of ``validate``.
    """

    def __init__(self, folder, implementation, output="", record=STARTED, validated=""):
        super().__init__(["daemon", "{properties}"], implementation, Table(), folder)
        self._output, self._record, self._validated = output, record, validated

    def start(self, name, changes=None, script=None, **_):
        record = self._record(script) if callable(self._record) else self._record
        return SeenRun(self.folder_of(name), self._output, record, None)

    def start_with(self, name, *arguments, files):
        assert arguments[:2] == ("validate", "--json")
        return SeenRun(self.folder_of(name), self._validated, (), 0)


def seen(findings):
    return {finding.item_id: (finding.verdict.value, finding.evidence) for finding in findings}


def test_a_value_shows_in_javas_log_or_not_at_all(tmp_path):
    kit = ScriptedDaemon(tmp_path, "java", "INFO With failover time 10000 ms\n")
    found = seen(startup_cases.effective_values(kit))
    assert found["CFG-09"] == ("pass", "its log says: With failover time 10000 ms")
    assert found["CFG-11"] == ("fail", "its log does not say: With failover time 20000 ms")
    assert found["CFG-12"] == ("not testable", "the daemon starts; the value does not show")


@pytest.mark.parametrize(
    ("validated", "expected"),
    [
        ("no json\n", ("fail", "validate said 'no json'")),
        ("[]", ("fail", "validate said '[]'")),
        ('{"settings": {}}', ("fail", "validate said '{\"settings\": {}}'")),
        (
            '{"settings": {"failoverTimeMillis": {"value": "100"}}}',
            ("fail", "validate: failoverTimeMillis is 100"),
        ),
        (
            '{"settings": {"failoverTimeMillis": {"value": "10000"}}}',
            ("pass", "validate: failoverTimeMillis is 10000"),
        ),
    ],
)
def test_a_value_is_what_validate_says(tmp_path, validated, expected):
    kit = ScriptedDaemon(tmp_path, "kcl-mld", validated=validated)
    assert seen(startup_cases.effective_values(kit))["CFG-09"] == expected


@pytest.mark.parametrize(
    ("log", "verdict"), [("WARN Unsupported nested key: foo=bar\n", "pass"), ("", "fail")]
)
def test_java_has_to_log_the_words_that_it_ignores(tmp_path, log, verdict):
    kit = ScriptedDaemon(tmp_path, "java", log)
    found, evidence = seen(startup_cases.odd_assume_role_words(kit))["CRED-09"]
    assert found == verdict
    assert evidence.endswith(f"the word is in its log: {bool(log)}")


def answers(script):
    """Each request of the script with the answer that the reference gives."""
    named = {"$first": "7", "$last": "9", "$above": "10"}
    for _, where, sub in script["processRecords"][0][:-1]:
        position = named.get(where, where)
        good = where in {"$first", "$last", None} and sub is None
        error = None if good else errors.ILLEGAL_ARGUMENT
        asked = {"action": "checkpoint", "sequenceNumber": position, "subSequenceNumber": sub}
        answer = encode(CheckpointResult(position, sub, error)).decode().strip()
        yield ("out", json.dumps(asked)), ("in", answer)


def record_of_checkpoints(script, *, in_turn):
    records = tuple(Record("", "k", number, 1) for number in ("7", "8", "9"))
    refused = encode(CheckpointResult("1", None, errors.INVALID_STATE)).decode().strip()
    pairs = list(answers(script))
    first, second = pairs[:2]
    head = [*first, *second] if in_turn else [first[0], second[0], first[1], second[1]]
    return [
        *STARTED,
        ("out", '{"action": "checkpoint", "sequenceNumber": "1", "subSequenceNumber": null}'),
        ("in", refused),
        ("in", encode(ProcessRecords(records, 0)).decode().strip()),
        *head,
        *(entry for pair in pairs[2:] for entry in pair),
        ("in", encode(LeaseLost()).decode().strip()),
        ("in", refused),
    ]


def test_checkpoints_that_are_answered_in_turn_pass(tmp_path):
    def record(script):
        return record_of_checkpoints(script, in_turn=True)

    kit = ScriptedDaemon(tmp_path, "kcl-mld", record=record)
    found = seen(daemon_cases.many_checkpoints(kit))
    assert {verdict for verdict, _ in found.values()} == {"pass"}
    assert found["CKPT-21"] == ("pass", "11 requests answered in order")


def test_a_second_request_before_the_first_answer_fails(tmp_path):
    def record(script):
        return record_of_checkpoints(script, in_turn=False)

    kit = ScriptedDaemon(tmp_path, "kcl-mld", record=record)
    found = seen(daemon_cases.many_checkpoints(kit))
    assert {item for item, (verdict, _) in found.items() if verdict == "fail"} == {"CKPT-21"}


class ScriptedPeer:
    """A child that does the same with every action; ``code`` None = it outlives everything."""

    stderr = b"probe: initialize"

    def __init__(self, exchange, stdout, code):
        self._exchange, self.stdout, self._code = exchange, stdout, code

    def send(self, message, answer=None):
        return self._exchange

    def write_raw(self, line):
        pass

    def close_stdin(self):
        pass

    def surplus_statuses(self):
        return []

    def wait_exit(self, timeout_s):
        return self._code


class ScriptedChild(ChildKit):
    """A kit whose children are all the same."""

    def __init__(self, exchange, stdout=b"", code=0):
        super().__init__(["child"])
        self._peer = ScriptedPeer(exchange, stdout, code)

    @contextmanager
    def peer(self, **_):
        yield self._peer


def test_a_child_that_outlives_a_deadly_line_is_no_kclpy():
    found = seen(child.deadly_lines(ScriptedChild(Exchange(answered=True), code=None)))
    assert found == dict.fromkeys(("PY-08", "PY-09", "PY-10", "PY-11"), ("fail", "still running"))


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":0}', "pass"),
        ('{"action":"checkpoint"', "fail"),
        ('["checkpoint"]', "fail"),
        ('{"action":"checkpoint","checkpoint":"1"}', "fail"),
        ('{"action":"checkpoint","sequenceNumber":1}', "fail"),
        ('{"action":"checkpoint","subSequenceNumber":"1"}', "fail"),
    ],
)
def test_a_checkpoint_request_is_one_object_of_known_fields(line, verdict):
    exchange = Exchange(answered=True, checkpoints=[CheckpointRequest("1", 0)])
    kit = ScriptedChild(exchange, f"text\n{line}\n".encode())
    assert seen(child.life_of_a_lease(kit))["CHILD-11"] == (verdict, line)


def test_a_request_that_daemons_skip_is_shown():
    legacy = b'{"action":"checkpoint","checkpoint":"12"}'
    exchange = Exchange(answered=True, junk=[JunkLine(legacy, "unknown field")])
    found = seen(child.end_of_a_shard(ScriptedChild(exchange)))
    verdict, evidence = found["CHILD-11"]
    assert verdict == "fail"
    assert evidence.startswith('a request that a daemon skips: b\'{"action"')
