"""The recording child: what it writes down of a conversation with the daemon."""

import base64
import json

import pytest

from kcl_mld.acceptance import recording_child
from kcl_mld.acceptance.recording_child import Recorder
from kcl_mld_protocol.child import (
    CheckpointError,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownRequestedInput,
)


class Checkpointer:
    def __init__(self, refuse=None):
        self.refuse = refuse
        self.positions = []

    def checkpoint(self, *position):
        if self.refuse:
            raise CheckpointError(self.refuse)
        self.positions.append(position)


def record(sequence, payload, sub=0, key="a"):
    data = base64.b64encode(json.dumps(payload).encode()).decode()
    return Record(data, key, sequence, 0, sub)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(recording_child.time, "monotonic", lambda: now[0])
    return now


def written(folder):
    (path,) = folder.iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_writes_what_it_is_given_and_checkpoints_every_two_seconds(tmp_path, clock):
    child, checkpointer = Recorder(tmp_path, "app", "w1"), Checkpointer()
    child.initialize(InitializeInput("shard-0", "TRIM_HORIZON", None))
    batch = (record("7", {"n": 1}), record("8", {"n": 2}, sub=3))
    child.process_records(ProcessRecordsInput(batch, 0, checkpointer))
    assert checkpointer.positions == []
    clock[0] += 2.0
    child.process_records(ProcessRecordsInput((), 0, checkpointer))
    child.process_records(ProcessRecordsInput((), 0, checkpointer))
    assert checkpointer.positions == [("8", 3)]
    child.lease_lost(LeaseLostInput())
    lines = written(tmp_path)
    assert [line["what"] for line in lines] == ["began", "got", "confirmed", "lost"]
    assert {(line["reader"], line["worker"], line["shard"]) for line in lines} == {
        ("app", "w1", "shard-0")
    }
    assert lines[0]["position"] == ["TRIM_HORIZON", 0]
    assert lines[1]["records"] == [["7", 0, "a", 1], ["8", 3, "a", 2]]
    assert lines[2]["position"] == ["8", 3]


def test_it_checkpoints_when_it_is_to_stop_and_at_the_end_of_the_shard(tmp_path, clock):
    child, checkpointer = Recorder(tmp_path, "app", "w1"), Checkpointer()
    child.initialize(InitializeInput("shard-0", "7", 0))
    child.process_records(ProcessRecordsInput((record("8", {"n": 1}),), 0, checkpointer))
    child.shutdown_requested(ShutdownRequestedInput(checkpointer))
    child.shard_ended(ShardEndedInput(checkpointer))
    assert checkpointer.positions == [("8", 0), ()]
    assert [line["position"] for line in written(tmp_path) if line["what"] == "confirmed"] == [
        ["8", 0],
        ["SHARD_END", 0],
    ]


def test_a_refused_checkpoint_is_written_down_and_counts_as_none(tmp_path, clock):
    child = Recorder(tmp_path, "app", "w1")
    child.initialize(InitializeInput("shard-0", "7", 0))
    refusing = Checkpointer("ShutdownException")
    child.process_records(ProcessRecordsInput((record("8", {"n": 1}),), 0, refusing))
    child.shutdown_requested(ShutdownRequestedInput(refusing))
    assert [line["what"] for line in written(tmp_path)] == ["began", "got", "refused"]


def test_a_change_of_a_table_has_the_number_of_its_item(tmp_path):
    keys = {"Keys": {"id": {"S": "item-1"}}}
    put = {"eventName": "MODIFY", "dynamodb": keys | {"NewImage": {"n": {"N": "4"}}}}
    gone = {"eventName": "REMOVE", "dynamodb": keys | {"OldImage": {"n": {"N": "4"}}}}
    assert recording_child.identified(record("8", put)) == ["8", 0, "item-1", 4]
    assert recording_child.identified(record("9", gone)) == ["9", 0, "item-1", 5]
