"""The AWS operations that the services use, one async method each.

Requests are keyword arguments in the service's own spelling (DynamoDB items in DynamoDB JSON with
``B`` as bytes), answers are the parsed response dictionaries. Every method raises the errors of
``kcl_mld.errors`` only: :class:`~kcl_mld.errors.ServiceError` and its subclasses when the service
answered, :class:`~kcl_mld.errors.Unreachable` when it was not reached, and
:class:`~kcl_mld.errors.UnknownOutcome` when the request was sent and no answer came.

Cancellation: a read may be abandoned; a write, once started, goes on in its thread and its outcome
is then unknown to the caller. Services shield writes.
"""

from __future__ import annotations

from typing import Any, Protocol

#: Seconds without an event after which a subscription ends; the service sends empty events, too.
SUBSCRIPTION_SILENCE_S = 60.0


class DynamoDb(Protocol):
    """Operations on tables and items."""

    async def describe_table(self, **request: Any) -> dict[str, Any]: ...

    async def create_table(self, **request: Any) -> dict[str, Any]: ...

    async def update_continuous_backups(self, **request: Any) -> dict[str, Any]: ...

    async def get_item(self, **request: Any) -> dict[str, Any]: ...

    async def put_item(self, **request: Any) -> dict[str, Any]: ...

    async def update_item(self, **request: Any) -> dict[str, Any]: ...

    async def delete_item(self, **request: Any) -> dict[str, Any]: ...

    async def scan(self, **request: Any) -> dict[str, Any]: ...

    async def query(self, **request: Any) -> dict[str, Any]:
        """One page of an index, eventually consistent.

        Raises:
            ServiceError: ``ValidationException``: there is no such index, or it is being filled.
        """
        ...

    async def update_table(self, **request: Any) -> dict[str, Any]: ...

    async def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Up to 100 writes and checks of conditions, all of them or none.

        Raises:
            TransactionCanceled: none was done, and why each.
        """
        ...


class Subscription(Protocol):
    """One accepted SubscribeToShard: the events of a shard for five minutes at most.

    The caller closes it in any case.
    """

    async def next_event(self) -> bytes | None:
        """The next event as it came: JSON text of one ``SubscribeToShardEvent``.

        ``{"Records": [...], "ContinuationSequenceNumber": "...", "MillisBehindLatest": 0}``, or at
        the end of the shard ``ChildShards`` in place of the continuation. Records are as in an
        answer of GetRecords: data in base64, arrival times in epoch seconds.

        Only taken events make room for more: a subscription that nobody reads holds a few
        events at most, and the service waits.

        Returns:
            None when the service ended the subscription as it should (after five minutes, or
            behind the last event of the shard), and after :meth:`close`.

        Raises:
            AwsError: after it, only :meth:`close` may be called. An exception in the stream is the
                error that its code stands for, e.g. ``InUse`` when another subscription to the
                same shard by the same consumer replaced this one, or ``NotFound``.
                ``UnknownOutcome``: the connection broke, was silent for 60 s, or a frame was
                damaged.

        Cancellation: no event is lost, the next call gets the same one.
        """
        ...

    def close(self) -> None:
        """End it now, from the loop, without waiting; a waiting :meth:`next_event` gets None.

        May be called again.
        """
        ...


class Kinesis(Protocol):
    """Operations on streams and shards."""

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]: ...

    async def list_shards(self, **request: Any) -> dict[str, Any]: ...

    async def list_streams(self, **request: Any) -> dict[str, Any]:
        """One page of the account's streams: ``StreamNames``, in order, and ``HasMoreStreams``.

        The next page begins behind ``ExclusiveStartStreamName``. ``StreamSummaries`` has name,
        ARN, status and creation time of each; an emulator may lack it.

        Raises:
            LimitExceeded: more than five calls a second and account.
        """
        ...

    async def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        """One page of a stream's tags: ``Tags``, a list of ``Key`` and ``Value``; ``HasMoreTags``.

        Raises:
            LimitExceeded: more than five calls a second and account.
            NotFound: there is no such stream.
        """
        ...

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]: ...

    async def get_records(self, **request: Any) -> bytes:
        """The answer's body as it came (JSON text): the record path decodes it, nobody else."""
        ...

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """``StreamARN``, ``ConsumerName`` -> ``Consumer``: name, ARN, status (``CREATING``).

        Raises:
            InUse: a consumer of that name exists: describe it.
            LimitExceeded: too many calls, or too many consumers of the stream.
            NotFound: there is no such stream.
        """
        ...

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """``StreamARN`` and ``ConsumerName``, or ``ConsumerARN`` -> ``ConsumerDescription``.

        It has ``ConsumerName``, ``ConsumerARN``, ``StreamARN`` and ``ConsumerStatus``
        (``CREATING``, ``ACTIVE`` or ``DELETING``).

        Raises:
            NotFound: there is no such consumer, or no such stream.
            LimitExceeded: too many calls.
        """
        ...

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """Have the records of a shard pushed; returns once the service has accepted.

        Args:
            request: ``ConsumerARN``, ``ShardId`` and ``StartingPosition``: ``{"Type": ...}`` with
                ``SequenceNumber`` for the two SEQUENCE_NUMBER types or ``Timestamp`` (epoch
                seconds) for AT_TIMESTAMP; the types are those of iterators.

        Raises:
            InUse: this consumer subscribed to the shard less than 5 s ago, or is not active.
            LimitExceeded: more than one call a second for the shard, or too many subscriptions.
            NotFound: there is no such consumer or shard.
            InvalidArgument: the position is not one of the shard.

        Cancellation: what the service may have opened is closed.
        """
        ...


class Glue(Protocol):
    """Reading schemas."""

    async def get_schema_version(self, **request: Any) -> dict[str, Any]: ...


class CloudWatch(Protocol):
    """Publishing metrics."""

    async def put_metric_data(self, **request: Any) -> dict[str, Any]: ...
