"""Whatever the bytes: the record path raises MalformedData only, and writes what the codec writes."""

from __future__ import annotations

import base64
import json

import msgspec
from hypothesis import given, settings, strategies as st

from kcl_mld.children.rules.delivery import deliver
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.retrieval.model.wire import arrival_ms, decode_records, read_batch
from kcl_mld_protocol import ProcessRecords, Record, decode_from_daemon, encode

numbers = st.integers(0, 2**190).map(str)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
payloads = st.binary(max_size=60)
arrivals_ms = st.integers(0, 2_000_000_000_000)


@st.composite
def records(draw):
    ordered = sorted(draw(st.lists(st.integers(0, 2**190), max_size=8)))
    return [
        {
            "SequenceNumber": str(number),
            "PartitionKey": draw(texts),
            "Data": base64.b64encode(draw(payloads)).decode(),
            "ApproximateArrivalTimestamp": draw(arrivals_ms) / 1000,
        }
        for number in ordered
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(records(), st.integers(0, 10**9) | st.none(), st.booleans(), st.sampled_from([None, 1]))
def test_the_fast_line_equals_the_codec_byte_by_byte(entries, behind_ms, ascii_only, indent):
    body = json.dumps(
        {"Records": entries, "NextShardIterator": "n", "MillisBehindLatest": behind_ms},
        ensure_ascii=ascii_only,
        indent=indent,
    ).encode()
    delivery = deliver(read_batch(body), TRIM_HORIZON, None, even_if_empty=True)
    expected = ProcessRecords(
        tuple(
            Record(
                entry["Data"],
                entry["PartitionKey"],
                entry["SequenceNumber"],
                round(entry["ApproximateArrivalTimestamp"] * 1000),
            )
            for entry in entries
        ),
        behind_ms,
    )
    assert delivery.line == encode(expected)
    assert delivery.data_bytes == sum(len(base64.b64decode(entry["Data"])) for entry in entries)
    assert delivery.kept == delivery.records == len(entries)


#: What a cut by brackets could trip over, in texts that producers choose.
hostile_texts = st.lists(
    st.sampled_from(
        (
            *("}]", "} ]", '"', "\\", "[", "{", ",", ":", "\ud800", "\u2028", "\U0001f600"),
            *('"Records":[', '"SequenceNumber":"9"', "SequenceNumber", '},{"', "\\u005d"),
            '],"NextShardIterator":"x"}',
        )
    ),
    max_size=6,
).map("".join)


def in_any_order(members):
    return st.permutations(sorted(members.items(), key=str)).map(dict)


@st.composite
def answers(draw):
    entries = [
        draw(
            in_any_order(
                {
                    "SequenceNumber": str(10**30 + number),
                    "PartitionKey": draw(hostile_texts),
                    "Data": base64.b64encode(draw(payloads)).decode(),
                    "ApproximateArrivalTimestamp": draw(arrivals_ms) / 1000,
                    **draw(st.sampled_from([{}, {"EncryptionType": "KMS"}])),
                }
            )
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    keys = {"StartingHashKey": "0", "EndingHashKey": "9"}
    child = {"ShardId": "shardId-1", "ParentShards": ["shardId-0"], "HashKeyRange": keys}
    follows = draw(st.sampled_from([{"NextShardIterator": "n"}, {"ChildShards": [child]}]))
    answer = {"Records": entries, "MillisBehindLatest": 5, **follows}
    return draw(in_any_order(answer))


@settings(max_examples=300)
@given(answers(), st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), ("\n,\t", " :\r\n")]))
def test_records_are_what_a_json_parser_reads_whatever_their_texts(answer, ascii_only, separators):
    body = json.dumps(answer, ensure_ascii=ascii_only, separators=separators)
    batch = read_batch(body.encode("utf-8", "surrogatepass" if ascii_only else "replace"))
    entries = answer["Records"]
    assert batch.last_sequence_number == (entries[-1]["SequenceNumber"] if entries else None)
    assert batch.next_iterator == answer.get("NextShardIterator")
    assert len(batch.child_shards) == len(answer.get("ChildShards", ()))
    assert batch.millis_behind_latest == 5
    assert [
        (one.sequence_number, one.partition_key, one.data, one.approximate_arrival_timestamp)
        for one in decode_records(batch.take_records())
    ] == [
        (
            entry["SequenceNumber"],
            entry["PartitionKey"].encode("utf-8", "replace").decode(),
            entry["Data"],
            entry["ApproximateArrivalTimestamp"],
        )
        for entry in entries
    ]


@given(records())
def test_the_last_sequence_number_is_found_without_reading_the_records(entries):
    body = json.dumps({"Records": entries, "NextShardIterator": "n"}).encode()
    batch = read_batch(body)
    assert batch.last_sequence_number == (entries[-1]["SequenceNumber"] if entries else None)
    assert batch.is_empty is (not entries)


@settings(max_examples=1000)
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_whole_milliseconds_survive_as_seconds(milliseconds):
    assert arrival_ms(milliseconds / 1000) == milliseconds


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(body):
    read_or_refuse(body)


@settings(max_examples=300)
@given(json_values, json_values, json_values, json_values)
def test_random_json_never_raises_anything_else(entries, following, behind, children):
    body = msgspec.json.encode(
        {
            "Records": entries,
            "NextShardIterator": following,
            "MillisBehindLatest": behind,
            "ChildShards": children,
        }
    )
    read_or_refuse(body)


@settings(max_examples=300)
@given(records(), st.data())
def test_a_damaged_answer_is_read_or_refused(entries, data):
    body = bytearray(
        json.dumps({"Records": entries, "NextShardIterator": "n"}, ensure_ascii=False).encode()
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = read_batch(bytes(body))
    except MalformedData:
        return
    decode_or_refuse(batch)


def decode_or_refuse(batch):
    records = batch.records
    try:
        decode_records(records)
        line = deliver(batch, TRIM_HORIZON, None, even_if_empty=True).line
    except MalformedData:
        return
    assert isinstance(decode_from_daemon(line[:-1]), ProcessRecords)


def read_or_refuse(body):
    try:
        batch = read_batch(body)
    except MalformedData:
        return
    decode_or_refuse(batch)
