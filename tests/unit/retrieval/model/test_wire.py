"""Envelopes of GetRecords answers."""

from __future__ import annotations

import json

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.retrieval.model.record import vanished
from kcl_mld.retrieval.model.wire import (
    arrival_ms,
    decode_records,
    first_arrival_s,
    first_sequence_number,
    read_batch,
    read_event,
)
from kcl_mld.streams.model.shard import ChildShard, HashRange

CHILD = {
    "ShardId": "shardId-2",
    "ParentShards": ["shardId-1", "shardId-0"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


def body(**fields):
    return json.dumps({"Records": [], **fields}).encode()


def test_an_open_shard_has_a_next_iterator():
    batch = read_batch(body(NextShardIterator="next", MillisBehindLatest=7))
    assert batch.next_iterator == "next"
    assert batch.millis_behind_latest == 7
    assert not batch.is_shard_end
    assert batch.is_empty


def test_the_first_number_of_a_batch_is_that_of_its_first_record():
    records = [{"SequenceNumber": "5", "Data": ""}, {"SequenceNumber": "6", "Data": ""}]
    batch = read_batch(json.dumps({"Records": records, "NextShardIterator": "next"}).encode())
    assert first_sequence_number(batch.records) == "5"
    assert first_sequence_number(read_batch(body(NextShardIterator="next")).records) is None
    assert first_sequence_number(None) is None


def test_a_closed_shard_has_children():
    batch = read_batch(body(ChildShards=[CHILD]))
    assert batch.is_shard_end
    assert batch.child_shards == (
        ChildShard("shardId-2", ("shardId-0", "shardId-1"), HashRange(0, 9)),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ChildShards": []},
        {"NextShardIterator": "next", "ChildShards": [CHILD]},
        {"ChildShards": [CHILD | {"ParentShards": []}]},
        {"ChildShards": [CHILD | {"HashKeyRange": {"StartingHashKey": "x", "EndingHashKey": ""}}]},
        {"ChildShards": [{"ShardId": "shardId-2"}]},
        {"NextShardIterator": 5},
        {"NextShardIterator": "next", "Records": [{"PartitionKey": "SequenceNumber"}]},
        {"NextShardIterator": "next", "Records": [{"SequenceNumber": "abc"}]},
    ],
)
def test_answers_that_contradict_themselves_are_refused(fields):
    with pytest.raises(MalformedData):
        read_batch(body(**fields))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"null", b'{"Records":[}', b"[" * 99999])
def test_what_is_no_answer_is_refused(text):
    with pytest.raises(MalformedData):
        read_batch(text)


def test_the_word_itself_as_a_partition_key_is_not_taken_for_the_field():
    records = [{"SequenceNumber": "12", "PartitionKey": "SequenceNumber", "Data": ""}]
    assert read_batch(body(NextShardIterator="n", Records=records)).last_sequence_number == "12"


RECORD = {"SequenceNumber": "7", "Data": "AA==", "PartitionKey": "k"}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n ", "\t:\r\n")])
@pytest.mark.parametrize(
    "fields",
    [
        {"Records": [RECORD, RECORD], "NextShardIterator": "n", "MillisBehindLatest": 5},
        {"MillisBehindLatest": 5, "NextShardIterator": "n", "Records": [RECORD]},
        {"MillisBehindLatest": 5, "ChildShards": [CHILD], "Records": [RECORD]},
        {"Records": [RECORD], "ChildShards": [CHILD], "MillisBehindLatest": 5},
        {"NextShardIterator": '"Records":[', "Records": [RECORD], "MillisBehindLatest": 5},
        {"Records": [], "NextShardIterator": "n", "MillisBehindLatest": 5},
        {"x": {"Records": [RECORD]}, "Records": [RECORD], "NextShardIterator": "n"},
        {"Records": [RECORD], "x": {"Records": [RECORD]}, "NextShardIterator": "n"},
        {"x" * 9000: 1, "Records": [RECORD], "NextShardIterator": "n"},
    ],
)
def test_the_records_are_found_wherever_they_are(fields, separators):
    batch = read_batch(json.dumps(fields, separators=separators).encode())
    assert json.loads(bytes(batch.take_records())) == fields["Records"]
    assert batch.next_iterator == fields.get("NextShardIterator")
    assert batch.millis_behind_latest == fields.get("MillisBehindLatest")
    assert batch.last_sequence_number == ("7" if fields["Records"] else None)
    assert batch.is_shard_end == ("ChildShards" in fields)


@pytest.mark.parametrize(
    "key",
    ["}]", "}]}", '}],"A":"b', '"}]', "\\}]", "}]\\", "}] }", '{"Records":[]}', '}],"x":[{"y":"'],
)
def test_a_partition_key_is_never_taken_for_the_end_of_the_records(key):
    record = {"SequenceNumber": "7", "PartitionKey": key, "Data": "AA=="}
    text = body(NextShardIterator="n", Records=[record, record])
    batch = read_batch(text)
    assert json.loads(bytes(batch.take_records())) == [record, record]
    assert batch.next_iterator == "n"


@pytest.mark.parametrize(
    "fields",
    [
        {"Seen": {"Records": [{"SequenceNumber": "1"}]}, "Records": []},
        {"Records": [], "Seen": {"Records": [{"SequenceNumber": "1"}]}},
        {"Records": [], "Seen": [{"SequenceNumber": "1"}]},
        {"Seen": {"Records": [{"SequenceNumber": "1"}]}, "Records": [{"SequenceNumber": "2"}]},
    ],
)
def test_records_within_a_member_that_we_do_not_know_are_not_ours(fields):
    batch = read_batch(json.dumps({**fields, "NextShardIterator": "n"}).encode())
    assert json.loads(bytes(batch.records)) == fields["Records"]


def test_an_answer_cut_anywhere_is_refused_at_once_or_when_it_is_read():
    text = body(NextShardIterator="n", Records=[RECORD])
    for end in range(len(text)):
        with pytest.raises(MalformedData):
            decode_records(read_batch(text[:end]).take_records())


def test_records_that_are_no_records_are_refused():
    for text in (b'[{"SequenceNumber":5}]', b"[5]", b"[", b'[{"SequenceNumber":"\xff'):
        with pytest.raises(MalformedData):
            decode_records(memoryview(text))


def test_a_surrogate_in_the_envelope_does_not_hide_the_records():
    text = rb'{"Records":[{"SequenceNumber":"7"}],"NextShardIterator":"n","x":"\ud800"}'
    assert read_batch(text).last_sequence_number == "7"


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (None, None),
        (1763382100.123, 1763382100123),
        (1763382100.9999, 1763382100999),
        (0.001, 1),
        (5, 5000),
        (5.000999999, 5000),
        (-0.001, -1),
        (-62135596800.0, -62135596800000),
        (253402300799.999, 253402300799999),
    ],
)
def test_arrival_times_are_whole_milliseconds(seconds, ms):
    assert arrival_ms(seconds) == ms


def test_an_arrival_time_out_of_range_is_refused():
    with pytest.raises(MalformedData):
        arrival_ms(1e308)


def test_a_vanished_shard_ends_without_children():
    batch = vanished()
    assert batch.is_shard_end
    assert batch.is_empty
    assert batch.child_shards == ()
    assert batch.millis_behind_latest is None


class TestEvents:
    def test_the_continuation_number_is_where_the_next_begins(self):
        batch = read_event(body(ContinuationSequenceNumber="49", MillisBehindLatest=7))
        assert (batch.next_iterator, batch.millis_behind_latest, batch.is_empty) == ("49", 7, True)

    def test_records_stay_bytes_and_the_continuation_is_not_taken_for_one_of_theirs(self):
        records = [{"SequenceNumber": str(n), "PartitionKey": "k", "Data": "eA=="} for n in (5, 6)]
        for fields in ({}, {"Unheard": "SequenceNumber"}):
            text = body(ContinuationSequenceNumber="49", Records=records, **fields)
            batch = read_event(text)
            assert batch.last_sequence_number == "6"
            assert [one.sequence_number for one in decode_records(batch.take_records())] == [
                "5",
                "6",
            ]

    def test_the_last_event_has_children(self):
        batch = read_event(body(ChildShards=[CHILD]))
        assert batch.is_shard_end
        assert [child.shard_id for child in batch.child_shards] == ["shardId-2"]

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"NextShardIterator": "next"},
            {"ContinuationSequenceNumber": "49", "ChildShards": [CHILD]},
            {"ChildShards": [CHILD | {"ParentShards": []}]},
        ],
    )
    def test_events_that_contradict_themselves_are_refused(self, fields):
        with pytest.raises(MalformedData, match="SubscribeToShard event"):
            read_event(body(**fields))


@pytest.mark.parametrize(
    ("records", "arrived"),
    [
        (b'[{"ApproximateArrivalTimestamp":1.700000000123E9,"Data":""}]', 1700000000.123),
        (b'[{"Data":"","ApproximateArrivalTimestamp" : 1700000000}]', 1700000000.0),
        (b'[{"PartitionKey":"\\"ApproximateArrivalTimestamp\\":5"}]', None),
        (b"[]", None),
    ],
)
def test_the_arrival_of_the_first_record_is_found_in_the_bytes(records, arrived):
    assert first_arrival_s(memoryview(records)) == arrived


def test_records_that_were_taken_tell_no_arrival():
    assert first_arrival_s(None) is None
