"""DynamoDB as the daemon and its Java neighbors use it: the same cases on fake and emulators."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.targets import Refused

if TYPE_CHECKING:
    from tests.contract.targets import Target

_numbers = itertools.count()
FAILED = "ConditionalCheckFailedException"
INVALID = "ValidationException"
KEY = {"leaseKey": {"S": "shard"}}
LEASE: dict[str, Any] = {
    **KEY,
    "leaseOwner": {"S": "w1"},
    "leaseCounter": {"N": "7"},
    "parentShardId": {"SS": ["a", "b"]},
}


def new_table(dynamodb: Target, **more: Any) -> str:
    name = f"table-{next(_numbers)}"
    request: dict[str, Any] = {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        **more,
    }
    dynamodb.call("CreateTable", **request)
    return name


def with_lease(dynamodb: Target) -> str:
    table = new_table(dynamodb)
    dynamodb.call("PutItem", TableName=table, Item=LEASE)
    return table


def stored(dynamodb: Target, table: str) -> dict[str, Any] | None:
    answer = dynamodb.call("GetItem", TableName=table, Key=KEY, ConsistentRead=True)
    item = answer.get("Item")
    return None if item is None else normal(item)


def normal(item: dict[str, Any]) -> dict[str, Any]:
    """An item with its sets in order."""
    return {
        name: {kind: sorted(value) if kind in {"SS", "NS"} else value}
        for name, attribute in item.items()
        for kind, value in attribute.items()
    }


def refused(dynamodb: Target, operation: str, **request: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        dynamodb.call(operation, **request)
    return caught.value


def update(dynamodb: Target, table: str, expression: str, **more: Any) -> dict[str, Any]:
    return dynamodb.call(
        "UpdateItem", TableName=table, Key=KEY, UpdateExpression=expression, **more
    )


def values(**named: Any) -> dict[str, Any]:
    """Expression attribute values: text is S, numbers are N, lists are SS."""
    kinds = {str: "S", int: "N", list: "SS"}
    return {
        f":{name}": {kinds[type(value)]: str(value) if isinstance(value, int) else value}
        for name, value in named.items()
    }


# --- tables ---------------------------------------------------------------------------------


def test_a_table_is_created_and_described(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    shown = dynamodb.call("DescribeTable", TableName=table)["Table"]
    assert shown["TableStatus"] == "ACTIVE"
    assert shown["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    assert shown["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert shown["ItemCount"] == 0
    assert shown["TableArn"].endswith(f":table/{table}")


def test_a_second_table_of_the_same_name_is_refused(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    code = refused(
        dynamodb,
        "CreateTable",
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    ).code
    assert code == "ResourceInUseException"


def test_a_missing_table_is_not_found(dynamodb: Target) -> None:
    for operation, request in (
        ("DescribeTable", {}),
        ("Scan", {}),
        ("GetItem", {"Key": KEY}),
        ("PutItem", {"Item": LEASE}),
        ("DeleteItem", {"Key": KEY}),
        ("UpdateItem", {"Key": KEY, "UpdateExpression": "REMOVE a"}),
    ):
        code = refused(dynamodb, operation, TableName="nowhere", **request).code
        assert code == "ResourceNotFoundException", operation


def test_provisioned_tables_show_their_capacity(dynamodb: Target) -> None:
    capacity = {"ReadCapacityUnits": 10, "WriteCapacityUnits": 5}
    table = new_table(dynamodb, BillingMode="PROVISIONED", ProvisionedThroughput=capacity)
    shown = dynamodb.call("DescribeTable", TableName=table)["Table"]["ProvisionedThroughput"]
    assert (shown["ReadCapacityUnits"], shown["WriteCapacityUnits"]) == (10, 5)


def test_deletion_protection_is_kept(dynamodb: Target) -> None:
    table = new_table(dynamodb, DeletionProtectionEnabled=True)
    assert refused(dynamodb, "DeleteTable", TableName=table).code == INVALID
    dynamodb.call("UpdateTable", TableName=table, DeletionProtectionEnabled=False)
    dynamodb.call("DeleteTable", TableName=table)
    assert refused(dynamodb, "Scan", TableName=table).code == "ResourceNotFoundException"


def test_backups_can_be_switched_on(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    answer = dynamodb.call(
        "UpdateContinuousBackups",
        TableName=table,
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
    )["ContinuousBackupsDescription"]
    state = answer["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    assert state == "ENABLED"


# --- items ----------------------------------------------------------------------------------


def test_items_of_every_type_come_back(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    item = {
        **KEY,
        "s": {"S": "żółw"},
        "empty": {"S": ""},
        "n": {"N": "12345678901234567890"},
        "b": {"B": b"\x00\xff"},
        "yes": {"BOOL": True},
        "none": {"NULL": True},
        "ss": {"SS": ["a", "b"]},
        "l": {"L": [{"N": "1"}, {"S": "x"}]},
        "m": {"M": {"deep": {"L": [{"BOOL": False}]}}},
    }
    dynamodb.call("PutItem", TableName=table, Item=item)
    assert stored(dynamodb, table) == item


@pytest.mark.parametrize(
    ("written", "read"),
    [("007", "7"), ("1.50", "1.5"), ("-0.0", "0"), ("1E3", "1000"), ("1.0E-6", "0.000001")],
)
def test_numbers_come_back_in_normal_form(dynamodb: Target, written: str, read: str) -> None:
    table = new_table(dynamodb)
    dynamodb.call("PutItem", TableName=table, Item={**KEY, "n": {"N": written}})
    assert (stored(dynamodb, table) or {})["n"] == {"N": read}


@pytest.mark.parametrize(
    "item",
    [
        {**KEY, "n": {"N": "seven"}},
        {**KEY, "n": {"N": ""}},
        {**KEY, "ss": {"SS": []}},
        {**KEY, "ss": {"SS": ["a", "a"]}},
        {"leaseKey": {"S": ""}},
        {"leaseKey": {"N": "1"}},
        {"other": {"S": "x"}},
    ],
    ids=["word", "no digits", "empty set", "double", "empty key", "key type", "no key"],
)
def test_bad_items_are_refused(dynamodb: Target, item: dict[str, Any]) -> None:
    table = new_table(dynamodb)
    assert refused(dynamodb, "PutItem", TableName=table, Item=item).code == INVALID


def test_an_absent_item_is_an_empty_answer(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    assert "Item" not in dynamodb.call("GetItem", TableName=table, Key=KEY)


def test_returned_values_are_those_asked_for(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    for kind, expected in (
        ("NONE", None),
        ("ALL_OLD", {**LEASE, "leaseCounter": {"N": "8"}}),
        ("UPDATED_NEW", {"leaseCounter": {"N": "10"}}),
        ("UPDATED_OLD", {"leaseCounter": {"N": "10"}}),
        ("ALL_NEW", {**LEASE, "leaseCounter": {"N": "12"}}),
    ):
        answer = update(
            dynamodb,
            table,
            "ADD leaseCounter :one",
            ExpressionAttributeValues=values(one=1),
            ReturnValues=kind,
        )
        found = answer.get("Attributes")
        assert (normal(found) if found else None) == expected, kind
    answer = dynamodb.call("DeleteItem", TableName=table, Key=KEY, ReturnValues="ALL_OLD")
    assert normal(answer["Attributes"]) == {**LEASE, "leaseCounter": {"N": "12"}}


def test_delete_works_on_what_is_not_there(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    assert "Attributes" not in dynamodb.call(
        "DeleteItem", TableName=table, Key=KEY, ReturnValues="ALL_OLD"
    )


# --- conditions -----------------------------------------------------------------------------

CONDITIONS = [
    ("attribute_not_exists(leaseKey)", {}, False),
    ("attribute_exists(leaseKey)", {}, True),
    ("attribute_exists(nothing)", {}, False),
    ("leaseCounter = :n", values(n=7), True),
    ("leaseCounter = :n", {":n": {"N": "7.0"}}, True),
    ("leaseCounter = :n", {":n": {"S": "7"}}, False),
    ("leaseCounter <> :n", values(n=8), True),
    ("nothing = :n", values(n=8), False),
    ("nothing <> :n", values(n=8), True),
    ("leaseCounter < :n", values(n=10), True),
    ("leaseCounter > :n", values(n=10), False),
    ("leaseCounter <= :n", values(n=7), True),
    ("nothing < :n", values(n=7), False),
    ("leaseOwner < :o", values(o="w2"), True),
    ("parentShardId = :p", values(p=["b", "a"]), True),
    ("leaseCounter = :n AND leaseOwner = :o", values(n=7, o="w1"), True),
    ("leaseCounter = :n AND leaseOwner = :o", values(n=7, o="w2"), False),
    ("leaseCounter = :n OR leaseOwner = :o", values(n=0, o="w1"), True),
    ("NOT leaseCounter = :n", values(n=0), True),
    ("NOT (leaseCounter = :n AND leaseOwner = :o)", values(n=7, o="w1"), False),
    ("leaseOwner = :o OR leaseOwner = :p AND leaseCounter = :n", values(o="w1", p="x", n=0), True),
    ("leaseKey = :k and attribute_not_exists(checkpointOwner)", values(k="shard"), True),
    ("begins_with(leaseOwner, :o)", values(o="w"), True),
    ("contains(parentShardId, :p)", values(p="a"), True),
    ("leaseCounter BETWEEN :a AND :b", values(a=5, b=7), True),
    ("leaseOwner IN (:a, :b)", values(a="x", b="w1"), True),
]


@pytest.mark.parametrize(("condition", "named", "holds"), CONDITIONS)
def test_a_condition_decides(
    dynamodb: Target, condition: str, named: dict[str, Any], holds: bool
) -> None:
    table = with_lease(dynamodb)
    request: dict[str, Any] = {"TableName": table, "Key": KEY, "ConditionExpression": condition}
    if named:
        request["ExpressionAttributeValues"] = named
    if holds:
        dynamodb.call("DeleteItem", **request)
        assert stored(dynamodb, table) is None
    else:
        assert refused(dynamodb, "DeleteItem", **request).code == FAILED
        assert stored(dynamodb, table) == LEASE


def test_create_if_absent_never_overwrites(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    request = {"TableName": table, "ConditionExpression": "attribute_not_exists(leaseKey)"}
    dynamodb.call("PutItem", Item=LEASE, **request)
    failed = refused(dynamodb, "PutItem", Item={**KEY, "x": {"S": "y"}}, **request)
    assert failed.code == FAILED
    assert stored(dynamodb, table) == LEASE


def test_a_condition_on_a_counter_never_revives_a_deleted_lease(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    with pytest.raises(Refused) as caught:
        update(
            dynamodb,
            table,
            "SET leaseCounter = :m",
            ConditionExpression="leaseCounter = :n",
            ExpressionAttributeValues=values(n=7, m=8),
        )
    assert caught.value.code == FAILED
    assert stored(dynamodb, table) is None


def test_a_failed_condition_shows_the_item_on_request_only(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    request = {
        "TableName": table,
        "Key": KEY,
        "UpdateExpression": "SET leaseCounter = :m",
        "ConditionExpression": "leaseCounter = :n",
        "ExpressionAttributeValues": values(n=1, m=2),
    }
    assert refused(dynamodb, "UpdateItem", **request).item is None
    shown = refused(
        dynamodb, "UpdateItem", ReturnValuesOnConditionCheckFailure="ALL_OLD", **request
    ).item
    assert shown is not None
    assert normal(shown) == LEASE


# --- updates --------------------------------------------------------------------------------


def test_set_remove_and_add_work_together(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    update(
        dynamodb,
        table,
        "SET #o = :o, checkpoint = :c REMOVE parentShardId, nothing ADD leaseCounter :one",
        ExpressionAttributeNames={"#o": "leaseOwner"},
        ExpressionAttributeValues=values(o="w2", c="LATEST", one=1),
    )
    assert stored(dynamodb, table) == {
        **KEY,
        "leaseOwner": {"S": "w2"},
        "leaseCounter": {"N": "8"},
        "checkpoint": {"S": "LATEST"},
    }


def test_set_computes_from_the_item_as_it_was(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    update(
        dynamodb,
        table,
        "SET leaseCounter = leaseCounter + :one, previous = leaseCounter, "
        "fresh = if_not_exists(fresh, :one), leaseOwner = if_not_exists(leaseOwner, :one)",
        ExpressionAttributeValues=values(one=1),
    )
    assert stored(dynamodb, table) == {
        **LEASE,
        "leaseCounter": {"N": "8"},
        "previous": {"N": "7"},
        "fresh": {"N": "1"},
    }


def test_add_starts_from_nothing(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    update(dynamodb, table, "ADD n :one, s :s", ExpressionAttributeValues=values(one=1, s=["a"]))
    update(dynamodb, table, "ADD n :one, s :s", ExpressionAttributeValues=values(one=2, s=["b"]))
    assert stored(dynamodb, table) == {**KEY, "n": {"N": "3"}, "s": {"SS": ["a", "b"]}}


def test_emptied_sets_vanish(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    update(
        dynamodb,
        table,
        "DELETE parentShardId :p",
        ExpressionAttributeValues=values(p=["a", "b", "c"]),
    )
    assert "parentShardId" not in (stored(dynamodb, table) or {})


def test_an_update_creates_the_item(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    update(dynamodb, table, "SET a = :a", ExpressionAttributeValues=values(a="x"))
    assert stored(dynamodb, table) == {**KEY, "a": {"S": "x"}}


def refused_update(dynamodb: Target, expression: str, named: dict[str, Any]) -> str:
    table = with_lease(dynamodb)
    request: dict[str, Any] = {"ExpressionAttributeValues": named} if named else {}
    code = refused(
        dynamodb, "UpdateItem", TableName=table, Key=KEY, UpdateExpression=expression, **request
    ).code
    assert stored(dynamodb, table) == LEASE
    return code


def test_the_key_cannot_be_updated(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "SET leaseKey = :k", values(k="other")) == INVALID


def test_an_undefined_value_is_refused(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "SET a = :a", values(b="x")) == INVALID


def test_an_unused_value_is_refused(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "SET a = :a", values(a="x", b="y")) == INVALID


def test_a_path_written_twice_is_refused(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "SET a = :a REMOVE a", values(a="x")) == INVALID


def test_broken_syntax_is_refused(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "SET a :a", values(a="x")) == INVALID
    assert refused_update(dynamodb, "SET a = :a,", values(a="x")) == INVALID


def test_a_number_cannot_be_added_to_text(dynamodb: Target) -> None:
    assert refused_update(dynamodb, "ADD leaseOwner :n", values(n=1)) == INVALID
    assert refused_update(dynamodb, "SET leaseOwner = leaseOwner + :n", values(n=1)) == INVALID


# --- the older parameters -------------------------------------------------------------------


def test_legacy_updates_work_under_legacy_conditions(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    request: dict[str, Any] = {
        "TableName": table,
        "Key": KEY,
        "AttributeUpdates": {
            "leaseCounter": {"Action": "ADD", "Value": {"N": "1"}},
            "leaseOwner": {"Value": {"S": "w2"}},
            "parentShardId": {"Action": "DELETE"},
        },
        "Expected": {"leaseCounter": {"Value": {"N": "7"}}, "gone": {"Exists": False}},
    }
    dynamodb.call("UpdateItem", **request)
    after = {**KEY, "leaseCounter": {"N": "8"}, "leaseOwner": {"S": "w2"}}
    assert stored(dynamodb, table) == after
    failed = refused(
        dynamodb, "UpdateItem", ReturnValuesOnConditionCheckFailure="ALL_OLD", **request
    )
    assert failed.code == FAILED
    assert failed.item is not None
    assert normal(failed.item) == after


def test_legacy_and_modern_parameters_do_not_mix(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    code = refused(
        dynamodb,
        "UpdateItem",
        TableName=table,
        Key=KEY,
        UpdateExpression="REMOVE a",
        Expected={"leaseKey": {"Exists": False}},
    ).code
    assert code == INVALID


# --- scans and queries ----------------------------------------------------------------------


def filled(dynamodb: Target, count: int) -> str:
    table = new_table(dynamodb)
    for number in range(count):
        item = {
            "leaseKey": {"S": f"k{number:03d}"},
            "owner": {"S": f"w{number % 3}"},
            "pad": {"S": "x" * 100},
        }
        dynamodb.call("PutItem", TableName=table, Item=item)
    return table


def scan_all(dynamodb: Target, table: str, **request: Any) -> tuple[list[str], int]:
    """Keys found, in order, and how many pages it took."""
    found: list[str] = []
    for pages in itertools.count(1):
        answer = dynamodb.call("Scan", TableName=table, **request)
        assert answer["Count"] == len(answer["Items"])
        found += [item["leaseKey"]["S"] for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return sorted(found), pages
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    raise AssertionError


def test_a_scan_finds_everything_once_through_pages(dynamodb: Target) -> None:
    table = filled(dynamodb, 25)
    everything = [f"k{number:03d}" for number in range(25)]
    assert scan_all(dynamodb, table) == (everything, 1)
    found, pages = scan_all(dynamodb, table, Limit=10)
    assert (found, pages) == (everything, 3)


def test_segments_divide_a_scan(dynamodb: Target) -> None:
    table = filled(dynamodb, 25)
    parts = [
        scan_all(dynamodb, table, Segment=segment, TotalSegments=3, Limit=4)[0]
        for segment in range(3)
    ]
    joined = sorted(itertools.chain.from_iterable(parts))
    assert joined == [f"k{number:03d}" for number in range(25)]


def test_a_filter_counts_what_it_drops(dynamodb: Target) -> None:
    table = filled(dynamodb, 9)
    answer = dynamodb.call(
        "Scan",
        TableName=table,
        FilterExpression="#o = :o",
        ExpressionAttributeNames={"#o": "owner"},
        ExpressionAttributeValues=values(o="w1"),
    )
    assert (answer["Count"], answer["ScannedCount"]) == (3, 9)


def test_a_page_ends_after_a_megabyte(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    for number in range(4):
        item = {"leaseKey": {"S": f"k{number}"}, "pad": {"S": "x" * 390_000}}
        dynamodb.call("PutItem", TableName=table, Item=item)
    found, pages = scan_all(dynamodb, table)
    assert (len(found), pages) == (4, 2)


def test_half_a_segment_request_is_refused(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    assert refused(dynamodb, "Scan", TableName=table, TotalSegments=2).code == INVALID


def add_index(dynamodb: Target, table: str) -> None:
    dynamodb.call(
        "UpdateTable",
        TableName=table,
        AttributeDefinitions=[
            {"AttributeName": "leaseKey", "AttributeType": "S"},
            {"AttributeName": "leaseOwner", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexUpdates=[
            {
                "Create": {
                    "IndexName": "by-owner",
                    "KeySchema": [
                        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
                        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            }
        ],
    )
    for _ in range(100):
        try:
            shown = dynamodb.call("DescribeTable", TableName=table)["Table"]
        except Refused as error:  # DynamoDB Local, now and then, while it makes an index
            if error.code != "InternalFailure":
                raise
        else:
            if shown["GlobalSecondaryIndexes"][0]["IndexStatus"] == "ACTIVE":
                break
        dynamodb.advance(0.1)


def by_owner(table: str, **more: Any) -> dict[str, Any]:
    return {
        "TableName": table,
        "IndexName": "by-owner",
        "KeyConditionExpression": "leaseOwner = :o",
        "ExpressionAttributeValues": values(o="w1"),
        **more,
    }


def test_an_index_is_added_and_asked(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    dynamodb.call("PutItem", TableName=table, Item={"leaseKey": {"S": "unowned"}})
    add_index(dynamodb, table)
    answer = dynamodb.call("Query", **by_owner(table))
    assert answer["Items"] == [{**KEY, "leaseOwner": {"S": "w1"}}]


def test_an_index_is_asked_page_by_page_in_order_of_its_keys(dynamodb: Target) -> None:
    table = new_table(dynamodb)
    add_index(dynamodb, table)
    for number in (3, 1, 5, 2, 4):
        item = {"leaseKey": {"S": f"s{number}"}, "leaseOwner": {"S": "w1"}}
        dynamodb.call("PutItem", TableName=table, Item=item)
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = dynamodb.call("Query", **by_owner(table, Limit=2, **more))
        found += [item["leaseKey"]["S"] for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        assert page["LastEvaluatedKey"].keys() == {"leaseKey", "leaseOwner"}
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert found == ["s1", "s2", "s3", "s4", "s5"]


def test_an_index_that_is_not_there_cannot_be_asked(dynamodb: Target) -> None:
    assert refused(dynamodb, "Query", **by_owner(with_lease(dynamodb))).code == INVALID


def test_an_index_cannot_be_read_consistently(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    add_index(dynamodb, table)
    assert refused(dynamodb, "Query", **by_owner(table, ConsistentRead=True)).code == INVALID


# --- transactions ---------------------------------------------------------------------------


def check(table: str, owner: str) -> dict[str, Any]:
    return {
        "ConditionCheck": {
            "TableName": table,
            "Key": KEY,
            "ConditionExpression": "leaseOwner = :o",
            "ExpressionAttributeValues": values(o=owner),
        }
    }


def put_new(table: str, key: str) -> dict[str, Any]:
    return {
        "Put": {
            "TableName": table,
            "Item": {"leaseKey": {"S": key}},
            "ConditionExpression": "attribute_not_exists(leaseKey)",
        }
    }


def keys_of(dynamodb: Target, table: str) -> list[str]:
    items = dynamodb.call("Scan", TableName=table, ConsistentRead=True)["Items"]
    return sorted(item["leaseKey"]["S"] for item in items)


def test_a_transaction_moves_items_between_tables(dynamodb: Target) -> None:
    lock, source, target = (with_lease(dynamodb), new_table(dynamodb), new_table(dynamodb))
    for key in ("a", "b"):
        dynamodb.call("PutItem", TableName=source, Item={"leaseKey": {"S": key}})
    moves = [
        action
        for key in ("a", "b")
        for action in (
            put_new(target, key),
            {"Delete": {"TableName": source, "Key": {"leaseKey": {"S": key}}}},
        )
    ]
    dynamodb.call("TransactWriteItems", TransactItems=[check(lock, "w1"), *moves])
    assert (keys_of(dynamodb, source), keys_of(dynamodb, target)) == ([], ["a", "b"])


def test_a_transaction_changes_nothing_when_one_condition_fails(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    change = {
        "Update": {
            "TableName": table,
            "Key": {"leaseKey": {"S": "other"}},
            "UpdateExpression": "SET leaseCounter = :n",
            "ExpressionAttributeValues": values(n=1),
        }
    }
    actions = [put_new(table, "a"), check(table, "somebody else"), change]
    code = refused(dynamodb, "TransactWriteItems", TransactItems=actions).code
    assert code == "TransactionCanceledException"
    assert keys_of(dynamodb, table) == ["shard"]


def test_a_transaction_touches_an_item_once(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    delete = {"Delete": {"TableName": table, "Key": KEY}}
    code = refused(dynamodb, "TransactWriteItems", TransactItems=[check(table, "w1"), delete]).code
    assert code == INVALID


def test_a_transaction_repeated_under_its_token_is_done_once(dynamodb: Target) -> None:
    table = with_lease(dynamodb)
    add = {
        "Update": {
            "TableName": table,
            "Key": KEY,
            "UpdateExpression": "ADD leaseCounter :n",
            "ExpressionAttributeValues": values(n=1),
        }
    }
    token = f"token-{table}"
    for _ in range(2):
        dynamodb.call("TransactWriteItems", TransactItems=[add], ClientRequestToken=token)
    assert (stored(dynamodb, table) or {})["leaseCounter"] == {"N": "8"}


def test_a_transaction_on_a_missing_table_is_not_found(dynamodb: Target) -> None:
    code = refused(dynamodb, "TransactWriteItems", TransactItems=[put_new("nowhere", "a")]).code
    assert code == "ResourceNotFoundException"
