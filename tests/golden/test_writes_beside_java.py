"""Every write of a recorded life of the Java daemon 3.5.1, made by us on a twin of its table.

Java's request goes to one table as it was recorded, the one that we would send in that moment to
the other. After each write both hold the same items, attribute by attribute.
"""

import json
from collections import Counter
from pathlib import Path

from kcl_mld.errors import ConditionFailed
from kcl_mld.fleet.model.lock_item import heartbeat_attributes, lock_from_item
from kcl_mld.fleet.model.table_layout import Place, change, creation, deletion, upsert
from kcl_mld.fleet.model.worker_metrics import metrics_attributes, metrics_from_item
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.leases.model.lease_request import HOLDER
from kcl_mld.leases.model.lease_writes import (
    assigning,
    checkpointing,
    children_update,
    hand_off_start,
    renewal,
)
from kcl_mld.leases.model.owner_index import index_creation, my_leases_query
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.golden.test_lease_items import written_by_us

WIRE = Path(__file__).parents[1] / "data" / "wire" / "dynamodb.jsonl"
ROWS = [json.loads(line) for line in WIRE.read_text().splitlines()]
PLACE = Place("life", "leaseKey")
WRITES = ("PutItem", "UpdateItem", "DeleteItem")


def new_model():
    model = DynamoDbModel(lambda: 0.0)
    (creation_request,) = [row[2] for row in ROWS if row[0] == "CreateTable"]
    model.call("CreateTable", creation_request)
    return model


def stored(model, key):
    request = {"TableName": "life", "Key": {"leaseKey": {"S": key}}, "ConsistentRead": True}
    return model.call("GetItem", request).get("Item")


def unheld(item):
    """Without the attribute by which we say who holds a lease; Java's writes keep it."""
    return item and {name: value for name, value in item.items() if name != HOLDER}


def key_in(request):
    return (request.get("Key") or request["Item"])["leaseKey"]["S"]


def ours(operation, request, before):
    """(kind, operation, request) of what we would send where Java sent this."""
    if operation == "PutItem":
        return "PutItem", creation(PLACE, written_by_us(request["Item"]))
    if operation == "DeleteItem":
        lock = lock_from_item(before)
        expected = {"recordVersionNumber": {"S": lock.record_version}}
        return "DeleteItem", deletion(PLACE, "Leader", expected)
    if "AttributeUpdates" in request:
        return "UpdateItem", {"TableName": "life", **lease_write(request, before)}
    values = request["ExpressionAttributeValues"]
    if key_in(request) == "Leader":
        lock = lock_from_item(before)
        expected = {
            "recordVersionNumber": {"S": lock.record_version},
            "ownerName": {"S": lock.owner},
        }
        new = lock_from_item(
            {**before, "recordVersionNumber": values[":newRvn"], "leaseDuration": values[":ld"]}
        )
        return "UpdateItem", change(PLACE, "Leader", heartbeat_attributes(new), expected)
    attributes = {name.removeprefix(":AMZN_MAPPED_"): value for name, value in values.items()}
    metrics = metrics_from_item({**request["Key"], **attributes}, "leaseKey")
    unless_other = ("entityType", "WORKER_METRIC_STATS")
    return "UpdateItem", upsert(PLACE, metrics.worker_id, metrics_attributes(metrics), unless_other)


def lease_write(request, before):
    changed = {
        name: update["Value"]
        for name, update in request["AttributeUpdates"].items()
        if "Value" in update
    }
    lease = lease_from_item(before)
    if "leaseOwner" in changed:
        return assigning(lease, changed["leaseOwner"]["S"], only_unchanged=True).request
    children = tuple(changed.get("childShardIds", {}).get("SS", ()))
    if "checkpoint" in changed:
        position = ExtendedSequenceNumber(
            changed["checkpoint"]["S"], int(changed["checkpointSubSequenceNumber"]["N"])
        )
        return checkpointing(lease, position, children).request
    if children:
        return children_update(lease.lease_key, children)
    throughput = changed.get("throughputKBps", {}).get("N")
    return renewal(lease, None if throughput is None else float(throughput)).request


def send(model, operation, request):
    """The code of the error, or empty."""
    try:
        model.call(operation, request)
    except ConditionFailed as failed:
        return failed.code
    return ""


def test_each_write_of_java_is_one_of_ours_with_the_same_effect():
    java, twin = new_model(), new_model()
    seen = Counter()
    for number, (operation, status, request, _answer) in enumerate(ROWS, 1):
        if operation not in WRITES:
            continue
        key = key_in(request)
        our_operation, our_request = ours(operation, request, stored(twin, key))
        codes = send(java, operation, request), send(twin, our_operation, our_request)
        assert codes == (("", "") if status == 200 else codes[:1] * 2), (number, request)
        assert unheld(stored(twin, key)) == stored(java, key), (number, request, our_request)
        seen[operation, key.rstrip("0123456789")] += 1
    assert [unheld(item) for item in twin.items("life")] == list(java.items("life"))
    assert seen == {
        ("PutItem", "Migration3."): 1,
        ("PutItem", "Leader"): 1,
        ("PutItem", "shardId-"): 5,
        ("UpdateItem", "Leader"): 10,
        ("UpdateItem", "w"): 11,
        ("UpdateItem", "shardId-"): 322,
        ("DeleteItem", "Leader"): 1,
    }


def test_the_index_is_created_and_asked_as_java_does():
    (creation_request,) = [row[2] for row in ROWS if row[0] == "UpdateTable"]
    (created,) = [row[3]["TableDescription"] for row in ROWS if row[0] == "CreateTable"]
    assert {"TableName": "life", **index_creation(created)} == creation_request
    queries = [row[2] for row in ROWS if row[0] == "Query"]
    assert len(queries) == 24
    for query in queries:
        asked = {"TableName": "life", **my_leases_query("w1")}
        ((placeholder, value),) = query["ExpressionAttributeValues"].items()
        same = query["KeyConditionExpression"].replace(placeholder, ":owner")
        assert asked == {
            **query,
            "KeyConditionExpression": same,
            "ExpressionAttributeValues": {":owner": value},
        }


def test_a_hand_off_of_ours_is_stored_as_one_of_java():
    """Recorded while a leader moved a lease from w2 to w1."""
    (before,) = rows_of("two-workers", "shardId-000000000000")
    (during,) = rows_of("w2-stopped", "shardId-000000000000")
    model = new_model()
    model.call("PutItem", {"TableName": "life", "Item": before})
    request = hand_off_start(lease_from_item(before), "w1").request
    assert send(model, "UpdateItem", {"TableName": "life", **request}) == ""
    assert (stored(model, "shardId-000000000000"), during["checkpointOwner"]) == (
        during,
        {"S": "w2"},
    )


def rows_of(stage, key):
    lines = (WIRE.parents[1] / "lease_tables.jsonl").read_text().splitlines()
    recordings = [json.loads(line) for line in lines]
    return [
        item
        for recording in recordings
        if (recording["scenario"], recording["stage"]) == ("two_workers", stage)
        for item in next(iter(recording["tables"].values()))
        if item["leaseKey"]["S"] == key
    ]
