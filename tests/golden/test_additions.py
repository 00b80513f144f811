"""The recorded conversation of kcl-mld with a child that ticks, through both ends."""

from __future__ import annotations

import json

import jsonschema

from kcl_mld_protocol import (
    CAPABILITIES,
    NEED_DATA,
    ChildConnection,
    DaemonConnection,
    EndOfStream,
    Initialize,
    Junk,
    ProcessRecords,
    State,
    Tick,
    TickRequested,
    decode_from_child,
    decode_from_daemon,
    encode,
    schema,
    transcripts,
)
from kcl_mld_protocol.transcripts import ADDITIONS, Direction

ENTRIES = transcripts.load(ADDITIONS)
SCHEMAS = {
    "CheckpointRequest": "checkpointRequest",
    "CheckpointResult": "checkpointResult",
}


def messages(direction):
    read = {
        Direction.TO_CHILD: decode_from_daemon,
        Direction.FROM_CHILD: lambda line: decode_from_child(line, CAPABILITIES),
    }[direction]
    return [read(entry.line) for entry in ENTRIES if entry.direction is direction]


def test_the_recording_shows_what_java_has_not():
    told, said = messages(Direction.TO_CHILD), messages(Direction.FROM_CHILD)
    assert isinstance(told[0], Initialize)
    (tick,) = [one for one in said if isinstance(one, Tick)]
    assert sum(isinstance(one, ProcessRecords) and not one.records for one in told) >= 2
    assert tick.seconds == 0.3
    assert ADDITIONS not in transcripts.names()


def test_every_line_fits_its_schema_and_is_written_back_byte_for_byte():
    for direction in (Direction.TO_CHILD, Direction.FROM_CHILD):
        lines = [entry.line for entry in ENTRIES if entry.direction is direction]
        for line, message in zip(lines, messages(direction), strict=True):
            assert not isinstance(message, Junk)
            assert encode(message) == line + b"\n"
            kind = type(message).__name__
            wanted = schema.load(SCHEMAS.get(kind, kind[0].lower() + kind[1:]))
            jsonschema.validate(json.loads(line), wanted, cls=jsonschema.Draft202012Validator)


def test_it_replays_through_both_connections():
    daemon = DaemonConnection("s", announced=CAPABILITIES)
    child = ChildConnection(announced=CAPABILITIES)
    events = []
    for entry in ENTRIES:
        line = entry.line + b"\n"
        if entry.direction is Direction.TO_CHILD:
            message = decode_from_daemon(entry.line)
            assert daemon.send(message) == line
            child.receive_data(line)
            assert child.next_event() == message
        elif entry.direction is Direction.FROM_CHILD:
            assert child.send(decode_from_child(entry.line, CAPABILITIES)) == line
            daemon.receive_data(line)
            events.append(daemon.next_event())
    assert sum(isinstance(event, TickRequested) for event in events) == 1
    assert daemon.next_event() is NEED_DATA
    assert daemon.state is State.DRAINING
    child.receive_data(b"")
    assert child.next_event() == EndOfStream()
