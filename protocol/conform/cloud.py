"""What the daemon kit needs of an AWS: the kit is handed an object of this shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cloud(Protocol):
    """An embedded Kinesis and DynamoDB that the kit can prepare and look into."""

    @property
    def kinesis_url(self) -> str:
        """Endpoint of Kinesis, e.g. ``http://127.0.0.1:4567``."""

    @property
    def dynamodb_url(self) -> str:
        """Endpoint of DynamoDB."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Credentials, region and the like for the daemon's process."""

    def create_stream(self, stream: str, shards: int) -> None:
        """A stream of that many shards, ACTIVE on return."""

    def put(self, stream: str, records: Sequence[tuple[bytes, str]]) -> None:
        """Put (data, partition key) pairs, in order."""

    def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle of its range; return when its children exist."""

    def lease_rows(self, table: str) -> list[dict[str, Any]]:
        """Items of a table that have a ``checkpoint``, as plain values; empty without a table."""

    def change_lease(self, table: str, lease_key: str, values: Mapping[str, str | int]) -> None:
        """Overwrite attributes of one item."""

    def consumers(self, stream: str) -> int:
        """How many fan-out consumers are registered with the stream."""

    def fail(self, operation: str, contains: str, code: str | None) -> None:
        """From now on answer matching DynamoDB requests with an error.

        Args:
            operation: e.g. ``UpdateItem``.
            contains: text in the request's body.
            code: name of the error; None = close the connection without an answer.
        """

    def heal(self) -> None:
        """Take back every :meth:`fail`."""
