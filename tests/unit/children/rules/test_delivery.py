"""Batches to lines: aggregates, the checkpoint filter, and every odd text."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kcl_mld.children.rules import delivery as delivery_module
from kcl_mld.children.rules.delivery import deliver, deliver_rest
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.retrieval.model.record import Batch
from kcl_mld.retrieval.model.wire import read_batch
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.aggregate import aggregate

VECTORS = json.loads((Path(__file__).parents[3] / "data" / "kpl.json").read_text())
#: Here more is delivered than by Java; see test_deaggregate.py.
AS_IN_JAVA = [one for one in VECTORS["deaggregation"] if one["name"] != "pk_index_out_of_range"]


def record(number, payload=b"x", key="k", at=1.0):
    data = payload if isinstance(payload, str) else base64.b64encode(payload).decode()
    return {
        "ApproximateArrivalTimestamp": at,
        "Data": data,
        "PartitionKey": key,
        "SequenceNumber": str(number),
    }


def batch_of(*records, behind=0):
    body = json.dumps(
        {"Records": records, "NextShardIterator": "next", "MillisBehindLatest": behind}
    )
    return read_batch(body.encode())


def delivered(*records, checkpoint=TRIM_HORIZON, hash_range=None, even_if_empty=False):
    return deliver(batch_of(*records), checkpoint, hash_range, even_if_empty=even_if_empty)


def positions(delivery):
    if delivery.line is None:
        return []
    return [
        (one["sequenceNumber"], one["subSequenceNumber"])
        for one in json.loads(delivery.line)["records"]
    ]


@pytest.mark.parametrize("vector", AS_IN_JAVA, ids=[one["name"] for one in AS_IN_JAVA])
def test_aggregates_expand_as_in_java(vector):
    bounds = vector["shardRange"]
    hash_range = None if bounds is None else HashRange.parse(*_bounds(bounds))
    delivery = delivered(
        *(
            record(one["sequenceNumber"], one["dataBase64"], one["partitionKey"])
            for one in vector["input"]
        ),
        hash_range=hash_range,
    )
    got = [] if delivery.line is None else json.loads(delivery.line)["records"]
    assert [
        (one["sequenceNumber"], one["subSequenceNumber"], one["partitionKey"], one["data"])
        for one in got
    ] == [
        (
            one["sequenceNumber"],
            one["subSequenceNumber"],
            one["partitionKey"],
            one["dataBase64"],
        )
        for one in vector["expected"]
    ]
    assert delivery.records == len(vector["expected"])


def _bounds(bounds):
    if isinstance(bounds, dict):
        return list(bounds.values())
    return bounds


def test_the_line_is_the_one_of_the_java_daemon():
    delivery = deliver(
        batch_of(record(200, b"hi", "pk", 0.001), behind=5), TRIM_HORIZON, None, even_if_empty=False
    )
    assert delivery.line == (
        b'{"action":"processRecords","records":[{"data":"aGk=","partitionKey":"pk",'
        b'"sequenceNumber":"200","approximateArrivalTimestamp":1,"subSequenceNumber":0,'
        b'"action":"record"}],"millisBehindLatest":5}\n'
    )


def test_records_up_to_the_checkpoint_are_dropped():
    delivery = delivered(record(9), record(10), record(11), checkpoint=At("10"))
    assert positions(delivery) == [("11", 0)]
    assert (delivery.records, delivery.kept, delivery.largest) == (3, 1, At("11"))


def test_a_batch_that_the_checkpoint_covers_delivers_nothing():
    delivery = delivered(record(9), record(10), checkpoint=At("10", 3))
    assert delivery.line is None
    assert delivery.largest is None
    assert delivery.records == 2


def test_a_checkpoint_inside_an_aggregate_keeps_its_rest():
    aggregate = VECTORS["deaggregation"][1]["input"][0]
    number = aggregate["sequenceNumber"]
    delivery = delivered(
        record(number, aggregate["dataBase64"]), checkpoint=At(number, 2), hash_range=None
    )
    assert positions(delivery) == [(number, 3), (number, 4)]
    assert delivery.largest == At(number, 4)


def test_a_sentinel_checkpoint_drops_nothing():
    assert positions(delivered(record(1), record(2), checkpoint=LATEST)) == [("1", 0), ("2", 0)]


def test_an_empty_batch_is_delivered_only_when_asked_for():
    assert delivered().line is None
    line = delivered(even_if_empty=True).line
    assert line == b'{"action":"processRecords","records":[],"millisBehindLatest":0}\n'


def test_a_batch_that_is_empty_after_the_filter_counts_as_empty():
    line = delivered(record(1), checkpoint=At("5"), even_if_empty=True).line
    assert line == b'{"action":"processRecords","records":[],"millisBehindLatest":0}\n'


@pytest.mark.parametrize(
    ("key", "literal"),
    [
        ("\x01", r'"\u0001"'),
        ("\x1f", r'"\u001F"'),
        ("\\u001f", r'"\\u001f"'),
        ("\\\x1f", r'"\\\u001F"'),
        ("\\\\u001f\x0b", r'"\\\\u001f\u000B"'),
        ('"\n', r'"\"\n"'),
        ("\x7f\u2028é𝄞", '"\x7f\u2028é𝄞"'),
    ],
)
def test_control_characters_are_written_as_jackson_does(key, literal):
    line = delivered(record(1, key=key)).line
    assert f'"partitionKey":{literal},'.encode() in line


def test_a_lone_surrogate_becomes_a_question_mark_as_in_java():
    body = (
        rb'{"Records":[{"SequenceNumber":"7","PartitionKey":"a\ud800b","Data":"eA=="}],'
        rb'"NextShardIterator":"n"}'
    )
    line = deliver(read_batch(body), TRIM_HORIZON, None, even_if_empty=False).line
    assert json.loads(line)["records"][0]["partitionKey"] == "a?b"


def test_invalid_utf8_does_not_stop_the_shard():
    body = (
        b'{"Records":[{"SequenceNumber":"7","PartitionKey":"a\xffb","Data":"eA=="}],'
        b'"NextShardIterator":"n"}'
    )
    line = deliver(read_batch(body), TRIM_HORIZON, None, even_if_empty=False).line
    assert json.loads(line)["records"][0]["partitionKey"] == "a\ufffdb"


@pytest.mark.parametrize("lacking", ["SequenceNumber", "Data"])
def test_a_record_that_lacks_what_makes_it_one_is_not_delivered(lacking):
    """Nothing in its place, or a record less, would be believed."""
    whole = {"SequenceNumber": "7", "PartitionKey": "k", "Data": "eA=="}
    records = [whole, {name: text for name, text in whole.items() if name != lacking}, whole]
    batch = read_batch(json.dumps({"Records": records, "NextShardIterator": "n"}).encode())
    with pytest.raises(MalformedData, match=rf"missing required field `{lacking}` - at `\$\[1\]`"):
        deliver(batch, TRIM_HORIZON, None, even_if_empty=False)


def test_a_record_with_null_for_data_keeps_its_null():
    delivery = deliver(
        read_batch(b'{"Records":[{"SequenceNumber":"7","Data":null}],"NextShardIterator":"n"}'),
        TRIM_HORIZON,
        None,
        even_if_empty=False,
    )
    (got,) = json.loads(delivery.line)["records"]
    assert got["data"] is None
    assert got["approximateArrivalTimestamp"] is None
    assert delivery.data_bytes == 0


def test_data_that_only_looks_aggregated_and_is_no_base64_goes_raw():
    odd = "84mawgoCazEaCQgAGgVoZWxsb7b5qiBgE3E5wx2Aa4/TdzI"
    delivery = delivered(record(1, odd))
    assert json.loads(delivery.line)["records"][0]["data"] == odd


def test_what_is_left_out_of_an_aggregate_is_reported():
    vector = next(one for one in VECTORS["deaggregation"] if one["name"] == "range_low_excluded")
    entry = vector["input"][0]
    hash_range = HashRange.parse(*_bounds(vector["shardRange"]))
    (missing,) = delivered(record(3, entry["dataBase64"]), hash_range=hash_range).missing
    assert (missing.sequence_number, missing.why) == ("3", None)
    assert missing.records > 0


@pytest.fixture
def short_lines(monkeypatch):
    """A line ends with the aggregate with which it has 1,000 bytes."""
    monkeypatch.setattr(delivery_module, "ENOUGH_BYTES", 1000)


def aggregates(*numbers):
    """Each with three records of one byte."""
    return [record(number, aggregate(*[("k", b"x")] * 3)) for number in numbers]


def in_lines(delivery):
    """Positions of each line of a batch, None for one without records."""
    found = [positions(delivery) or None]
    while delivery.rest is not None:
        delivery = deliver_rest(delivery.rest)
        found.append(positions(delivery) or None)
    return found


@pytest.mark.usefixtures("short_lines")
def test_aggregates_that_make_a_long_line_are_told_in_several():
    delivery = delivered(*aggregates(1, 2, 3), record(4))
    assert (delivery.records, delivery.kept, delivery.largest) == (6, 6, At("2", 2))
    second = deliver_rest(delivery.rest)
    assert (second.records, second.kept, second.largest) == (4, 4, At("4"))
    assert second.rest is None
    assert positions(delivery) + positions(second) == [
        *((str(number), sub) for number in (1, 2, 3) for sub in (0, 1, 2)),
        ("4", 0),
    ]


@pytest.mark.usefixtures("short_lines")
def test_records_without_aggregates_are_one_line_however_many_there_are():
    assert len(in_lines(delivered(*map(record, range(100))))) == 1


@pytest.mark.usefixtures("short_lines")
def test_the_checkpoint_may_lie_in_any_line():
    found = in_lines(delivered(*aggregates(1, 2, 3, 4), checkpoint=At("3", 1)))
    assert found == [None, [("3", 2), ("4", 0), ("4", 1), ("4", 2)]]


@pytest.mark.usefixtures("short_lines")
def test_an_aggregate_with_an_unreadable_record_is_reported_with_its_line():
    vector = next(one for one in VECTORS["deaggregation"] if one["name"] == "pk_index_out_of_range")
    first = delivered(*aggregates(1, 2), record(3, vector["input"][0]["dataBase64"]))
    assert first.missing == ()
    (missing,) = deliver_rest(first.rest).missing
    assert (missing.sequence_number, missing.records) == ("3", 1)
    assert "sub-sequence number 1" in missing.why


@pytest.mark.usefixtures("short_lines")
def test_what_waits_is_counted_with_its_size():
    delivery = delivered(*aggregates(1, 2), record(3, b"x" * 300))
    assert delivery.rest.size_bytes == 400


def test_payload_bytes_are_counted_without_decoding():
    delivery = delivered(record(1, b"a" * 10), record(2, b""), record(3, b"b" * 11))
    assert delivery.data_bytes == 21


def test_a_sequence_number_that_is_none_is_malformed():
    batch = batch_of(record(1), record("x"), record(3))
    with pytest.raises(MalformedData):
        deliver(batch, At("1"), None, even_if_empty=False)


def test_an_arrival_time_beyond_numbers_is_malformed():
    with pytest.raises(MalformedData):
        delivered(record(1, at=1e308))


def test_records_can_be_taken_once():
    batch = batch_of(record(1))
    deliver(batch, TRIM_HORIZON, None, even_if_empty=False)
    assert batch.records is None
    with pytest.raises(ValueError, match="taken"):
        batch.take_records()


def test_a_line_is_handed_over_once():
    delivery = delivered(record(1))
    assert delivery.pop_line() is not None
    assert delivery.pop_line() is None


def test_bounds_of_a_batch_hold_without_counting():
    batch = batch_of(record(1, b"x" * 1000), record(2))
    assert batch.data_bytes_at_most >= 1001
    assert batch.records_at_most(10_000) >= 2
    assert batch.records_at_most(1) == 1
    assert Batch(None).records_at_most(10) == 0
