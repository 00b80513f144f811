"""What the contract suite cannot show of the fake: old reads, hooks, observers, slow tables."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.errors import ConditionFailed, InUse, NotFound, ServiceError, UnknownOutcome
from tests.fakes.cloudwatch import FakeCloudWatch
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel, DynamoDbSettings, Write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.aws.ports import CloudWatch, DynamoDb

KEY = {"leaseKey": {"S": "a"}}
TABLE: dict[str, Any] = {
    "TableName": "t",
    "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
}


class World:
    """A model with one table on a clock of its own."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 1000.0
        self.model = DynamoDbModel(
            lambda: self.now_s, random.Random(3), DynamoDbSettings(**settings)
        )
        self.call("CreateTable", **{k: v for k, v in TABLE.items() if k != "TableName"})

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.model.call(operation, {"TableName": "t", **request})

    def put(self, counter: int, key: str = "a") -> None:
        item = {"leaseKey": {"S": key}, "leaseCounter": {"N": str(counter)}}
        self.call("PutItem", Item=item)

    def counter(self, **request: Any) -> int | None:
        item = self.call("GetItem", Key=KEY, **request).get("Item")
        return None if item is None else int(item["leaseCounter"]["N"])


# --- eventually consistent reads ------------------------------------------------------------


def test_a_read_may_be_old_but_never_older_than_the_lag() -> None:
    world = World(max_lag_s=5, stale_probability=1.0)
    seen: set[int | None] = set()
    for counter in range(40):
        world.put(counter)
        world.now_s += 1
        found = world.counter()
        assert found is None or counter - 5 <= found <= counter
        assert found is not None or counter < 5
        seen.add(counter - found if found is not None else None)
        assert world.counter(ConsistentRead=True) == counter
    assert len(seen) > 2


def test_scans_are_old_too_and_may_show_what_was_deleted() -> None:
    world = World(max_lag_s=5, stale_probability=1.0)
    world.put(1)
    world.now_s += 10
    world.call("DeleteItem", Key=KEY)
    counts = {world.call("Scan")["Count"] for _ in range(20)}
    assert counts == {1}
    assert world.call("Scan", ConsistentRead=True)["Count"] == 0
    world.now_s += 6
    assert world.call("Scan")["Count"] == 0


def test_reads_are_fresh_unless_told_otherwise() -> None:
    world = World()
    for counter in range(5):
        world.put(counter)
        assert world.counter() == counter


# --- what callers may not do ----------------------------------------------------------------


def test_nothing_handed_out_is_shared_with_the_table() -> None:
    world = World()
    item: dict[str, Any] = {**KEY, "p": {"SS": ["x"]}, "m": {"M": {"l": {"L": [{"S": "y"}]}}}}
    world.call("PutItem", Item=item)
    item["p"]["SS"].append("z")
    for answer in (world.call("GetItem", Key=KEY)["Item"], world.model.items("t")[0]):
        answer["p"]["SS"].append("z")
        answer["m"]["M"]["l"]["L"].clear()
    assert world.call("GetItem", Key=KEY)["Item"] == {
        **KEY,
        "p": {"SS": ["x"]},
        "m": {"M": {"l": {"L": [{"S": "y"}]}}},
    }


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("GetItem", {"Key": KEY, "ProjectionExpression": "a"}),
        ("UpdateItem", {"Key": KEY, "UpdateExpression": "SET a.b = :v"}),
        ("UpdateItem", {"Key": KEY, "AttributeUpdates": {"a": {"Action": "JUMP"}}}),
        ("UpdateItem", {"Key": KEY, "AttributeUpdates": {"a": {"Action": "PUT"}}}),
        ("UpdateItem", {"Key": KEY, "UpdateExpression": "REMOVE a", "AttributeUpdates": {}}),
        ("DeleteItem", {"Key": KEY, "Expected": {"a": {"Exists": True}}}),
        ("DeleteItem", {"Key": KEY, "Expected": {"a": {"Exists": False, "Value": {"S": "x"}}}}),
        ("DeleteItem", {"Key": KEY, "ReturnValues": "ALL_NEW"}),
        ("DeleteItem", {"Key": KEY, "ConditionExpression": "a ="}),
        ("DeleteItem", {"Key": KEY, "ConditionExpression": "a ~ b"}),
        ("DeleteItem", {"Key": {**KEY, "b": {"S": "x"}}}),
        ("PutItem", {"Item": {**KEY, "a": {"S": 5}}}),
        ("PutItem", {"Item": {**KEY, "a": {"N": 5}}}),
        ("PutItem", {"Item": {**KEY, "a": {"N": "NaN"}}}),
        ("PutItem", {"Item": {**KEY, "a": {}}}),
        ("PutItem", {"Item": {**KEY, "a": {"SS": "text"}}}),
        ("PutItem", {"Item": "text"}),
        ("Scan", {"Segment": 2, "TotalSegments": 2}),
        ("Scan", {"Limit": 0}),
        ("Query", {"IndexName": "none", "KeyConditionExpression": "a = :b"}),
    ],
)
def test_what_is_wrong_or_not_supported_is_refused(
    operation: str, request_: dict[str, Any]
) -> None:
    world = World()
    with pytest.raises(ServiceError) as caught:
        world.call(operation, **request_)
    assert caught.value.code == "ValidationException"


def test_legacy_comparisons_work() -> None:
    world = World()
    world.put(5)
    holds: list[dict[str, Any]] = [
        {"leaseCounter": {"ComparisonOperator": "GE", "AttributeValueList": [{"N": "5"}]}},
        {"leaseCounter": {"ComparisonOperator": "NOT_NULL"}},
        {"nothing": {"ComparisonOperator": "NULL"}},
    ]
    for expected in holds:
        world.call("UpdateItem", Key=KEY, Expected=expected)
    fails: dict[str, Any] = {
        "leaseCounter": {"ComparisonOperator": "LT", "AttributeValueList": [{"N": "5"}]}
    }
    with pytest.raises(ConditionFailed):
        world.call("UpdateItem", Key=KEY, Expected=fails)
    both = {**fails, **holds[2]}
    world.call("UpdateItem", Key=KEY, Expected=both, ConditionalOperator="OR")


# --- tables that take time ------------------------------------------------------------------


def test_a_new_table_is_not_there_at_once() -> None:
    world = World(create_s=10)
    assert world.call("DescribeTable")["Table"]["TableStatus"] == "CREATING"
    with pytest.raises(NotFound):
        world.call("Scan")
    with pytest.raises(ServiceError) as caught:
        world.call(
            "UpdateContinuousBackups",
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
    assert caught.value.code == "ContinuousBackupsUnavailableException"
    with pytest.raises(InUse):
        world.model.call("CreateTable", TABLE)
    world.now_s += 10
    assert world.call("DescribeTable")["Table"]["TableStatus"] == "ACTIVE"
    assert world.call("Scan")["Items"] == []


def test_one_index_is_made_at_a_time() -> None:
    world = World(create_s=10)
    world.now_s += 10

    def create(name: str) -> None:
        index = {
            "IndexName": name,
            "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
        }
        world.call("UpdateTable", GlobalSecondaryIndexUpdates=[{"Create": index}])

    create("one")
    with pytest.raises(InUse):
        create("two")
    world.now_s += 10
    create("two")
    world.call("UpdateTable", GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": "one"}}])
    shown = world.call("DescribeTable")["Table"]["GlobalSecondaryIndexes"]
    assert [index["IndexName"] for index in shown] == ["two"]
    with pytest.raises(ServiceError):
        create("two")


def test_an_index_follows_its_table_as_old_reads_do() -> None:
    """What was there or not, and whose it was, may be as long ago as for a scan."""
    world = World(max_lag_s=5, stale_probability=1.0)
    index = {
        "IndexName": "by-owner",
        "KeySchema": [
            {"AttributeName": "leaseOwner", "KeyType": "HASH"},
            {"AttributeName": "leaseKey", "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    world.call("UpdateTable", GlobalSecondaryIndexUpdates=[{"Create": index}])

    def keys_of(owner: str) -> set[str]:
        found = world.call(
            "Query",
            IndexName="by-owner",
            KeyConditionExpression="leaseOwner = :o",
            ExpressionAttributeValues={":o": {"S": owner}},
        )
        return {item["leaseKey"]["S"] for item in found["Items"]}

    for number in range(20):
        owner = "w1" if number < 10 else "w2"
        item = {"leaseKey": {"S": f"s{number}"}, "leaseOwner": {"S": owner}}
        world.call("PutItem", Item=item)
    world.now_s += 10
    everything = {f"s{number}" for number in range(20)}
    assert keys_of("w1") | keys_of("w2") == everything
    for number in range(10):
        item = {"leaseKey": {"S": f"s{number}"}, "leaseOwner": {"S": "w2"}}
        world.call("PutItem", Item=item)
    for number in range(10, 20):
        world.call("DeleteItem", Key={"leaseKey": {"S": f"s{number}"}})
    world.now_s += 2.5
    assert 0 < len(keys_of("w1")) < 10
    assert 0 < len(keys_of("w2") - {f"s{number}" for number in range(10)}) < 10
    world.now_s += 3
    assert keys_of("w1") == set()
    assert keys_of("w2") == {f"s{number}" for number in range(10)}


# --- observers, port, hooks -----------------------------------------------------------------


def test_observers_see_every_change_and_nothing_else() -> None:
    world = World()
    seen: list[Write] = []
    world.model.observers.append(seen.append)
    world.put(1)
    world.call("DeleteItem", Key={"leaseKey": {"S": "nobody"}})
    with pytest.raises(ConditionFailed):
        world.call(
            "DeleteItem",
            Key=KEY,
            ConditionExpression="leaseCounter = :n",
            ExpressionAttributeValues={":n": {"N": "2"}},
        )
    world.call("DeleteItem", Key=KEY)
    item = {**KEY, "leaseCounter": {"N": "1"}}
    assert [(w.operation, w.before, w.after) for w in seen] == [
        ("PutItem", None, item),
        ("DeleteItem", item, None),
    ]


def test_the_fake_is_the_port_and_its_hooks_frame_the_effect() -> None:
    world = World()
    seen: list[tuple[str, str, int | None]] = []

    async def note(service: str, operation: str, _request: Mapping[str, Any]) -> None:
        seen.append((service, operation, world.counter()))

    async def run() -> None:
        dynamodb: DynamoDb = FakeDynamoDb(world.model, before=note, after=note)
        item = {**KEY, "leaseCounter": {"N": "1"}}
        await dynamodb.put_item(TableName="t", Item=item)
        with pytest.raises(ConditionFailed):
            await dynamodb.put_item(
                TableName="t", Item=item, ConditionExpression="attribute_not_exists(leaseKey)"
            )
        assert (await dynamodb.get_item(TableName="t", Key=KEY))["Item"] == item
        table = (await dynamodb.describe_table(TableName="t"))["Table"]
        assert table["CreationDateTime"].timestamp() == 1000.0

    asyncio.run(run())
    assert seen[:4] == [
        ("dynamodb", "PutItem", None),
        ("dynamodb", "PutItem", 1),
        ("dynamodb", "PutItem", 1),
        ("dynamodb", "PutItem", 1),
    ]


def test_an_answer_can_be_lost_after_the_effect() -> None:
    world = World()

    async def lose(_service: str, operation: str, _request: Mapping[str, Any]) -> None:
        raise UnknownOutcome(operation, "ReadTimeout")

    async def run() -> None:
        dynamodb = FakeDynamoDb(world.model, after=lose)
        await dynamodb.put_item(TableName="t", Item={**KEY, "leaseCounter": {"N": "9"}})

    with pytest.raises(UnknownOutcome):
        asyncio.run(run())
    assert world.counter() == 9


def test_every_operation_of_the_port_is_there() -> None:
    async def run() -> None:
        world = World()
        dynamodb = FakeDynamoDb(world.model)
        await dynamodb.create_table(**{**TABLE, "TableName": "u"})
        await dynamodb.update_table(TableName="u", DeletionProtectionEnabled=True)
        await dynamodb.update_continuous_backups(
            TableName="u", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )
        await dynamodb.update_item(TableName="u", Key=KEY)
        assert (await dynamodb.scan(TableName="u"))["Count"] == 1
        found = await dynamodb.query(
            TableName="u",
            KeyConditionExpression="leaseKey = :k",
            ExpressionAttributeValues={":k": {"S": "a"}},
        )
        assert found["Items"] == [KEY]
        delete = {"Delete": {"TableName": "u", "Key": KEY}}
        await dynamodb.transact_write_items(TransactItems=[delete])
        await dynamodb.delete_item(TableName="u", Key=KEY)
        with pytest.raises(ServiceError):
            await dynamodb.delete_table(TableName="u")
        await dynamodb.update_table(TableName="u", DeletionProtectionEnabled=False)
        await dynamodb.delete_table(TableName="u")

    asyncio.run(run())


def test_cloudwatch_keeps_what_was_published() -> None:
    async def run() -> list[dict[str, Any]]:
        fake = FakeCloudWatch()
        cloudwatch: CloudWatch = fake
        await cloudwatch.put_metric_data(Namespace="n", MetricData=[{"MetricName": "m"}])
        with pytest.raises(ServiceError):
            await cloudwatch.put_metric_data(Namespace="n", MetricData=[])
        return fake.data

    assert asyncio.run(run()) == [{"MetricName": "m"}]


def test_cloudwatch_can_refuse() -> None:
    async def refuse(_service: str, operation: str, _request: Mapping[str, Any]) -> None:
        raise ServiceError(operation, "AccessDenied")

    async def run() -> None:
        await FakeCloudWatch(before=refuse).put_metric_data(
            Namespace="n", MetricData=[{"MetricName": "m"}]
        )

    with pytest.raises(ServiceError):
        asyncio.run(run())
