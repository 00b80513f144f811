"""Aggregates as the Kinesis Producer Library packs them."""

from kcl_mld.acceptance.rules.aggregate import aggregate
from kcl_mld.retrieval.rules.deaggregate import AggregateOutcome, deaggregate


def test_an_aggregate_is_read_as_its_user_records():
    payloads = [b"", b"one", b"x" * 1000]
    found = deaggregate(aggregate("key-1", payloads), "key-1")
    assert found.outcome is AggregateOutcome.EXPANDED
    assert [record.data for record in found.records] == payloads
    assert [record.sub_sequence_number for record in found.records] == [0, 1, 2]
    assert {record.partition_key for record in found.records} == {"key-1"}
    assert found.unreadable == found.outside == 0
