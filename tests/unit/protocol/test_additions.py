"""Ticks and intents: announced, said, answered, and never used unasked."""

from __future__ import annotations

import io

import pytest

from protocol import (
    CAPABILITIES,
    NEED_DATA,
    Action,
    BatchIntent,
    ChildConnection,
    DaemonConnection,
    IgnoredMessage,
    Initialize,
    IntentRequested,
    IntentResult,
    Junk,
    JunkLine,
    LocalProtocolError,
    ProcessRecords,
    RemoteProtocolError,
    State,
    Status,
    StatusReceived,
    Tick,
    TickRequested,
    capabilities,
    child,
    decode_from_child,
    decode_from_daemon,
    encode,
    intent_extras,
    intent_in,
)
from protocol.additions import intent_fault, is_tick

ANNOUNCED = {"KCL_MLD_CAPABILITIES": "intent,tick"}
INTENT = BatchIntent(3, "40:0", "49:2", "app/shardId-0")
INTENT_LINE = b'{"action":"intent","number":3,"after":"40:0","to":"49:2","appId":"app/shardId-0"}'
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
        ("intent,tick", {"intent", "tick"}),
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
    assert encode(INTENT) == INTENT_LINE + b"\n"
    assert encode(IntentResult(3)) == b'{"action":"intent","number":3,"error":null}\n'


@pytest.mark.parametrize("line", [INTENT_LINE, b'{"action":"tick","seconds":1}'])
def test_a_line_that_was_not_announced_is_junk_as_in_java(line):
    verdict = decode_from_child(line)
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
        (b'{"action":"intent","number":"7","after":8,"to":null}', BatchIntent(7, "8", "", "")),
        (b'{"action":"intent"}', BatchIntent(0, "", "", "")),
        (b'["intent",{"number":1}]', BatchIntent(1, "", "", "")),
    ],
)
def test_an_announced_line_is_read_as_kindly_as_the_others(line, message):
    assert decode_from_child(line, CAPABILITIES) == message


@pytest.mark.parametrize(
    "line",
    [
        b'{"action":"tick","seconds":1,"more":2}',
        b'{"action":"intent","number":1.5e400}',
        b'{"action":"intent","number":[]}',
        b'{"action":"intent","number":1,"checkpoint":"x"}',
    ],
)
def test_an_announced_line_with_a_stray_field_is_junk(line):
    assert isinstance(decode_from_child(line, CAPABILITIES), Junk)


@pytest.mark.parametrize("number", [b"null", b'"3"', b"true", b"1.0"])
def test_a_result_without_a_whole_number_is_junk(number):
    line = b'{"action":"intent","number":' + number + b',"error":null}'
    assert isinstance(decode_from_daemon(line), Junk)


# -- what an intent may be ---------------------------------------------------------------------


def test_an_intent_has_a_number_from_one_on_and_short_texts():
    assert intent_fault(INTENT) is None
    assert intent_fault(BatchIntent(1, "x" * 256, "", "")) is None
    assert "less than 1" in intent_fault(BatchIntent(0, "", "", ""))
    assert intent_fault(BatchIntent(1, "x" * 257, "", "")).startswith("after has 257")
    assert intent_fault(BatchIntent(1, "", "", "x" * 300)).startswith("appId has 300")


@pytest.mark.parametrize(
    ("seconds", "fine"),
    [(0.1, True), (3600.0, True), (0.09, False), (3601.0, False), (None, False), (-1.0, False)],
)
def test_a_tick_is_neither_too_short_nor_too_long(seconds, fine):
    assert is_tick(seconds) is fine
    assert not is_tick(float("nan"))


def test_an_intent_travels_in_initialize():
    extras = intent_extras(INTENT)
    assert list(extras) == ["intentNumber", "intentAfter", "intentTo", "intentAppId"]
    line = encode(Initialize("s", "40", 0, extras))
    start = decode_from_daemon(line[:-1])
    assert isinstance(start, Initialize)
    assert intent_in(start.extras) == INTENT
    assert intent_in({"stream": "x"}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"intentNumber": None},
        {"intentNumber": "3"},
        {"intentNumber": True},
        {"intentAfter": 1},
        {"intentTo": None},
        {"intentAppId": None},
    ],
)
def test_half_an_intent_is_an_error(change):
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        intent_in(intent_extras(INTENT) | change)


# -- the two ends ------------------------------------------------------------------------------


def test_an_intent_is_answered_before_anything_else():
    daemon, connection = daemon_with_batch(), child_with_batch()
    daemon.receive_data(connection.send(INTENT))
    assert daemon.next_event() == IntentRequested(INTENT, Action.PROCESS_RECORDS)
    assert daemon.state is State.STORING_PROCESS_RECORDS
    assert daemon.awaiting is Action.PROCESS_RECORDS
    with pytest.raises(LocalProtocolError, match="intent request first"):
        daemon.next_event()
    assert connection.state is State.INTENDING_PROCESS_RECORDS
    connection.receive_data(daemon.send(IntentResult(3)))
    assert connection.next_event() == IntentResult(3)
    assert connection.handling is Action.PROCESS_RECORDS
    daemon.receive_data(connection.send(Status("processRecords")))
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)


def test_an_encoded_result_answers_an_intent():
    daemon = daemon_with_batch()
    daemon.receive_data(INTENT_LINE + b"\n")
    daemon.next_event()
    daemon.send_encoded(Action.INTENT, encode(IntentResult(3, "ShutdownException")))
    assert daemon.state is State.AWAITING_PROCESS_RECORDS


def test_the_end_of_stdin_before_the_result_is_an_error():
    connection = child_with_batch()
    connection.send(INTENT)
    connection.receive_data(b"")
    with pytest.raises(RemoteProtocolError, match="before the intent result"):
        connection.next_event()


def test_a_result_of_the_wrong_kind_is_an_error():
    connection = child_with_batch()
    connection.send(INTENT)
    connection.receive_data(
        b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":0}\n'
    )
    with pytest.raises(RemoteProtocolError, match="INTENDING_PROCESS_RECORDS"):
        connection.next_event()


def test_a_tick_is_asked_for_in_passing():
    daemon, connection = daemon_with_batch(), child_with_batch()
    daemon.receive_data(connection.send(Tick(0.5)) + connection.send(Status("processRecords")))
    assert daemon.next_event() == TickRequested(0.5)
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)


def test_a_daemon_that_did_not_announce_them_reports_junk():
    daemon = daemon_with_batch(announced=())
    daemon.receive_data(b'{"action":"tick","seconds":1}\n' + INTENT_LINE + b"\n")
    assert isinstance(daemon.next_event(), JunkLine)
    assert isinstance(daemon.next_event(), JunkLine)
    assert daemon.state is State.AWAITING_PROCESS_RECORDS


@pytest.mark.parametrize("message", [Tick(1.0), INTENT])
def test_a_child_never_says_what_was_not_announced(message):
    connection = child_with_batch(announced={"teleport"})
    with pytest.raises(LocalProtocolError, match=f"not announced {message.action}"):
        connection.send(message)
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
    """Intends to write each batch, and wants ticks."""

    tick_s = 2.0

    def __init__(self):
        self.start = None

    def initialize(self, initialize_input):
        self.start = initialize_input

    def process_records(self, process_records_input):
        process_records_input.checkpointer.intend(3, "40:0", "49:2", "app/shardId-0")


def serve(processor, *messages, environ=None):
    out = io.BytesIO()
    child.run(processor, io.BytesIO(b"".join(map(encode, messages))), out, environ or {})
    return out.getvalue().splitlines()


def test_the_runner_asks_for_ticks_and_waits_for_the_intents_result():
    told = Initialize("shardId-0", "40", 0, {"intentNumber": 2} | intent_extras(INTENT))
    writer = Writer()
    assert serve(writer, told, BATCH, IntentResult(3), environ=ANNOUNCED) == [
        b'{"action":"tick","seconds":2.0}',
        b'{"action":"status","responseFor":"initialize"}',
        INTENT_LINE,
        b'{"action":"status","responseFor":"processRecords"}',
    ]
    assert writer.start.intent == INTENT


def test_the_announcement_is_found_in_the_environment_of_the_process(monkeypatch):
    monkeypatch.setenv("KCL_MLD_CAPABILITIES", "tick")
    out = io.BytesIO()
    child.run(Writer(), io.BytesIO(encode(START)), out)
    assert out.getvalue().startswith(encode(Tick(2.0)))


def test_a_refused_intent_raises_its_name():
    with pytest.raises(child.CheckpointError, match="ShutdownException"):
        serve(Writer(), START, BATCH, IntentResult(3, "ShutdownException"), environ=ANNOUNCED)


def test_the_runner_says_nothing_new_to_a_daemon_that_announces_nothing():
    out = io.BytesIO()
    with pytest.raises(LocalProtocolError, match="not announced intent"):
        child.run(Writer(), io.BytesIO(encode(START) + encode(BATCH)), out, {})
    assert out.getvalue() == b'{"action":"status","responseFor":"initialize"}\n'


def test_a_program_that_wants_no_ticks_gets_none():
    class Quiet(Writer):
        tick_s = None

        def process_records(self, process_records_input):
            pass

    quiet = Quiet()
    assert len(serve(quiet, START, BATCH, environ=ANNOUNCED)) == 2
    assert quiet.start.intent is None
