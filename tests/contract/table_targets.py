"""Tables with streams, for the contract suite: our model, our server, DynamoDB Local."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Protocol

from botocore.config import Config

from kcl_mld.local.dynamodb_streams import TableStreams
from kcl_mld.local.kinesis import KinesisFault
from tests.contract.targets import START_WALL, Botocore, Refused, client_for

if TYPE_CHECKING:
    from kcl_mld.local.embedded import EmbeddedAws

_HOUR_S = 3600
_KEYS = [{"AttributeName": "pk", "KeyType": "HASH"}]
_names = itertools.count()


class TableTarget(Protocol):
    """Tables whose key is the text ``pk``, and DynamoDB Streams."""

    name: str

    def new_table(self, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        """Create a table; the ARN of its stream."""

    def put(self, arn: str, key: str, value: int = 0) -> None:
        """Put an item of one value into the table of a stream."""

    def delete(self, arn: str, key: str) -> None:
        """Delete an item that is there."""

    def disable(self, arn: str) -> None:
        """Disable a stream."""

    def enable(self, arn: str) -> str:
        """Enable a stream of the same table; its ARN."""

    def delete_table(self, arn: str) -> None:
        """Delete the table of a stream."""

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """An operation of DynamoDB Streams."""

    def replace_shards(self, count: int = 1) -> None:
        """Replace each open shard of all streams by that many."""

    def advance(self, hours: int) -> None:
        """Let time pass for the service."""


def table_of(arn: str) -> str:
    """The name of a stream's table."""
    return arn.split("/")[1]


class InProcessTables:
    """The model itself, on a clock that moves only when told to."""

    name = "model"

    def __init__(self) -> None:
        self.now_s = START_WALL
        self.model = TableStreams(lambda: self.now_s)
        self._items: dict[tuple[str, str], Any] = {}
        self._latest: dict[str, str] = {}

    def new_table(self, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        table = f"arn:aws:dynamodb:us-east-1:123456789012:table/Table{next(_names)}"
        return self._enable(table, view_type)

    def _enable(self, table: str, view_type: str) -> str:
        arn = self.model.enable(table, view_type, _KEYS)
        self._latest[table_of(arn)] = arn
        return arn

    def put(self, arn: str, key: str, value: int = 0) -> None:
        self._change(arn, key, {"pk": {"S": key}, "n": {"N": str(value)}})

    def delete(self, arn: str, key: str) -> None:
        self._change(arn, key, None)

    def _change(self, arn: str, key: str, item: Any) -> None:
        before = self._items.get((table_of(arn), key))
        self._items[table_of(arn), key] = item
        name = "REMOVE" if item is None else "MODIFY" if before else "INSERT"
        change = {"Keys": {"pk": {"S": key}}, "NewImage": item, "OldImage": before}
        inner = {member: value for member, value in change.items() if value is not None}
        latest = self._latest[table_of(arn)]
        self.model.append(latest, [{"eventID": "1", "eventName": name, "dynamodb": inner}])

    def disable(self, arn: str) -> None:
        self.model.disable(arn)

    def enable(self, arn: str) -> str:
        return self._enable(arn.partition("/stream/")[0], "KEYS_ONLY")

    def delete_table(self, arn: str) -> None:
        self.model.disable(arn)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(self.model.call(operation, request, "us-east-1"))
        except KinesisFault as fault:
            raise Refused(fault.code) from fault
        return answer

    def replace_shards(self, count: int = 1) -> None:
        self.model.replace_shards(count)

    def advance(self, hours: int) -> None:
        self.now_s += hours * _HOUR_S


class _Server:
    """A server behind real clients."""

    def __init__(self, name: str, dynamodb: Any, streams: Any) -> None:
        self.name = name
        self.dynamodb = dynamodb
        self.call = Botocore(name, streams).call

    def new_table(self, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        created: dict[str, Any] = self.dynamodb.create_table(
            TableName=f"Table{next(_names)}",
            KeySchema=_KEYS,
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": view_type},
        )["TableDescription"]
        arn: str = created["LatestStreamArn"]
        return arn

    def put(self, arn: str, key: str, value: int = 0) -> None:
        item = {"pk": {"S": key}, "n": {"N": str(value)}}
        self.dynamodb.put_item(TableName=table_of(arn), Item=item)

    def delete(self, arn: str, key: str) -> None:
        self.dynamodb.delete_item(TableName=table_of(arn), Key={"pk": {"S": key}})

    def disable(self, arn: str) -> None:
        wanted = {"StreamEnabled": False}
        self.dynamodb.update_table(TableName=table_of(arn), StreamSpecification=wanted)

    def enable(self, arn: str) -> str:
        wanted = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
        self.dynamodb.update_table(TableName=table_of(arn), StreamSpecification=wanted)
        table = self.dynamodb.describe_table(TableName=table_of(arn))["Table"]
        assert table["StreamSpecification"] == wanted
        enabled: str = table["LatestStreamArn"]
        return enabled

    def delete_table(self, arn: str) -> None:
        self.dynamodb.delete_table(TableName=table_of(arn))


class EmbeddedTables(_Server):
    """Our server."""

    def __init__(self, aws: EmbeddedAws) -> None:
        config = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
        clients = (aws.client(name, config=config) for name in ("dynamodb", "dynamodbstreams"))
        super().__init__("http", *clients)
        self._aws = aws

    def replace_shards(self, count: int = 1) -> None:
        self._aws.control(replace_shards=count)

    def advance(self, hours: int) -> None:
        self._aws.control(advance_s=hours * _HOUR_S)


class DynamoDbLocalTables(_Server):
    """DynamoDB Local with its test control."""

    def __init__(self, url: str) -> None:
        clients = client_for(url, "dynamodb"), client_for(url, "dynamodbstreams")
        super().__init__("dynamodb-local", *clients)

    def _control(self, **action: str) -> None:
        item = {name: {"S": value} for name, value in action.items()}
        self.dynamodb.put_item(TableName="[TEST_CONTROL]", Item=item)

    def replace_shards(self, count: int = 1) -> None:
        assert count == 1, "it has one child for each shard"
        self._control(ACTION="ROLLOVER")

    def advance(self, hours: int) -> None:
        self._control(ACTION="DILATE_TIME", HOURS=str(hours))
