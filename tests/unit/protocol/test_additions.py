"""Ticks and failures: announced, said, and never used unasked."""

from __future__ import annotations

import io

import pytest

from kcl_mld_protocol import (
    CAPABILITIES,
    NEED_DATA,
    Action,
    ChildConnection,
    DaemonConnection,
    IgnoredMessage,
    Initialize,
    Junk,
    JunkLine,
    LocalProtocolError,
    ProcessRecords,
    Record,
    ShutdownRequested,
    State,
    Status,
    StatusReceived,
    Tick,
    TickRequested,
    capabilities,
    child,
    decode_from_child,
    encode,
)
from kcl_mld_protocol.additions import is_tick

ANNOUNCED = {"KCL_MLD_CAPABILITIES": "more,tick"}
START = Initialize("shardId-0", "40", 0)
BATCH = ProcessRecords((), 5)


def daemon_with_batch(announced=CAPABILITIES):
    daemon = DaemonConnection("shardId-0", announced=announced)
    daemon.send(START)
    daemon.receive_data(encode(Status("initialize")))
    assert daemon.next_event() == StatusReceived(Action.INITIALIZE)
    daemon.send(BATCH)
    return daemon


def child_with_batch(announced=CAPABILITIES):
    connection = ChildConnection(announced=announced)
    connection.receive_data(encode(START) + encode(BATCH))
    assert connection.next_event() == START
    connection.send(Status("initialize"))
    assert connection.next_event() == BATCH
    return connection


# -- announcing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("more,tick", {"tick"}),
        (" tick , teleport", {"tick"}),
        ("", set()),
        ("Tick", set()),
    ],
)
def test_the_environment_says_what_the_daemon_can_do(text, found):
    assert capabilities({"KCL_MLD_CAPABILITIES": text}) == found


def test_a_daemon_that_announces_nothing_can_do_nothing():
    assert capabilities({}) == set()


# -- lines -------------------------------------------------------------------------------------


def test_the_lines_are_as_documented():
    assert encode(Tick(1.0)) == b'{"action":"tick","seconds":1.0}\n'


def test_a_line_that_was_not_announced_is_junk_as_in_java():
    verdict = decode_from_child(b'{"action":"tick","seconds":1}')
    assert isinstance(verdict, Junk)
    assert "unknown action" in verdict.reason


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"action":"tick","seconds":1}', Tick(1.0)),
        (b'{"action":"tick","seconds":"1"}', Tick(None)),
        (b'{"action":"tick","seconds":true}', Tick(None)),
        (b'{"action":"tick"}', Tick(None)),
        (b'{"action":"tick","seconds":1e999}', Tick(float("inf"))),
        (b'["tick",{"seconds":1}]', Tick(1.0)),
    ],
)
def test_an_announced_line_is_read_as_kindly_as_the_others(line, message):
    assert decode_from_child(line, CAPABILITIES) == message


@pytest.mark.parametrize(
    "line",
    [
        b'{"action":"tick","seconds":1,"more":2}',
    ],
)
def test_an_announced_line_with_a_stray_field_is_junk(line):
    assert isinstance(decode_from_child(line, CAPABILITIES), Junk)


@pytest.mark.parametrize(
    ("seconds", "fine"),
    [(0.1, True), (3600.0, True), (0.09, False), (3601.0, False), (None, False), (-1.0, False)],
)
def test_a_tick_is_neither_too_short_nor_too_long(seconds, fine):
    assert is_tick(seconds) is fine
    assert not is_tick(float("nan"))


# -- the two ends ------------------------------------------------------------------------------


def test_a_tick_is_asked_for_in_passing():
    daemon, connection = daemon_with_batch(), child_with_batch()
    daemon.receive_data(connection.send(Tick(0.5)) + connection.send(Status("processRecords")))
    assert daemon.next_event() == TickRequested(0.5)
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)


def test_a_daemon_that_did_not_announce_them_reports_junk():
    daemon = daemon_with_batch(announced=())
    daemon.receive_data(b'{"action":"tick","seconds":1}\n')
    assert isinstance(daemon.next_event(), JunkLine)
    assert daemon.state is State.AWAITING_PROCESS_RECORDS


def test_a_child_never_says_what_was_not_announced():
    connection = child_with_batch(announced={"teleport"})
    with pytest.raises(LocalProtocolError, match="not announced tick"):
        connection.send(Tick(1.0))
    assert connection.state is State.HANDLING_PROCESS_RECORDS


def test_a_keep_alive_is_a_message_that_every_daemon_ignores():
    daemon, connection = daemon_with_batch(announced=()), child_with_batch(announced=())
    daemon.receive_data(connection.keep_alive())
    assert daemon.next_event() == IgnoredMessage(Action.LEASE_LOST)
    assert daemon.next_event() is NEED_DATA
    connection.send(Status("processRecords"))
    with pytest.raises(LocalProtocolError, match="keep-alive is not possible in state IDLE"):
        connection.keep_alive()


# -- the runner --------------------------------------------------------------------------------


class Writer(child.RecordProcessor):
    """Wants ticks."""

    tick_s = 2.0

    def __init__(self):
        self.start = None

    def initialize(self, initialize_input):
        self.start = initialize_input

    def process_records(self, process_records_input):
        pass


def serve(processor, *messages, environ=None):
    out = io.BytesIO()
    child.run(processor, io.BytesIO(b"".join(map(encode, messages))), out, environ or {})
    return out.getvalue().splitlines()


def test_the_runner_asks_for_ticks():
    assert serve(Writer(), START, BATCH, environ=ANNOUNCED) == [
        b'{"action":"tick","seconds":2.0}',
        b'{"action":"status","responseFor":"initialize"}',
        b'{"action":"status","responseFor":"processRecords"}',
    ]


def test_the_announcement_is_found_in_the_environment_of_the_process(monkeypatch):
    monkeypatch.setenv("KCL_MLD_CAPABILITIES", "tick")
    out = io.BytesIO()
    child.run(Writer(), io.BytesIO(encode(START)), out)
    assert out.getvalue().startswith(encode(Tick(2.0)))


def test_the_runner_says_nothing_new_to_a_daemon_that_announces_nothing():
    assert serve(Writer(), START, BATCH) == [
        b'{"action":"status","responseFor":"initialize"}',
        b'{"action":"status","responseFor":"processRecords"}',
    ]


def test_a_program_that_wants_no_ticks_gets_none():
    class Quiet(Writer):
        tick_s = None

    quiet = Quiet()
    assert len(serve(quiet, START, BATCH, environ=ANNOUNCED)) == 2
    assert quiet.start.sequence_number == "40"


# --- a status that says that its action has failed

FAILED = Status("processRecords", "cannot parse", "7", 2)
FAILED_LINE = (
    b'{"action":"status","responseFor":"processRecords","failure":"cannot parse"'
    b',"failedSequenceNumber":"7","failedSubSequenceNumber":2}\n'
)


def test_a_failure_is_written_and_read():
    assert encode(FAILED) == FAILED_LINE
    assert decode_from_child(FAILED_LINE[:-1], CAPABILITIES) == FAILED
    bare = Status("processRecords", "why")
    assert encode(bare) == (b'{"action":"status","responseFor":"processRecords","failure":"why"}\n')
    assert decode_from_child(encode(bare)[:-1], CAPABILITIES) == bare


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b',"failure":null', Status("processRecords")),
        (b',"failedSequenceNumber":"7"', Status("processRecords", "", "7")),
        (b',"failure":"why","failedSequenceNumber":7', Status("processRecords", "why", "7")),
        (b',"failedSubSequenceNumber":null', Status("processRecords")),
    ],
)
def test_a_status_that_names_a_record_has_failed(fields, status):
    line = b'{"action":"status","responseFor":"processRecords"%s}' % fields
    assert decode_from_child(line, CAPABILITIES) == status


def test_without_the_announcement_a_failure_is_junk():
    assert isinstance(decode_from_child(FAILED_LINE[:-1], {"tick", "log"}), Junk)
    child = child_with_batch({"tick"})
    with pytest.raises(LocalProtocolError, match="not announced failure"):
        child.send(FAILED)


def test_a_failure_ends_the_action_like_any_status():
    daemon, child = daemon_with_batch(), child_with_batch()
    daemon.receive_data(child.send(FAILED))
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS, FAILED)
    assert daemon.state is State.IDLE


class Parsing(child.RecordProcessor):
    """Can't process any record."""

    def process_records(self, process_records_input):
        raise child.RecordFailed(process_records_input.records[0], "cannot parse")

    def shutdown_requested(self, shutdown_requested_input):
        raise child.RecordFailed(Record("", "k", "1", 1), "too late")


ONE = ProcessRecords((Record("", "k", "7", 1, 2),), 0)


def test_the_runner_says_which_record_failed():
    said = serve(Parsing(), START, ONE, environ={"KCL_MLD_CAPABILITIES": "failure"})
    assert said[-1] == FAILED_LINE[:-1]


@pytest.mark.parametrize(
    ("announced", "message"), [("tick", ONE), ("failure", ShutdownRequested())]
)
def test_elsewhere_it_is_an_exception_like_any_other(announced, message):
    with pytest.raises(child.RecordFailed):
        serve(Parsing(), START, message, environ={"KCL_MLD_CAPABILITIES": announced})
