"""The Java daemon's recorded conversations, byte for byte, through our codec and connections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from kcl_mld_protocol import (
    NEED_DATA,
    Action,
    CheckpointRequest,
    CheckpointRequested,
    ChildConnection,
    DaemonConnection,
    EndOfStream,
    Foreign,
    Initialize,
    Junk,
    JunkLine,
    LocalProtocolError,
    RemoteProtocolError,
    State,
    Status,
    StatusReceived,
    decode_from_child,
    decode_from_daemon,
    encode,
    schema,
    transcripts,
)
from kcl_mld_protocol.transcripts import Direction

if TYPE_CHECKING:
    from kcl_mld_protocol.events import DaemonEvent

NAMES = transcripts.names()

#: Why Java ended the conversation, for the recordings that it did not end in order.
FAILED = {
    # the last request carries an unknown field: skipped, never answered, until the daemon stopped
    "errors-w1-1": "ended before it answered processRecords",
    "crash-w1-1": "ended before it answered processRecords",
    "crash_once-w1-1": "ended before it answered processRecords",
    "gb_nullresp-w1-1": "answered None instead of processRecords",
    "init_crash-w1-1": "ended before it answered initialize",
    "wrongstatus-w1-1": "answered 'initialize' instead of processRecords",
}
#: The daemon halted (timeoutInSeconds) or died (bare null) while the child was still at work.
CUT_SHORT = {
    "garbage-w1-1",
    "gb_null-w1-1",
    "hang-w1-1",
    "hang_notimeout-w1-1",
    "timeout_malformed-w1-1",
}
#: Lines that the recorded child wrote on purpose and Java skipped without a word to the child.
SKIPPED = {
    b"this is not json",
    b"[1,2,3]",
    b'"str"',
    b"null",
    b'{"noaction":1}',
    b'{"action":"bogus"}',
    b'{"action":',
    b"42",
    b"   ",
}


def lines(name: str, direction: Direction) -> list[bytes]:
    return [entry.line for entry in transcripts.load(name) if entry.direction is direction]


def schema_of(message: object, names: tuple[str, ...]) -> str:
    kind = type(message).__name__
    return next(name for name in names if name.casefold() == kind.casefold())


def test_the_recordings_are_all_there():
    assert len(NAMES) == 52
    assert {"life-w1-1", "errors-w1-1", "kpl_agg-w2-1"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_daemon_survives_decode_and_encode_byte_for_byte(name):
    for line in lines(name, Direction.TO_CHILD):
        message = decode_from_daemon(line)
        assert not isinstance(message, Junk)
        assert encode(message) == line + b"\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_daemon_fits_its_schema(name):
    for line in lines(name, Direction.TO_CHILD):
        wanted = schema.load(schema_of(decode_from_daemon(line), schema.DAEMON_NAMES))
        jsonschema.validate(json.loads(line), wanted, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_of_a_child_but_the_deliberately_broken_fits_its_schema(name):
    for line in lines(name, Direction.FROM_CHILD):
        message = decode_from_child(line)
        if isinstance(message, Status | CheckpointRequest) and line != b'{"action":"status"}':
            wanted = schema.load(schema_of(message, schema.CHILD_NAMES))
            jsonschema.validate(json.loads(line), wanted, cls=jsonschema.Draft202012Validator)


class Replay:
    """Feeds one recording to a DaemonConnection and keeps what it said."""

    def __init__(self, name: str) -> None:
        self.connection = DaemonConnection(name)
        self.events: list[DaemonEvent] = []
        self.failure: RemoteProtocolError | None = None

    def pump(self) -> None:
        """Read events until it is the daemon's turn to speak."""
        while self.failure is None:
            try:
                event = self.connection.next_event()
            except RemoteProtocolError as failure:
                self.failure = failure
                return
            if event is NEED_DATA:
                return
            self.events.append(event)
            if isinstance(event, StatusReceived | CheckpointRequested | EndOfStream):
                return

    def run(self, name: str) -> None:
        for entry in transcripts.load(name):
            match entry.direction:
                case Direction.TO_CHILD:
                    message = decode_from_daemon(entry.line)
                    if not isinstance(message, Initialize):
                        self.pump()
                    assert not isinstance(message, Junk)
                    assert self.connection.send(message) == entry.line + b"\n"
                case Direction.FROM_CHILD:
                    self.connection.receive_data(entry.line + b"\n")
                case Direction.EVENT if entry.line == b"EOF on child <<":
                    self.pump()
                    self.connection.receive_data(b"")
                case _:
                    pass


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_conversation_replays_through_the_daemon_connection(name):
    replay = Replay(name)
    replay.run(name)
    if name in CUT_SHORT:
        assert replay.failure is None
        return
    while replay.failure is None and replay.connection.awaiting is not None:
        replay.pump()
    if name in FAILED:
        assert FAILED[name] in str(replay.failure)
        return
    assert replay.failure is None
    assert replay.connection.state in {State.IDLE, State.DRAINING, State.CLOSED}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_checkpoint_request_is_the_one_that_the_result_echoes(name):
    replay = Replay(name)
    replay.run(name)
    asked = [event.request for event in replay.events if isinstance(event, CheckpointRequested)]
    answered = [
        decode_from_daemon(line)
        for line in lines(name, Direction.TO_CHILD)
        if line.startswith(b'{"action":"checkpoint"')
    ]
    for request, result in zip(asked, answered, strict=False):
        assert (request.sequence_number, request.sub_sequence_number) == (
            result.sequence_number,
            result.sub_sequence_number,
        )
    assert len(answered) in {len(asked), len(asked) - 1}


def test_the_lines_that_java_skipped_are_junk_with_a_reason():
    found = {line for line in lines("garbage-w1-1", Direction.FROM_CHILD) if line in SKIPPED}
    assert found == SKIPPED
    for line in SKIPPED:
        verdict = decode_from_child(line)
        assert isinstance(verdict, Junk)
        assert verdict.reason


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("gb_bogus-w1-1", True),
        ("gb_caps-w1-1", True),
        ("gb_ckbadtype-w1-1", True),
        ("gb_extra-w1-1", True),
        ("gb_noaction-w1-1", True),
        ("gb_number-w1-1", True),
        ("gb_partial-w1-1", True),
    ],
)
def test_a_skipped_line_leaves_the_conversation_whole(name, skipped):
    replay = Replay(name)
    replay.run(name)
    junk = [event for event in replay.events if isinstance(event, JunkLine)]
    assert bool(junk) is skipped
    assert replay.failure is None


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_conversation_replays_through_the_child_connection(name):
    child = ChildConnection()
    refused = 0
    for entry in transcripts.load(name):
        if entry.direction is Direction.TO_CHILD:
            child.receive_data(entry.line + b"\n")
            assert child.next_event() == decode_from_daemon(entry.line)
        elif entry.direction is Direction.FROM_CHILD:
            message = decode_from_child(entry.line)
            if isinstance(message, Status | CheckpointRequest):
                try:
                    sent = child.send(message)
                except LocalProtocolError:
                    refused += 1
                else:
                    assert decode_from_child(sent.rstrip(b"\n")) == message
    assert bool(refused) is (
        name in {"gb_nullresp-w1-1", "wrongstatus-w1-1", "garbage-w1-1", "gb_null-w1-1"}
    )


VERDICTS = json.loads((Path(__file__).parent / "jackson_verdicts.json").read_text("utf-8"))


@pytest.mark.parametrize(("line", "java"), VERDICTS, ids=range(len(VERDICTS)))
def test_a_line_is_judged_as_by_the_classes_of_the_java_daemon(line, java):
    """Verdicts of ObjectMapper.readValue(line, Message.class), multilang 3.1.3, Jackson 2.20."""
    ours = decode_from_child(line.encode())
    if isinstance(java, str):  # "skipped", or "dies" of a bare null, which we skip
        assert isinstance(ours, Junk)
    elif java["action"] in {"status", "checkpoint"}:
        assert isinstance(ours, Status | CheckpointRequest)
        assert json.loads(encode(ours)) == java
    else:
        assert ours == Foreign(Action(java["action"]))
