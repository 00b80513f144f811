"""Tables of moto with streams of ours, over HTTP."""

from __future__ import annotations

import itertools
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from kcl_mld.local.embedded import ControlRefused
from tests.unit.local.in_this_process import InThisProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.local.embedded import EmbeddedAws

STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
_names = itertools.count()


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    with InThisProcess(region="eu-central-1", options=("--table-shard-s", "1000")) as aws:
        yield aws


@pytest.fixture
def dynamodb(aws: EmbeddedAws) -> Any:
    return aws.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))


@pytest.fixture
def streams(aws: EmbeddedAws) -> Iterator[Any]:
    yield aws.client("dynamodbstreams", config=Config(retries={"total_max_attempts": 1}))
    aws.control(faults=[])


def new_table(dynamodb: Any, **more: Any) -> dict[str, Any]:
    described: dict[str, Any] = dynamodb.create_table(
        TableName=f"Table{next(_names)}",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        **more,
    )["TableDescription"]
    return described


def changes_of(streams: Any, arn: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Name and new image of each change."""
    found = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        answer = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        records = streams.get_records(ShardIterator=answer["ShardIterator"])["Records"]
        found += [(one["eventName"], one["dynamodb"].get("NewImage")) for one in records]
    return found


def item(key: str, **more: str) -> dict[str, Any]:
    return {"pk": {"S": key}, **{name: {"S": text} for name, text in more.items()}}


def test_every_kind_of_write_is_one_change(dynamodb: Any, streams: Any) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    name, arn = table["TableName"], table["LatestStreamArn"]
    setting = {
        "UpdateExpression": "SET v = :v",
        "ExpressionAttributeValues": {":v": {"S": "u"}},
    }
    dynamodb.update_item(TableName=name, Key=item("a"), **setting)
    dynamodb.put_item(TableName=table["TableArn"], Item=item("b"))
    dynamodb.batch_write_item(
        RequestItems={
            name: [
                {"PutRequest": {"Item": item("c")}},
                {"DeleteRequest": {"Key": item("b")}},
            ]
        }
    )
    dynamodb.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": name, "Item": item("d")}},
            {"Update": {"TableName": name, "Key": item("c"), **setting}},
        ]
    )
    dynamodb.execute_statement(Statement=f"INSERT INTO \"{name}\" VALUE {{'pk': 'e'}}")
    assert changes_of(streams, arn) == [
        ("INSERT", item("a", v="u")),
        ("INSERT", item("b")),
        ("INSERT", item("c")),
        ("REMOVE", None),
        ("INSERT", item("d")),
        ("MODIFY", item("c", v="u")),
        ("INSERT", item("e")),
    ]


def test_a_cancelled_transaction_is_no_change_and_later_ones_are(
    dynamodb: Any, streams: Any
) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    name, arn = table["TableName"], table["LatestStreamArn"]
    dynamodb.put_item(TableName=name, Item=item("a"))
    condition = {"ConditionExpression": "attribute_not_exists(pk)"}
    with pytest.raises(ClientError, match="TransactionCanceled"):
        dynamodb.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": name, "Item": item("b")}},
                {"Put": {"TableName": name, "Item": item("a"), **condition}},
            ]
        )
    dynamodb.put_item(TableName=name, Item=item("c"))
    assert changes_of(streams, arn) == [("INSERT", item("a")), ("INSERT", item("c"))]


def test_many_changes_of_one_request_and_binary_values(dynamodb: Any, streams: Any) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    name, arn = table["TableName"], table["LatestStreamArn"]
    items = [{**item(str(n)), "b": {"B": b"\x00\xff"}, "s": {"NS": ["1"]}} for n in range(25)]
    dynamodb.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": one}} for one in items]})
    assert changes_of(streams, arn) == [("INSERT", one) for one in items]


def test_a_table_gets_loses_and_gets_again_a_stream(dynamodb: Any, streams: Any) -> None:
    table = new_table(dynamodb)
    name = table["TableName"]
    assert "LatestStreamArn" not in table
    dynamodb.put_item(TableName=name, Item=item("before"))

    def update(**wanted: Any) -> dict[str, Any]:
        dynamodb.update_table(TableName=name, StreamSpecification=wanted)
        described: dict[str, Any] = dynamodb.describe_table(TableName=name)["Table"]
        return described

    enabled = update(**STREAM)
    assert enabled["StreamSpecification"] == STREAM
    dynamodb.put_item(TableName=name, Item=item("first"))
    disabled = update(StreamEnabled=False)
    assert disabled["LatestStreamArn"] == enabled["LatestStreamArn"]
    assert "StreamSpecification" not in disabled
    dynamodb.put_item(TableName=name, Item=item("unseen"))
    again = update(StreamEnabled=True, StreamViewType="KEYS_ONLY")
    assert again["LatestStreamLabel"] > enabled["LatestStreamLabel"]
    dynamodb.put_item(TableName=name, Item=item("second"))
    assert changes_of(streams, enabled["LatestStreamArn"]) == [("INSERT", item("first"))]
    assert changes_of(streams, again["LatestStreamArn"]) == [("INSERT", None)]
    dynamodb.delete_table(TableName=name)
    new = dynamodb.create_table(
        TableName=name,
        KeySchema=table["KeySchema"],
        AttributeDefinitions=table["AttributeDefinitions"],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=STREAM,
    )["TableDescription"]
    dynamodb.put_item(TableName=name, Item=item("third"))
    assert changes_of(streams, new["LatestStreamArn"]) == [("INSERT", item("third"))]
    assert len(streams.list_streams(TableName=name)["Streams"]) == 3


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (STREAM, "ResourceInUseException"),
        ({"StreamEnabled": True}, "ValidationException"),
        ({"StreamEnabled": True, "StreamViewType": "ALL"}, "ValidationException"),
    ],
)
def test_streams_that_make_no_sense_are_refused(
    dynamodb: Any, wanted: dict[str, Any], code: str
) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    with pytest.raises(ClientError) as caught:
        dynamodb.update_table(TableName=table["TableName"], StreamSpecification=wanted)
    assert caught.value.response["Error"]["Code"] == code


def test_what_moto_refuses_is_refused(dynamodb: Any) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        dynamodb.update_table(TableName="Nothing", StreamSpecification=STREAM)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        dynamodb.describe_table(TableName="Nothing")
    table = new_table(dynamodb)
    wanted = {"StreamEnabled": False}
    dynamodb.update_table(TableName=table["TableName"], StreamSpecification=wanted)


def test_faults_are_of_this_service_alone(aws: EmbeddedAws, dynamodb: Any, streams: Any) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    code = "ThrottlingException"
    aws.control(faults=[{"service": "dynamodbstreams", "code": code, "times": 1}])
    dynamodb.put_item(TableName=table["TableName"], Item=item("a"))
    with pytest.raises(ClientError, match=code):
        changes_of(streams, table["LatestStreamArn"])
    assert len(changes_of(streams, table["LatestStreamArn"])) == 1
    assert aws.control()["faults"]["dynamodbstreams.DescribeStream"] == 1


def test_settings_and_time_are_steered(aws: EmbeddedAws, dynamodb: Any, streams: Any) -> None:
    table = new_table(dynamodb, StreamSpecification=STREAM)
    arn = table["LatestStreamArn"]

    def count() -> int:
        return len(streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"])

    assert aws.control()["table_streams"]["shard_s"] == 1000
    assert count() == 1
    aws.control(advance_s=1001)
    assert count() == 2
    aws.control(replace_shards=3)
    assert count() == 5
    aws.control(table_streams={"listing_delay_s": 1e6}, replace_shards=1)
    assert count() == 1
    aws.control(table_streams={"listing_delay_s": 0.0})
    assert count() == 8


def test_answers_have_the_date_of_the_server(aws: EmbeddedAws, streams: Any) -> None:
    def date_s() -> float:
        answer = streams.list_streams()
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(date).timestamp()

    before_s = date_s()
    aws.control(advance_s=500)
    assert date_s() >= before_s + 500


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"table_streams": {"shard": 1}}, "table_streams: there is no 'shard'. Did you mean"),
        ({"table_streams": {"shard_s": 0.0}}, "table_streams: Expected `float` >= 0.1"),
        ({"replace_shards": 101}, "Expected `int` <= 100 - at `$.replace_shards`"),
    ],
)
def test_orders_that_make_no_sense_are_refused(
    aws: EmbeddedAws, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(ControlRefused) as refused:
        aws.control(**wrong)
    assert words in str(refused.value)
