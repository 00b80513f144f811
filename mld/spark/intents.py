"""Where the number of a batch is kept under a daemon whose lease rows can't hold it: in DynamoDB.

Each shard has an item, written under a condition: a number is stored once, and none below it. A
store whose answer is lost is read again; the same intent found there counts as stored, because a
batch with the same range has the same records.

Credentials, region and endpoint come from where every AWS client finds them (environment,
``~/.aws``, instance metadata).
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mld.spark.errors import BatchFailed, Fenced, SparkConfigError
from mld.spark.model import Position, WriteIntent, parse_position, position_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.config import SparkConfig
    from mld.spark.model import ShardKey
    from mld.spark.ports import IntentStore

_KEY = "shard"
_CREATION_LOOKS = 120


def make_intent_store(config: SparkConfig, application: str) -> IntentStore | None:
    """The store that ``spark.intent.store`` names.

    Args:
        config: perhaps with ``spark.intent.table``.
        application: name of the KCL application; part of the default table's name.

    Returns:
        None for ``lease`` (the shard's session asks the daemon) and for ``none``.

    Raises:
        SparkConfigError: no region is configured.
    """
    if config.intent_store != "dynamodb":
        return None
    return DynamoIntentStore(config.intent_table or f"{application}-kcl-mld-intents")


class DynamoIntentStore:
    """An ``IntentStore`` in a table of DynamoDB; safe from several threads."""

    def __init__(
        self,
        table: str,
        *,
        client: Any = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Name the table; it is made at the first use if it is missing.

        Args:
            table: ``spark.intent.table``.
            client: a botocore client for DynamoDB; None = from the environment.
            pause: waits the given number of seconds.

        Raises:
            SparkConfigError: no region is configured.
        """
        self._table = table
        self._client = client or _client()
        self._pause = pause
        self._lock = threading.Lock()
        self._is_ready = False

    def load(self, shard: ShardKey) -> WriteIntent | None:
        """The newest intent, read consistently.

        Raises:
            BatchFailed: the table cannot be read, or the item is no intent.
        """
        self._make_ready()
        found = self._asked(f"read of the intent of {shard.shard_id}", lambda: self._get(shard))
        return None if found is None else self._decode(shard, found)

    def store(self, shard: ShardKey, intent: WriteIntent) -> None:
        """Keep an intent under the condition that its number is higher than the stored one.

        Raises:
            Fenced: somebody else has stored this number or a higher one.
            BatchFailed: it could not be stored, or nobody knows.
        """
        self._make_ready()
        what = f"batch {intent.number} of {shard.shard_id}"
        if self._asked(f"intent for {what}", lambda: self._put(shard, intent)):
            return
        # Either another worker was first, or it was us and the answer got lost.
        if (found := self.load(shard)) != intent:
            number = found.number if found else "an intent and removed it again"
            raise Fenced(
                f"{shard.shard_id}: batch {intent.number} was planned, but another worker has "
                f"stored {number}: this one has lost the shard"
            )

    def _get(self, shard: ShardKey) -> dict[str, Any] | None:
        answer = self._client.get_item(
            TableName=self._table, Key={_KEY: {"S": _key(shard)}}, ConsistentRead=True
        )
        found: dict[str, Any] | None = answer.get("Item")
        return found

    def _put(self, shard: ShardKey, intent: WriteIntent) -> bool:
        """True if it was stored; False if the condition did not hold."""
        item = {
            _KEY: {"S": _key(shard)},
            "number": {"N": str(intent.number)},
            "after": {"S": position_text(intent.after)},
            "to": {"S": str(intent.to)},
            "appId": {"S": intent.app_id},
        }
        try:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(#shard) OR #number < :number",
                ExpressionAttributeNames={"#shard": _KEY, "#number": "number"},
                ExpressionAttributeValues={":number": {"N": str(intent.number)}},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _asked(self, what: str, call: Callable[[], Any]) -> Any:
        """Make a request, which the client repeats by itself; each of ours may be repeated."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return call()
        except (BotoCoreError, ClientError) as error:
            raise BatchFailed(f"{what}: DynamoDB table {self._table}: {error}") from error

    def _make_ready(self) -> None:
        with self._lock:
            if not self._is_ready:
                self._create_and_wait()
                self._is_ready = True

    def _create_and_wait(self) -> None:
        for _ in range(_CREATION_LOOKS):
            if (status := self._asked("look at the intents", self._status)) == "ACTIVE":
                return
            if status is None:
                self._asked("creation of the table of intents", self._create)
            else:
                self._pause(0.5)
        raise BatchFailed(f"DynamoDB table {self._table} is not active; look at it in the console")

    def _status(self) -> str | None:
        try:
            answer = self._client.describe_table(TableName=self._table)
        except self._client.exceptions.ResourceNotFoundException:
            return None
        return str(answer["Table"]["TableStatus"])

    def _create(self) -> None:
        try:
            self._client.create_table(
                TableName=self._table,
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except self._client.exceptions.ResourceInUseException:
            return

    def _decode(self, shard: ShardKey, item: dict[str, Any]) -> WriteIntent:
        try:
            to = Position.parse(item["to"]["S"])
            after = parse_position(item["after"]["S"])
            return WriteIntent(int(item["number"]["N"]), after, to, item["appId"]["S"])
        except (KeyError, ValueError) as error:
            raise BatchFailed(
                f"{self._table}, item {_key(shard)}: no intent ({error}); name another "
                "spark.intent.table, or begin a new spark.sink.epoch"
            ) from error


def _key(shard: ShardKey) -> str:
    parts = (shard.application, shard.stream, shard.shard_id, shard.epoch)
    return "/".join(quote(part, safe="") for part in parts)


def _client() -> Any:
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    config = Config(
        connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 5}
    )
    region = os.environ.get("AWS_REGION") or None
    try:
        session = botocore.session.get_session()
        return session.create_client("dynamodb", region_name=region, config=config)
    except BotoCoreError as error:
        raise SparkConfigError(
            f"spark.intent.store=dynamodb: {error}; set AWS_REGION as for the daemon"
        ) from error
