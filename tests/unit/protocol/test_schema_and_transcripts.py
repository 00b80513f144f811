"""The data files that ship with the package."""

from __future__ import annotations

import json

import jsonschema
import pytest

from kcl_mld_protocol import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
    encode,
    schema,
    transcripts,
)
from kcl_mld_protocol.transcripts import Direction

EXAMPLES = {
    "initialize": Initialize("s", "AT_TIMESTAMP", 0, {"stream": "x"}),
    "processRecords": ProcessRecords((Record("aGk=", "k", "1", None), Record("", "k", "1", 1)), 1),
    "leaseLost": LeaseLost(),
    "shardEnded": ShardEnded(),
    "shutdownRequested": ShutdownRequested(),
    "checkpointResult": CheckpointResult("x", -1, "IllegalArgumentException"),
    "status": Status("shardEnded"),
    "checkpointRequest": CheckpointRequest(),
    "tick": Tick(0.5),
}


def validator(name: str) -> jsonschema.Draft202012Validator:
    wanted = schema.load(name)
    jsonschema.Draft202012Validator.check_schema(wanted)
    return jsonschema.Draft202012Validator(wanted)


@pytest.mark.parametrize("name", schema.NAMES)
def test_a_schema_accepts_its_own_message_and_no_other(name):
    for other, message in EXAMPLES.items():
        fits = validator(name).is_valid(json.loads(encode(message)))
        both_checkpoints = {name, other} == {"checkpointRequest", "checkpointResult"}
        assert fits is (other == name) or (both_checkpoints and fits)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("status", '{"action":"status","responseFor":"initialize","extra":1}'),
        ("status", '{"action":"status","responseFor":"bogus"}'),
        ("checkpointRequest", '{"action":"checkpoint","checkpoint":"1"}'),
        ("tick", '{"action":"tick","seconds":0}'),
        (
            "initialize",
            '{"action":"initialize","shardId":"s","sequenceNumber":"x","subSequenceNumber":0}',
        ),
        (
            "processRecords",
            '{"action":"processRecords","records":[{"data":"%"}],"millisBehindLatest":0}',
        ),
    ],
)
def test_a_schema_refuses_what_a_peer_would_stumble_over(name, text):
    assert not validator(name).is_valid(json.loads(text))


def test_there_is_no_other_schema():
    with pytest.raises(KeyError):
        schema.load("record")


def test_a_transcript_is_read_line_by_line():
    first, second, *_ = transcripts.load("life-w1-1")
    assert first.direction is Direction.EVENT
    assert first.at_s == 0
    assert second.direction is Direction.TO_CHILD
    assert second.line.startswith(b'{"action":"initialize"')
    assert second.at_s > 0


def test_lines_of_transcripts_stay_short_enough_to_read():
    for name in transcripts.names():
        assert all(len(entry.line) <= 20_000 for entry in transcripts.load(name))


def test_an_unknown_transcript_is_an_error():
    with pytest.raises(FileNotFoundError):
        transcripts.load("nope")
