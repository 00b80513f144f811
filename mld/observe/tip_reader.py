"""Asks shards how far their checkpoints are behind, by one record behind each.

A shard has five reads a second for all who read it, so each is asked once a minute at most, and one
that was throttled not for five minutes. The record is looked at for its time and thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.errors import LimitExceeded, MalformedData, MldError, Throttled
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.observe.model.fleet_snapshot import TipSnapshot
from kcl_mld.retrieval.model.wire import first_arrival_s, read_batch
from kcl_mld.retrieval.rules.polling import ReadPosition, iterator_start
from kcl_mld.signals.rules.remedies import failed_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.retrieval.model.record import Batch

#: Between two questions to one shard.
EVERY_S = 60.0
#: The same after one that was throttled.
THROTTLED_S = 300.0
#: Shards that are asked at the same time.
AT_ONCE = 8
#: A record that has just come is behind the checkpoint all the same.
_LEAST_S = 0.001


class TipReader:
    """Remembers the last answer of each shard.

    Args:
        service_time: epoch seconds by the service's clock; None = not known.
        begins_s: epoch seconds at which shards at AT_TIMESTAMP of a stream begin.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        clock: Clock,
        service_time: Callable[[], float | None],
        begins_s: Callable[[Stream], float | None],
    ) -> None:
        self._kinesis = kinesis
        self._clock = clock
        self._service_time = service_time
        self._begins_s = begins_s
        self._next_at: dict[str, float] = {}
        self._tips: dict[str, TipSnapshot] = {}

    async def ask(
        self, leases: Iterable[Lease], streams: Mapping[str | None, Stream]
    ) -> dict[str, TipSnapshot]:
        """Ask those shards whose turn it is.

        Args:
            streams: by identifier; rows of others are left out.

        Returns:
            The last answer of each row by lease key, those from before among them. Rows that are
            finished, or at LATEST, which is a place that moves, have none.
        """
        asked = [
            lease
            for lease in leases
            if lease.stream_identifier in streams
            and lease.checkpoint is not None
            and lease.checkpoint.sentinel not in (Sentinel.LATEST, Sentinel.SHARD_END)
        ]
        now = self._clock.monotonic()
        due = [one for one in asked if self._next_at.get(one.lease_key, now) <= now]

        async def ask(lease: Lease) -> None:
            await self._ask(lease, streams[lease.stream_identifier])

        await for_each(due, AT_ONCE, ask)
        keys = {lease.lease_key for lease in asked}
        return {key: tip for key, tip in self._tips.items() if key in keys}

    async def _ask(self, lease: Lease, stream: Stream) -> None:
        key, position = lease.lease_key, lease.checkpoint
        assert position is not None, "only such rows are asked for"
        at = self._clock.monotonic()
        self._next_at[key] = at + EVERY_S
        behind_s, unknown, todo = None, None, ""
        number = position.sequence_number if position.sentinel is None else None
        start = iterator_start(
            ReadPosition(position, number), self._begins_s(stream), stream.traits
        )
        try:
            answer = await self._kinesis.get_shard_iterator(
                **stream.request(), ShardId=lease.shard_id, **start.request()
            )
            arn = {"StreamARN": stream.arn} if stream.arn else {}
            iterator = answer.get("ShardIterator")
            if not iterator:
                raise MalformedData("GetShardIterator answered without an iterator")
            body = await self._kinesis.get_records(ShardIterator=iterator, Limit=1, **arn)
            behind_s = self._behind_s(read_batch(body))
        except (LimitExceeded, Throttled) as error:
            self._next_at[key] = at + THROTTLED_S
            failed = failed_reading(error)
            unknown = f"{failed.error}; it is not asked again for {THROTTLED_S:.0f} s"
            todo = failed.todo
        except MldError as error:
            failed = failed_reading(error)
            unknown, todo = failed.error, failed.todo
        self._tips[key] = TipSnapshot(
            asked_at=at,
            position=position,
            behind_s=behind_s,
            unknown=unknown,
            unknown_todo=todo,
        )

    def _behind_s(self, batch: Batch) -> float:
        said_s = (batch.millis_behind_latest or 0) / 1000
        if batch.is_empty:
            return said_s
        arrived_s = first_arrival_s(batch.records)
        now_s = self._service_time() or self._clock.wall()
        age_s = 0.0 if arrived_s is None else now_s - arrived_s
        return max(said_s, age_s, _LEAST_S)
