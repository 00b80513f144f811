"""Leases as items of the table."""

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_item import is_lease_item, item_key, lease_from_item, lease_to_item
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.lease_world import lease

MINIMAL = {
    "leaseKey": {"S": "shardId-0"},
    "leaseCounter": {"N": "4"},
    "ownerSwitchesSinceCheckpoint": {"N": "1"},
    "checkpoint": {"S": "TRIM_HORIZON"},
}
FULL = MINIMAL | {
    "leaseOwner": {"S": "w1"},
    "checkpoint": {"S": "49"},
    "checkpointSubSequenceNumber": {"N": "2"},
    "pendingCheckpoint": {"S": "50"},
    "pendingCheckpointSubSequenceNumber": {"N": "0"},
    "pendingCheckpointState": {"B": b"x"},
    "parentShardId": {"SS": ["shardId-9", "shardId-8"]},
    "childShardIds": {"SS": ["shardId-3", "shardId-2"]},
    "startingHashKey": {"S": "0"},
    "endingHashKey": {"S": "99"},
    "throughputKBps": {"N": "1.0E-6"},
    "checkpointOwner": {"S": "w0"},
    "entityType": {"S": "LEASE"},
    "somethingNew": {"S": "of a later version"},
}


def test_a_new_lease_has_these_attributes_and_no_others():
    assert lease_to_item(lease()) == {
        "leaseKey": {"S": "shardId-000000000000"},
        "leaseCounter": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "99"},
        "entityType": {"S": "LEASE"},
    }


def test_a_multi_stream_lease_also_has_stream_and_shard():
    key = "123456789012:s1:1700000000:shardId-000000000000"
    item = lease_to_item(
        lease(
            lease_key=key,
            stream_identifier="123456789012:s1:1700000000",
            parent_shard_ids=("shardId-9",),
            child_shard_ids=("shardId-7",),
            lease_owner="w1",
            checkpoint=None,
        )
    )
    assert item["leaseKey"] == {"S": key}
    assert item["streamName"] == {"S": "123456789012:s1:1700000000"}
    assert item["shardId"] == {"S": "shardId-000000000000"}
    assert item["parentShardId"] == {"SS": ["shardId-9"]}
    assert item["childShardIds"] == {"SS": ["shardId-7"]}
    assert item["leaseOwner"] == {"S": "w1"}
    assert "checkpoint" not in item


@pytest.mark.parametrize("hash_range", [None, HashRange(5, 5)])
def test_a_hash_range_that_java_cannot_read_is_not_written(hash_range):
    item = lease_to_item(lease(hash_range=hash_range))
    assert "startingHashKey" not in item
    assert "endingHashKey" not in item


def test_a_full_item_is_read():
    assert lease_from_item(FULL) == Lease(
        lease_key="shardId-0",
        shard_id="shardId-0",
        lease_owner="w1",
        lease_counter=4,
        checkpoint=ExtendedSequenceNumber("49", 2),
        owner_switches_since_checkpoint=1,
        pending_checkpoint=ExtendedSequenceNumber("50"),
        parent_shard_ids=("shardId-8", "shardId-9"),
        child_shard_ids=("shardId-2", "shardId-3"),
        hash_range=HashRange(0, 99),
        checkpoint_owner="w0",
        throughput_kbps=1e-06,
    )


def test_a_minimal_item_is_read():
    read = lease_from_item(MINIMAL)
    assert read.checkpoint == TRIM_HORIZON
    assert read.hash_range is None
    assert read.parent_shard_ids == ()
    assert read.lease_owner is None


def test_half_a_hash_range_and_null_attributes_are_as_good_as_absent():
    read = lease_from_item(MINIMAL | {"startingHashKey": {"S": "0"}, "leaseOwner": {"NULL": True}})
    assert read.hash_range is None
    assert read.lease_owner is None


@pytest.mark.parametrize("number", ["-5", "1E125", "1E400", "NaN"])
def test_a_throughput_that_cannot_be_true_is_as_good_as_absent(number):
    """By one such row a leader would move the leases of the others to and fro."""
    assert lease_from_item(MINIMAL | {"throughputKBps": {"N": number}}).throughput_kbps is None


def test_a_counter_beyond_64_bits_is_read():
    """Java can't; a shard that somebody reads is better than one that nobody does."""
    row = lease_from_item(MINIMAL | {"leaseCounter": {"N": str(2**63)}})
    assert row.lease_counter == 2**63


def test_the_shard_of_a_multi_stream_lease_is_bare_with_or_without_its_attribute():
    multi = MINIMAL | {
        "leaseKey": {"S": "1:s:2:shardId-5"},
        "streamName": {"S": "1:s:2"},
    }
    assert lease_from_item(multi).shard_id == "shardId-5"
    assert lease_from_item(multi | {"shardId": {"S": "shardId-5"}}).shard_id == "shardId-5"
    assert lease_from_item(multi).stream_identifier == "1:s:2"


@pytest.mark.parametrize(
    ("key", "attributes"),
    [
        ("shardId-5", {"shardId": "shardId-6"}),
        ("shardId-5", {"streamName": "1:s:2"}),
        ("shardId-5", {"streamName": "1:s:2", "shardId": "shardId-5"}),
        ("1:s:2:shardId-5", {}),
        ("1:s:2:shardId-5", {"shardId": "shardId-5"}),
        ("1:s:2:shardId-5", {"streamName": "1:other:2", "shardId": "shardId-5"}),
        ("1:s:2:shardId-5", {"streamName": "1:s:2", "shardId": "shardId-6"}),
    ],
)
def test_a_row_whose_attributes_contradict_its_key_is_malformed(key, attributes):
    """By such a row one shard would be read from the checkpoint of another."""
    item = MINIMAL | {name: {"S": value} for name, value in attributes.items()}
    with pytest.raises(MalformedData, match="of its key"):
        lease_from_item(item | {"leaseKey": {"S": key}})


def test_a_row_may_repeat_what_its_key_says():
    assert lease_from_item(MINIMAL | {"shardId": MINIMAL["leaseKey"]}).stream_identifier is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream_mark": "123456789012:us-east-1:s"},
        {"lease_owner": "w", "lease_counter": 7, "owner_switches_since_checkpoint": 2},
        {"parent_shard_ids": ("a", "b"), "child_shard_ids": ("c",)},
        {"lease_owner": "next", "checkpoint_owner": "w", "throughput_kbps": 0.25},
        {"checkpoint": ExtendedSequenceNumber("12", 3), "hash_range": None},
        {"lease_key": "1:s:2:shardId-000000000000", "stream_identifier": "1:s:2"},
    ],
)
def test_what_is_written_is_read_back(fields):
    assert lease_from_item(lease_to_item(lease(**fields))) == lease(**fields)


@pytest.mark.parametrize("missing", sorted(MINIMAL))
def test_without_a_mandatory_attribute_a_lease_is_malformed(missing):
    item = {name: value for name, value in MINIMAL.items() if name != missing}
    with pytest.raises(MalformedData, match=missing):
        lease_from_item(item)


@pytest.mark.parametrize(
    "attributes",
    [
        {"leaseCounter": {"N": "1.0"}},
        {"leaseCounter": {"N": "1E1"}},
        {"leaseCounter": {"N": "9" * 39}},
        {"leaseCounter": {"N": "9" * 5000}},
        {"leaseCounter": {"S": "1"}},
        {"leaseOwner": {"N": "1"}},
        {"checkpoint": {"S": "abc"}},
        {"parentShardId": {"S": "shardId-1"}},
        {"startingHashKey": {"S": "9"}, "endingHashKey": {"S": "8"}},
        {"startingHashKey": {"S": "x"}, "endingHashKey": {"S": "8"}},
    ],
)
def test_an_attribute_of_another_kind_is_malformed(attributes):
    with pytest.raises(MalformedData):
        lease_from_item(MINIMAL | attributes)


def test_leases_with_and_without_entity_type_are_the_same():
    assert is_lease_item(MINIMAL)
    assert is_lease_item(MINIMAL | {"entityType": {"S": "LEASE"}})
    assert lease_from_item(MINIMAL) == lease_from_item(MINIMAL | {"entityType": {"S": "LEASE"}})


@pytest.mark.parametrize(
    "entity",
    [
        "LEADER",
        "STREAM",
        "CLIENT_VERSION_MIGRATION",
        "TABLE_MIGRATION",
        "WORKER_METRIC_STATS",
        "A_LATER_INVENTION",
    ],
)
def test_other_entities_are_no_leases(entity):
    assert not is_lease_item(MINIMAL | {"entityType": {"S": entity}})


@pytest.mark.parametrize("key", ["Leader", "Migration3.0", "TableMigration3.5"])
def test_items_of_3x_fleets_are_known_by_their_key_too(key):
    assert not is_lease_item({"leaseKey": {"S": key}})


def test_an_item_without_key_is_a_broken_lease():
    assert item_key({}) == ""
    assert is_lease_item({})


def test_positions_keep_their_text():
    item = MINIMAL | {"checkpoint": {"S": "TRIM_HORIZON"}}
    assert lease_from_item(item).checkpoint == TRIM_HORIZON
