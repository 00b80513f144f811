"""What all shard consumers of a process share."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.children.rules.delivery import Delivery, RemainingRecords, deliver, deliver_rest
from kcl_mld.children.rules.lifecycle import start_order
from kcl_mld.leases.model.reading import RowNotes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kcl_mld.children.consuming.stream_context import StreamRegistry
    from kcl_mld.children.ports import ChildLauncher, LetterStore
    from kcl_mld.children.rules.routing import Route
    from kcl_mld.config.config import Config
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.kernel.ports import Offload
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import FindNotes
    from kcl_mld.retrieval.byte_budget import Reservation
    from kcl_mld.retrieval.model.schema import Catalogue
    from kcl_mld.retrieval.records_publisher import FetchedBatch
    from kcl_mld.retrieval.schema_registry import SchemaRegistry
    from kcl_mld.shards.lease_cleanup import LeaseCleanup
    from kcl_mld.shards.shard_end import ShardEnd
    from kcl_mld.signals.runtime import Runtime
    from kcl_mld.streams.model.shard import HashRange

log = logging.getLogger("mld.children")

#: Number of children that start at the same time.
PLACES = 8
#: A child that takes longer, in seconds, waits for something and no longer counts.
START_S = 0.5
#: Up to this size, a conversion costs less than the switch to another thread (about 1 ms). Payloads
#: that may have to be decompressed or decoded always count as large.
INLINE_BYTES = 256 * 1024
#: Body, texts and line exist at the same time during a conversion.
_CONVERSION_FACTOR = 3


class ChildStarts:
    """Limits how many children start at once; the shards that are furthest behind come first.

    A worker that gets hundreds of shards at once would otherwise start a child for each. They would
    compete with the worker for the processors, the worker stops while the kernel creates a process,
    and renewals would be late. A lease whose child waits here is held and renewed like any other.

    Use: ``async with starts.place(position): ...``.

    Args:
        in_time: cleared while renewals are late; no child starts then.
    """

    def __init__(self, in_time: asyncio.Event) -> None:
        self._in_time = in_time
        self._numbers = itertools.count()
        self._waiting: list[
            tuple[tuple[bool, tuple[int, int, int]], int, asyncio.Future[None]]
        ] = []
        self._taken: dict[asyncio.Future[None], asyncio.TimerHandle | None] = {}

    @asynccontextmanager
    async def place(self, position: ExtendedSequenceNumber) -> AsyncIterator[None]:
        """Wait for a place; it is returned at the end.

        After :data:`START_S`, another child gets the place even if this one is not finished.

        Args:
            position: where the child is to begin; see :func:`start_order`.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (start_order(position), next(self._numbers), turn))
        self._let_in()
        try:
            await turn
            await self._in_time.wait()
            if turn in self._taken:
                self._taken[turn] = loop.call_later(START_S, self._give_back, turn)
            yield
        finally:
            turn.cancel()
            self._give_back(turn)

    def _let_in(self) -> None:
        while self._waiting and len(self._taken) < PLACES:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # else the waiter has given up
                self._taken[turn] = None
                turn.set_result(None)

    def _give_back(self, turn: asyncio.Future[None]) -> None:
        if turn in self._taken:
            timer = self._taken.pop(turn)
            if timer is not None:
                timer.cancel()
            self._let_in()


class LineWriter:
    """Turns batches into lines; large ones in another thread and one at a time.

    During the conversion of a batch of 10 MB, its records exist as received, as texts and as a
    line. A lock prevents that for several shards at once, and the budget counts it.
    """

    def __init__(
        self, offload: Offload, *, even_if_empty: bool, schemas: SchemaRegistry | None = None
    ) -> None:
        """Create a writer.

        Args:
            offload: the thread for large conversions.
            even_if_empty: ``callProcessRecordsEvenForEmptyRecordList``.
            schemas: knows the schemas of framed records; None = frames are left alone.
        """
        self._offload = offload
        self._lock = asyncio.Lock()
        self._deliver = partial(deliver, even_if_empty=even_if_empty)
        self._schemas = schemas

    async def write(
        self,
        fetched: FetchedBatch,
        checkpoint: ExtendedSequenceNumber,
        hash_range: HashRange | None,
        route: Route | None = None,
    ) -> Delivery:
        """The line of a batch; see :func:`kcl_mld.children.rules.delivery.deliver`.

        The batch's reservation becomes the size of the line, or of its parts, and of what is left for further lines.

        Raises:
            MalformedData: the batch can't be read; fetch it again.
        """
        schemas = self._schemas
        known = None if schemas is None else schemas.known
        convert = partial(self._convert, fetched, checkpoint, hash_range, route)
        delivery = await convert(known)
        if schemas is not None and delivery.unknown:
            fetched.reservation.resize(fetched.batch.size_bytes)
            found = await schemas.look_up(delivery.unknown)
            # What was known is still valid; it may have been removed from the cache meanwhile.
            catalogue = {**(known or {}), **found}
            delivery = await convert(catalogue)
        if schemas is not None:
            schemas.used(delivery.versions)
        _account(fetched.reservation, delivery)
        return delivery

    async def write_rest(self, fetched: FetchedBatch, rest: RemainingRecords) -> Delivery:
        """The next line of a batch; see :meth:`write`."""
        async with self._lock:
            delivery = await self._offload.run(deliver_rest, rest)
        _account(fetched.reservation, delivery)
        return delivery

    async def _convert(
        self,
        fetched: FetchedBatch,
        checkpoint: ExtendedSequenceNumber,
        hash_range: HashRange | None,
        route: Route | None,
        schemas: Catalogue | None,
    ) -> Delivery:
        batch = fetched.batch
        deliver = partial(self._deliver, schemas=schemas, route=route)
        is_small = batch.size_bytes <= INLINE_BYTES and self._schemas is None
        if is_small or batch.is_empty:
            return deliver(batch, checkpoint, hash_range)
        async with self._lock:
            fetched.reservation.resize(_CONVERSION_FACTOR * batch.size_bytes)
            return await self._offload.run(deliver, batch, checkpoint, hash_range)


def _account(reservation: Reservation, delivery: Delivery) -> None:
    left = 0 if delivery.rest is None else delivery.rest.size_bytes
    written = len(delivery.line or b"") + sum(len(part.line) for part in delivery.parts)
    reservation.resize(written + left)


@dataclass(slots=True)
class Tally:
    """Counts since the process started.

    Attributes:
        records: given to children; a record that was given twice counts twice.
        restarts: of children.
    """

    records: int = 0
    restarts: int = 0


class ConsumerNotes:
    """What the consumers add to the writes of their leases' holder."""

    def __init__(self) -> None:
        self._notes: dict[str, FindNotes] = {}

    def add(self, lease_key: str, notes: FindNotes) -> None:
        """Add the notes of a lease's consumer; they replace those of an earlier one."""
        self._notes[lease_key] = notes

    def remove(self, lease_key: str, notes: FindNotes) -> None:
        """Remove the notes of a consumer, unless a later one has replaced them."""
        if self._notes.get(lease_key) == notes:
            del self._notes[lease_key]

    def find(self, lease: Lease) -> RowNotes:
        """The notes for a write to a row."""
        find = self._notes.get(lease.lease_key)
        try:
            return RowNotes() if find is None else find(lease)
        except Exception:
            # A lease must be renewed even if its notes can't be built.
            log.exception("%s: what its row says of the reading is left out", lease.lease_key)
            return RowNotes()


@dataclass(slots=True, kw_only=True)
class ConsumerParts:
    """What all consumers of a process share; create it once.

    Attributes:
        pid: process id of the daemon, so that children can detect that they outlived it.
        schemas: the schema registry; None = frames are left alone.
        letters: where dead letters are stored; None without ``childFailurePolicy = deadletter``.
        starts: created here, because all children share its places.
        lines: created here, because large conversions of all shards wait for each other in it.
        latest_starts: by lease key, the row's count of owner switches and when this process began
            to read at LATEST (epoch seconds). A child that is restarted, or a lapsed lease that is
            regained, before the first checkpoint continues there; a new LATEST would skip records.
        tally: the counts of all of them.
        service_time: epoch seconds by the answers of Kinesis; None where they have no date.
        notes: of the consumers, for writes to their rows.
    """

    config: Config
    runtime: Runtime
    streams: StreamRegistry
    renewer: LeaseRenewer
    shard_end: ShardEnd
    cleanup: LeaseCleanup
    launcher: ChildLauncher
    pid: int
    notes: ConsumerNotes
    schemas: SchemaRegistry | None
    letters: LetterStore | None
    service_time: Callable[[], float | None]
    starts: ChildStarts = field(init=False)
    lines: LineWriter = field(init=False)
    latest_starts: dict[str, tuple[int, float]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.starts = ChildStarts(self.renewer.in_time)
        self.lines = LineWriter(
            self.runtime.offload,
            even_if_empty=self.config.retrieval.call_even_if_empty,
            schemas=self.schemas,
        )
