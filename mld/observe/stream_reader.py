"""Reads the streams of an application: their existence, shards and retention.

For commands that watch a fleet: unknown values are named, nothing is raised, and
nothing is changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import may_be
from kcl_mld.errors import MalformedData, MldError, NotFound
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.observe.model.fleet_snapshot import StreamSnapshot
from kcl_mld.shards.shard_detector import ShardDetector
from kcl_mld.signals.rules.remedies import failed_reading
from kcl_mld.streams.rules.existence import disabled_stream, missing_stream, recreated_stream
from kcl_mld.streams.rules.stream_identity import arn_of, is_of_earlier_stream
from kcl_mld.streams.stream_names import StreamResolver

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.config import Config
    from kcl_mld.config.stream_list import ListedStream
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.streams.stream_names import StreamNames

#: Seconds for which a read of the streams is used, unless a fresh one is requested; for many, a
#: second for each stream, since DescribeStreamSummary has twenty calls a second in an account.
GOOD_S = 10.0
#: Streams that are asked for at the same time.
AT_ONCE = 4
#: Attempts of one ListShards that is throttled.
_ATTEMPTS = 3
_HOUR_S = 3600.0


class StreamReader:
    """The streams of one application.

    Args:
        single: the stream of a file that names one; None = there may be many.
        names: of many streams; None = there is one.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        config: Config,
        region: str,
        single: Stream | None,
        names: StreamNames | None,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._kinesis = kinesis
        self._config = config
        self._region = region
        self._single = single
        self._names = names
        self._clock = clock
        self._rng = rng
        self._created: dict[str, object] = {}
        self._identifiers: frozenset[str] = frozenset()
        #: By identifier, as requests name them.
        self.streams: dict[str | None, Stream] = {}
        self._looks: dict[str, StreamSnapshot] = {}
        self._looked_at: float | None = None

    async def look(
        self, identifiers: Iterable[str | None], *, fresh: bool
    ) -> tuple[StreamSnapshot, ...]:
        """The streams of the file, and those of rows.

        Args:
            identifiers: of the rows of the table.
            fresh: ask all of them now; else what is not older than :data:`GOOD_S` is good.
        """
        known = frozenset(one for one in identifiers if one is not None)
        now = self._clock.monotonic()
        good_s = max(GOOD_S, float(len(self._looks)))
        is_good = self._looked_at is not None and now - self._looked_at < good_s
        if fresh or not is_good or known != self._identifiers:
            self._identifiers, self._looked_at = known, now
            self._looks, self.streams = {}, {}
            await (self._look_at_one() if self._single else self._look_at_many())
        return tuple(self._looks[name] for name in sorted(self._looks))

    async def _look_at_one(self) -> None:
        assert self._single is not None, "asked before"
        await self._look(self._single, is_listed=True)

    async def _look_at_many(self) -> None:
        assert self._names is not None, "of a worker of many streams"
        try:
            listed, unknown = await self._names.names(), None
        except MldError as error:
            listed, unknown = (), failed_reading(error)
        found: list[tuple[Stream, bool]] = []
        for identifier in sorted(self._identifiers):
            try:
                stream = Stream.parse_identifier(identifier)
            except MalformedData as error:
                self._looks[identifier] = StreamSnapshot(
                    name=identifier, identifier=identifier, unknown=str(error)
                )
                continue
            arn = arn_of(str(stream.account), stream.name, self._region)
            is_listed = unknown is not None or any(may_be(one, stream) for one in listed)
            found.append((replace(stream, arn=arn), is_listed))
        without_rows = [
            one for one in listed if not any(may_be(one, stream) for stream, _listed in found)
        ]
        await for_each(found, AT_ONCE, lambda one: self._look(one[0], is_listed=one[1]))
        await for_each(without_rows, AT_ONCE, self._look_at_listed)
        if unknown is not None:
            self._looks[""] = StreamSnapshot(
                name="streams",
                unknown=f"which streams the file means: {unknown.error}",
                unknown_todo=unknown.todo,
            )

    async def _look_at_listed(self, listed: ListedStream) -> None:
        assert self._config.streams is not None, "the file lists it"
        unit = self._config.streams.epoch_unit
        resolver = StreamResolver(
            self._kinesis, self._region, unit, lambda: self._identifiers, self._rng
        )
        try:
            stream = (await resolver.resolve(listed)).stream
        except NotFound:
            gone = missing_stream(
                listed.name, self._config.leases.table_name, None, None, is_one_of_many=True
            )
            self._looks[str(listed)] = StreamSnapshot(name=listed.name, gone=gone)
        except MldError as error:
            self._looks[str(listed)] = _unknown(StreamSnapshot(name=listed.name), error)
        else:
            await self._look(stream, is_listed=True)

    async def _look(self, stream: Stream, *, is_listed: bool) -> None:
        name = stream.identifier or stream.name
        look = StreamSnapshot(
            name=stream.name,
            identifier=stream.identifier,
            asked_at=self._clock.monotonic(),
            is_listed=is_listed,
        )
        look = await self._described(stream, look)
        if look.gone is None:
            self.streams[stream.identifier] = stream
            look = await self._with_shards(stream, look)
        self._looks[name] = look

    async def _described(self, stream: Stream, look: StreamSnapshot) -> StreamSnapshot:
        try:
            answer = await self._kinesis.describe_stream_summary(**stream.request())
            summary: Mapping[str, object] | None = answer["StreamDescriptionSummary"]
        except NotFound:
            summary = None
        except MldError as error:
            return _unknown(look, error)
        is_one_of_many = stream.identifier is not None
        disabled, todo = disabled_stream(summary, is_one_of_many=is_one_of_many) or (None, "")
        hours = None if summary is None else summary.get("RetentionPeriodHours")
        return replace(
            look,
            gone=self._gone(stream, summary),
            disabled=disabled,
            disabled_todo=todo,
            retention_s=float(hours) * _HOUR_S if isinstance(hours, int | float) else None,
        )

    def _gone(self, stream: Stream, summary: Mapping[str, object] | None) -> str | None:
        table, is_one_of_many = self._config.leases.table_name, stream.identifier is not None
        created = None if summary is None else summary.get("StreamCreationTimestamp")
        if stream.epoch is not None and is_of_earlier_stream(stream.epoch, created):
            why = f"the new one was created at {created}"
            return recreated_stream(stream.name, table, why, is_one_of_many=is_one_of_many)
        known = self._created.setdefault(stream.identifier or stream.name, created)
        return missing_stream(stream.name, table, summary, known, is_one_of_many=is_one_of_many)

    async def _with_shards(self, stream: Stream, look: StreamSnapshot) -> StreamSnapshot:
        config = replace(self._config.shards, list_attempts=_ATTEMPTS)
        detector = ShardDetector(self._kinesis, stream, config, self._rng)
        try:
            return replace(look, shards=await detector.list_shards())
        except MldError as error:
            return look if look.unknown else _unknown(look, error)


def _unknown(look: StreamSnapshot, error: MldError) -> StreamSnapshot:
    failed = failed_reading(error)
    return replace(look, unknown=failed.error, unknown_todo=failed.todo)
