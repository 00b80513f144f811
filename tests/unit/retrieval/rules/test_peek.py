"""The records behind a checkpoint as their consumer will get them."""

from base64 import b64encode

from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.retrieval.model.record import KinesisRecord
from kcl_mld.retrieval.rules.peek import records_behind
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.aggregate import aggregate


def record(number, data=b"x", key="k", at_s=None):
    return KinesisRecord(str(number), b64encode(data).decode(), key, at_s)


PACKED = record(7, aggregate(("a", b"1"), ("b", b"22"), ("c", b"333")))


def found(checkpoint, *records, keys=None):
    return [
        (str(one.position), one.partition_key, one.data, one.is_aggregated, one.is_dropped)
        for one in records_behind(checkpoint, records, keys)
    ]


def test_each_user_record_behind_the_checkpoint():
    everything = [
        ("6", "k", b"x", False, False),
        ("7", "a", b"1", True, False),
        ("7/1", "b", b"22", True, False),
        ("7/2", "c", b"333", True, False),
    ]
    assert found(TRIM_HORIZON, record(6), PACKED) == everything
    assert found(ExtendedSequenceNumber("6"), record(6), PACKED) == everything[1:]
    assert found(ExtendedSequenceNumber("7", 1), PACKED, record(8))[0] == everything[3]
    assert found(ExtendedSequenceNumber("7", 2), PACKED) == []


def test_the_time_is_that_of_kinesis():
    (one,) = records_behind(TRIM_HORIZON, [record(1, at_s=5.5)], None)
    assert one.arrived_s == 5.5


def test_what_is_no_aggregate_or_no_text_is_a_record():
    looks_so = record(1, b"\xf3\x89\x9a\xc2" + b"no aggregate, but long enough")
    assert found(TRIM_HORIZON, looks_so)[0][3:] == (False, False)
    nothing = KinesisRecord("1", None)
    assert found(TRIM_HORIZON, nothing) == [("1", "", b"", False, False)]
    assert found(TRIM_HORIZON, KinesisRecord("1", "=x"))[0][2] == b""


def test_an_aggregate_with_keys_of_another_shard_is_not_delivered():
    ((position, key, data, is_aggregated, is_dropped),) = found(
        TRIM_HORIZON, PACKED, keys=HashRange(0, 1)
    )
    assert (position, key, is_aggregated, is_dropped) == ("7", "k", True, True)
    assert len(data) > 20
    assert len(found(TRIM_HORIZON, PACKED, keys=HashRange(0, 2**128 - 1))) == 3
