"""The AWS operations that the services use, one async method each.

Requests are keyword arguments in the service's own spelling (DynamoDB items in DynamoDB JSON with
``B`` as bytes), answers are the parsed response dictionaries. Every method raises the errors of
``mld.errors`` only: :class:`~mld.errors.ServiceError` and its subclasses when the service
answered, :class:`~mld.errors.Unreachable` when it was not reached, and
:class:`~mld.errors.UnknownOutcome` when the request was sent and no answer came.

Cancellation: a read may be abandoned; a write, once started, goes on in its thread and its outcome
is then unknown to the caller. Services shield writes.
"""

from __future__ import annotations

from typing import Any, Protocol


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


class Kinesis(Protocol):
    """Operations on streams and shards."""

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]: ...

    async def list_shards(self, **request: Any) -> dict[str, Any]: ...

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]: ...

    async def get_records(self, **request: Any) -> bytes:
        """The answer's body as it came (JSON text): the record path decodes it, nobody else."""
        ...


class CloudWatch(Protocol):
    """Publishing metrics."""

    async def put_metric_data(self, **request: Any) -> dict[str, Any]: ...
