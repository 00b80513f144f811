"""Whether the stream is still the one that this worker began with, and why a shard was not found.

A shard that the service does not know has ended only if its stream still exists. So a missing
shard, an expired iterator or a refused position makes the worker check the stream itself: by
DescribeStreamSummary and its creation time, or, where the policy does not allow that call, by
ListShards and the sequence numbers at which the shards begin.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import stream_action
from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    MldError,
    NotFound,
    ResourceMissing,
    StreamNotReady,
)
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.shards.rules.rows_of_stream import has_row_of
from kcl_mld.shards.rules.shard_end import heirs
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.streams.existence_watch import ExistenceWatch
from kcl_mld.streams.rules.existence import (
    ShardExistence,
    beginnings,
    disabled_stream,
    is_another_stream,
    missing_stream,
    recreated_stream,
    shard_existence,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.model.sequence import InitialPosition
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.shards.shard_detector import ShardDetector
    from kcl_mld.streams.identified_stream import IdentifiedStream
    from kcl_mld.streams.model.shard import ChildShard, Shard

log = logging.getLogger("mld.shards")

#: The start of the worker waits no longer than this for the stream's creation time.
LEARN_S = 2.0
#: Longest delay in seconds of a shard's first records while it is unknown whether the stream is
#: still the same: other workers of the account that use up the calls must not keep its shards from
#: being read.
CONFIRM_S = 30.0
#: A check that began within this many seconds answers :meth:`StreamExistence.confirm`: deleting and
#: creating a stream takes the service longer.
FRESH_S = 1.0
#: A shard that a list of this age did not contain is not listed now either: shards are never added
#: below.
LISTED_FOR_S = 10.0
#: Seconds between two reports of a lease that does not fit the stream.
REPORT_S = 60.0


class StreamExistence:
    """One per stream and worker.

    Asked before a shard or a lease counts as finished because it is gone.

    Args:
        stream: its ARN and creation time are set here.
        conditions: for ``/readyz``; not set for one of many streams, which ends no worker.
        find_leases: the leases of the stream, as they were last read.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        stream: IdentifiedStream,
        detector: ShardDetector,
        table_name: str,
        conditions: Conditions,
        clock: Clock,
        rng: random.Random,
        find_leases: Callable[[], Iterable[Lease]],
    ) -> None:
        self._kinesis = kinesis
        self.stream = stream
        self._stream = stream.stream
        self._detector = detector
        self._table_name = table_name
        self._clock = clock
        self._check_wanted = Wakeup()
        self._is_one_of_many = self._stream.identifier is not None
        self._watch = ExistenceWatch(
            self._look,
            self._check_wanted,
            Reason.STREAM_DELETED,
            None if self._is_one_of_many else conditions,
            clock,
            rng,
        )
        self._is_known = stream.created is not None
        self._is_denied = False
        self._is_disabled = False
        self._retention_s: float | None = None
        self._find_leases = find_leases
        self._reported_at: dict[str, float] = {}
        self._beginnings: dict[str, str] = {}
        self._suspects: dict[str, str | None] = {}
        self._listing = asyncio.Lock()
        self._shards: tuple[Shard, ...] = ()
        self._earlier: tuple[Shard, ...] = ()
        self._listed_at = 0.0

    # -- for others ------------------------------------------------------------------------------

    async def learn(self) -> None:
        """At start: remember which stream this is. After a failure, :meth:`run` does it."""
        if self._is_known:
            return
        try:
            async with asyncio.timeout(LEARN_S):
                await self._look()
        except (MldError, TimeoutError) as error:
            log.debug("Creation time of %s not known yet: %s", self._stream.name, error)
            self._check_wanted.wake()

    @property
    def retention_s(self) -> float | None:
        """Retention of the stream in seconds, as of the last check; None = unknown."""
        return self._retention_s

    @property
    def is_gone(self) -> bool:
        """True while nothing should be read: the stream is gone or is another one."""
        return self._watch.is_gone

    async def check(self) -> None:
        """Return when the stream is the one of the start; see :meth:`ExistenceWatch.check`.

        Raises:
            ResourceMissing: it was deleted, or deleted and created again.
            AwsError: unknown; try again later.
        """
        await self._watch.check()

    async def confirm(self) -> bool:
        """Whether an answer to a request without a sequence number is of the stream of the start.

        The service also accepts TRIM_HORIZON, LATEST and AT_TIMESTAMP for a stream that was created
        again a moment ago; it refuses sequence numbers of the earlier one. So this is called after
        the answer, and uses a check that began at most :data:`FRESH_S` before the call. Shards that
        begin at the same time share a check, and wait for no other.

        Returns:
            False when the stream is gone; True also when this is unknown for :data:`CONFIRM_S`.
        """
        if not self._stream.traits.reuses_names:
            return True
        why: object = "no answer"
        try:
            async with asyncio.timeout(CONFIRM_S):
                while True:
                    try:
                        await self._watch.check(FRESH_S)
                    except ResourceMissing:
                        return False
                    except MldError as error:
                        why = error
                        if isinstance(error, Denied) and not isinstance(error, CredentialsRefused):
                            break  # the next check, a second later, would get the same answer
                    else:
                        return True
        except TimeoutError:
            pass
        log.warning(
            "Reading stream %s, although it could not be checked that it was not created again: %s",
            self._stream.name,
            why,
        )
        return True

    async def run(self) -> None:
        """Check periodically, until cancelled.

        Raises:
            ResourceMissing: the stream has been gone for ``existence_watch.GIVE_UP_S``.
        """
        await self._watch.run()

    def look_soon(self) -> None:
        """Check soon, because the stream may be gone, whatever its shards answer."""
        self._check_wanted.wake()

    def check_shard(self, shard_id: str, sequence_number: str | None) -> None:
        """Check soon, because an iterator expired or the service refused a position.

        Args:
            sequence_number: of the last known record of the shard; None without one.
        """
        if self._stream.traits.reuses_names:
            self._suspects[shard_id] = sequence_number
        self._check_wanted.wake()

    async def is_trimmed(self, shard_id: str, sequence_number: str | None = None) -> bool:
        """Whether a shard that was not found has ended: its stream still exists without it.

        Two lists of the same stream must lack it: one could be of another stream, or incomplete.

        Args:
            sequence_number: as for :meth:`check_shard`.

        Returns:
            False when the shard is listed nevertheless: read it again.

        Raises:
            ResourceMissing: the stream is gone, so the state of the shard is unknown.
            AwsError: unknown; try again later.
        """
        await self._watch.check()
        of = self._clock.earliest(), self._stream.traits
        found = shard_existence(shard_id, sequence_number, await self._list_shards(), *of)
        if found is ShardExistence.TRIMMED and not self._was_missing(shard_id):
            again = await self._list_shards(newer_than=self._listed_at)
            found = shard_existence(shard_id, sequence_number, again, *of)
        if found is ShardExistence.FOREIGN:
            self._suspects[shard_id] = sequence_number
            await self._watch.check()
        elif found is ShardExistence.TRIMMED:
            await self._watch.check(FRESH_S)
        return found is ShardExistence.TRIMMED

    def _was_missing(self, shard_id: str) -> bool:
        """Whether the list before the last one lacked it, too."""
        earlier = self._earlier
        return bool(earlier) and all(shard.shard_id != shard_id for shard in earlier)

    def heirs(self, lease: Lease) -> tuple[ChildShard, ...]:
        """Shards that continue the keys of a shard past retention, by the last list."""
        has_hash_ranges = self._stream.traits.has_hash_ranges
        return heirs(lease, self._shards or self._earlier, has_hash_ranges=has_hash_ranges)

    # -- looking ---------------------------------------------------------------------------------

    async def _look(self) -> str | None:
        return await self._look_at_summary() or await self._look_at_unknown()

    async def _look_at_summary(self) -> str | None:
        try:
            summary = await self._summary()
        except CredentialsRefused:
            raise
        except Denied as error:
            self._warn_of_denial(error)
            return await self._look_at_shards()
        why = missing_stream(
            self._stream.name,
            self._table_name,
            summary,
            self.stream.created,
            is_one_of_many=self._is_one_of_many,
        )
        if why is not None or summary is None or self.stream.created is not None:
            return why
        created = summary.get("StreamCreationTimestamp")
        if created is None or self._beginnings:
            # Until now only the shards identified the stream; they show whether to keep this
            # creation time.
            why = await self._look_at_shards()
        if why is None:
            self.stream.created = created
        return why

    def _warn_of_denial(self, error: Denied) -> None:
        if not self._is_denied:
            traits = self._stream.traits
            without = "its shards and whether it was disabled are not known without it"
            if traits.reuses_names:
                without = (
                    "its creation time is not known without it. ListShards is used instead to check "
                    "that the stream is the same"
                )
            log.warning(
                "Allow %s for stream %s: %s (%s)",
                stream_action("DescribeStreamSummary", traits),
                self._stream.name,
                without,
                error,
            )
        self._is_denied = True

    async def _summary(self) -> dict[str, Any] | None:
        try:
            answer = await self._kinesis.describe_stream_summary(**self._stream.request())
        except NotFound:
            return None
        summary: dict[str, Any] = answer["StreamDescriptionSummary"]
        self.stream.arn = summary.get("StreamARN", self.stream.arn)
        self._report_disabled(summary)
        hours = summary.get("RetentionPeriodHours")
        self._retention_s = 3600.0 * hours if isinstance(hours, int | float) else None
        return summary

    def _report_disabled(self, summary: Mapping[str, Any]) -> None:
        disabled = disabled_stream(summary, is_one_of_many=self._is_one_of_many)
        if disabled is not None and not self._is_disabled:
            log.error("Stream %s: %s: %s", self._stream.name, *disabled)
        self._is_disabled = disabled is not None

    async def _look_at_shards(self) -> str | None:
        name, table = self._stream.name, self._table_name
        self._shards = ()
        try:
            shards = await self._list_shards()
        except NotFound:
            return missing_stream(name, table, None, None, is_one_of_many=self._is_one_of_many)
        if self._stream.traits.reuses_names and is_another_stream(self._beginnings, shards):
            return self._recreated("its shards begin at other sequence numbers")
        self._beginnings = beginnings(shards)
        return None

    async def _look_at_unknown(self) -> str | None:
        """Check whether the leases of shards that the service refused belong to this stream."""
        if not self._suspects:
            return None
        self._shards = ()
        shards = await self._list_shards()
        for shard_id, sequence_number in sorted(self._suspects.items()):
            found = shard_existence(shard_id, sequence_number, shards, self._clock.earliest())
            if found is ShardExistence.FOREIGN:
                why = f"it never had the shard {shard_id} of a lease"
                if sequence_number is not None:
                    why = f"it never had the record {sequence_number} of shard {shard_id}"
                if not has_row_of(self._find_leases(), shards):
                    return self._recreated(why)
                self._report_row(shard_id, why)
            del self._suspects[shard_id]
        return None

    def _report_row(self, shard_id: str, why: str) -> None:
        """One lease does not fit the stream, but others do: only its shard can't be read."""
        now = self._clock.monotonic()
        if now - self._reported_at.get(shard_id, -REPORT_S) >= REPORT_S:
            self._reported_at[shard_id] = now
            log.error(
                "%s can't be read: its lease is not of stream %s: %s. Correct the checkpoint of the "
                "lease, or delete its row from table %s",
                shard_id,
                self._stream.name,
                why,
                self._table_name,
            )

    def _recreated(self, why: str) -> str:
        return recreated_stream(
            self._stream.name, self._table_name, why, is_one_of_many=self._is_one_of_many
        )

    async def _list_shards(self, newer_than: float = -math.inf) -> tuple[Shard, ...]:
        """The unfiltered list, not empty; a list is cached for a while.

        Args:
            newer_than: a list that was requested at or before this time is not used.
        """
        async with self._listing:
            now = self._clock.monotonic()
            is_old = self._listed_at <= newer_than or now - self._listed_at > LISTED_FOR_S
            if not self._shards or is_old:
                shards = await self._detector.list_shards()
                if not shards:
                    raise StreamNotReady("ListShards", "NoShards", "the answer held no shard")
                self._earlier = self._shards or self._earlier
                self._shards, self._listed_at = shards, self._clock.monotonic()
            return self._shards


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """One stream, as sync, audit and cleanup of leases see it.

    Attributes:
        position: where shards without a lease begin.
        children_of: returns the children of a closed shard; raises NotFound for an unknown shard,
            AwsError, or MalformedData.
    """

    stream: Stream
    position: InitialPosition
    detector: ShardDetector
    existence: StreamExistence
    children_of: Callable[[str], Awaitable[tuple[ChildShard, ...]]]
