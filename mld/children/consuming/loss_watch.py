"""Finds records of one shard that expired before they were read, and tracks until when it was read.

The result is added to writes to the lease's row that are made anyway; the next owner checks its
first record against it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.children.rules.loss import (
    END_OF_TIME_S,
    REFUSED,
    KnownReading,
    LossVerdict,
    ReadMarks,
    judge_gap,
    judge_vanished,
    loss_note,
    risk,
    sentence,
    shard_created_s,
)
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber, Sentinel
from kcl_mld.leases.model.reading import RowNotes
from kcl_mld.retrieval.model.wire import first_arrival_s, first_sequence_number
from kcl_mld.signals.model.metrics import PASSED_EXPIRED, PASSED_TRIMMED, PASSED_VANISHED, PassCause

if TYPE_CHECKING:
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.reading import LossNote, ReadNote
    from kcl_mld.retrieval.records_publisher import FetchedBatch, RecordsPublisher

log = logging.getLogger("mld.children")

#: Seconds between two log lines about a shard whose records are about to expire.
RISK_EVERY_S = 3600.0
#: Seconds that a lease must be held before the first of these lines.
RISK_AFTER_S = 600.0


class LossWatch:
    """Loss detection for one hold of a lease; sees each batch before and after its delivery."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._parts = context.parts
        self._clock = context.parts.runtime.clock
        self._marks = ReadMarks()
        self._known: KnownReading | None = None
        #: The position at which a publisher has just begun; None = its first batch was checked.
        self._began_at: ExtendedSequenceNumber | None = None
        #: Highest sequence number received, and epoch seconds when.
        self._got: tuple[ExtendedSequenceNumber, float] | None = None
        self._loss: LossNote | None = None
        #: The service refused a position, and no record came since.
        self._was_refused = False
        # After a long stop, catching up takes a while.
        self._warn_at = self._clock.monotonic() + RISK_AFTER_S

    @property
    def loss(self) -> LossNote | None:
        """Records lost, or possibly lost, within the last day, in this hold or before."""
        row = self._context.held.lease.loss
        found = row if self._loss is None else self._loss
        return found if found is not None and found.is_shown(self._now_s()) else None

    def checkpoint_age_s(self) -> float | None:
        """All records older than this many seconds are checkpointed. None = unknown."""
        read = self._read_at(self._context.checkpointer.last)
        return max(0.0, self._age_s(read.until_s)) if read and read.until_s else None

    def _age_s(self, until_s: float) -> float:
        """Since a time, or since the creation of the shard, before which it had no record."""
        now_s = self._now_s()
        created_s = shard_created_s(self._context.shard_id, now_s)
        return now_s - max(until_s, created_s or until_s)

    def notes(self, lease: Lease) -> RowNotes:
        """Notes for a holder's write; see :class:`~kcl_mld.leases.lease_store.Holder`."""
        self._warn_of_risk()
        checkpoint = lease.checkpoint
        read = None if checkpoint is None else self._marks.at(checkpoint)
        self._marks.forget_before(self._context.checkpointer.last)
        return RowNotes(read, self._loss)

    def _warn_of_risk(self) -> None:
        """Called at the holder's writes, which also happen while its child is blocked."""
        now = self._clock.monotonic()
        if now < self._warn_at:
            return
        known = self._known
        is_waiting = known is not None and known.waiting_s is not None
        reading_s = None
        if known is not None and known.until_s is not None and is_waiting:
            reading_s = self._age_s(known.until_s)
        retention_s = self._context.stream_context.existence.retention_s
        text = risk(self.checkpoint_age_s(), reading_s, retention_s)
        if text is not None:
            self._warn_at = now + RISK_EVERY_S
            shard_id = self._context.shard_id
            log.warning("%s: %s", shard_id, text, extra={"shard_id": shard_id})

    # -- batches -----------------------------------------------------------------------------------

    def begin(self, position: ExtendedSequenceNumber) -> None:
        """A publisher begins at a checkpoint.

        LATEST requests nothing earlier. At another sentinel, only the row can show an earlier
        reading.
        """
        self._began_at = self._known = None
        self._was_refused = False
        read, got = self._read_at(position), self._got
        waiting_s = None if got is None or got[0] <= position else got[1]
        if position.sentinel is Sentinel.LATEST:
            return
        if position.sentinel is not None and read is None and waiting_s is None:
            return
        self._began_at = position
        self._known = KnownReading(position, None if read is None else read.until_s, waiting_s)

    async def judge(self, fetched: FetchedBatch, publisher: RecordsPublisher) -> None:
        """Before a batch is delivered: check for records missing before it."""
        batch, at_s = fetched.batch, self._time_of(fetched)
        if batch.has_vanished:
            self._judge_end(at_s)
            return
        self._was_refused = self._was_refused or fetched.follows_refusal
        shows_tip = self._context.stream_context.stream.traits.shows_tip
        is_at_tip = batch.is_shard_end or (shows_tip and not batch.millis_behind_latest)
        if batch.is_empty and not is_at_tip:
            return  # progressing through a period without records
        first, arrived_s = first_sequence_number(batch.records), first_arrival_s(batch.records)
        if arrived_s is not None and not arrived_s < END_OF_TIME_S:
            arrived_s = None  # the delivery refuses it
        if arrived_s is not None:
            at_s = max(at_s, arrived_s)  # Kinesis may not have returned its time yet
        if self._was_refused:
            self._judge_refused((first, arrived_s), at_s)
        elif self._known is not None and not self._follows(first):
            verdict = self._verdict(self._known, arrived_s, at_s, is_end=batch.is_shard_end)
            await self._judge_gap(verdict, self._known, (first, arrived_s), at_s, publisher)
        self._began_at, self._was_refused = None, False
        if first is not None and arrived_s is not None:
            self._marks.add(self._context.checkpointer.largest, arrived_s)
        last, position = batch.last_sequence_number, self._context.checkpointer.last
        if last is not None:
            position = ExtendedSequenceNumber(last)
            self._got = position, at_s
        elif self._known is not None:
            position = self._known.position
        behind_s = (batch.millis_behind_latest or 0) / 1000
        is_waiting = shows_tip and not is_at_tip
        self._known = KnownReading(position, at_s - behind_s, at_s if is_waiting else None)

    def delivered(self, fetched: FetchedBatch) -> None:
        """A batch was delivered.

        At the tip of the shard, all records that had arrived are delivered.
        """
        batch = fetched.batch
        if batch.millis_behind_latest == 0 and not batch.is_shard_end:
            self._marks.add(self._context.checkpointer.largest, self._time_of(fetched))

    def _follows(self, first: str | None) -> bool:
        """Whether the batch starts at or before the checkpointed record.

        This way, none is missing.
        """
        began_at = self._began_at
        if began_at is None or began_at.sentinel is not None or first is None:
            return False
        number = ExtendedSequenceNumber(first).sequence_number
        return int(number) <= int(began_at.sequence_number)

    async def _judge_gap(
        self,
        verdict: LossVerdict | None,
        known: KnownReading,
        first: tuple[str | None, float | None],
        at_s: float,
        publisher: RecordsPublisher,
    ) -> None:
        if verdict is None:
            return
        if verdict is LossVerdict.MAY_BE_LOST and await self._has_older(known, publisher):
            return
        self._report(loss_note(verdict, _cause(verdict), known, at_s, first))

    def _verdict(
        self, known: KnownReading, first_s: float | None, at_s: float, *, is_end: bool = False
    ) -> LossVerdict | None:
        existence = self._context.stream_context.existence
        ages = existence.stream.created_at_s, shard_created_s(self._context.shard_id, at_s)
        created_s = max((one for one in ages if one is not None), default=None)
        retention_s = existence.retention_s
        return judge_gap(known, first_s, at_s, retention_s, created_s, is_end=is_end)

    def _judge_refused(self, first: tuple[str | None, float | None], at_s: float) -> None:
        """The service refused the position as expired: records behind it may have expired, too.

        Args:
            first: number and arrival of the first record that is left; None where none is.
        """
        known = self._known or KnownReading(self._context.checkpointer.last)
        verdict = self._verdict(known, first[1], at_s) or LossVerdict.MAY_BE_LOST
        self._report(loss_note(verdict, _cause(verdict), known, at_s, first), REFUSED)

    async def _has_older(self, known: KnownReading, publisher: RecordsPublisher) -> bool:
        """Whether the shard still has the record at the position, or one from before it.

        Then none after it expired.

        Also True for a checkpoint that is not a record, which an operator stored.
        """
        if self._began_at is None or known.position.sentinel is not None:
            return False
        oldest = await publisher.oldest_number()
        return oldest is not None and int(oldest) <= int(known.position.sequence_number)

    def _judge_end(self, at_s: float) -> None:
        """The shard disappeared before it was read to its end."""
        known, checkpoint = self._known, self._context.checkpointer.last
        if known is None:
            read = self._read_at(checkpoint)
            known = KnownReading(checkpoint, None if read is None else read.until_s)
        retention_s = self._context.stream_context.existence.retention_s
        created_s = shard_created_s(self._context.shard_id, at_s)
        verdict = judge_vanished(known, at_s, retention_s, created_s)
        if verdict is not None:
            self._report(loss_note(verdict, PassCause.VANISHED, known, at_s, (None, None)))

    def _report(self, note: LossNote, besides: str = "") -> None:
        context = self._context
        metric = {
            PassCause.EXPIRED: PASSED_EXPIRED,
            PassCause.TRIMMED: PASSED_TRIMMED,
            PassCause.VANISHED: PASSED_VANISHED,
        }[note.cause]
        context.metrics.add(metric, 1)
        is_error = note.is_certain or note.cause is PassCause.VANISHED or bool(besides)
        level = logging.ERROR if is_error else logging.WARNING
        text = f"{sentence(note)}. {besides}" if besides else sentence(note)
        log.log(level, "%s: %s", context.shard_id, text, extra={"shard_id": context.shard_id})
        row = context.held.lease.loss if self._loss is None else self._loss
        self._loss = note.after(row)

    # -- times -------------------------------------------------------------------------------------

    def _read_at(self, position: ExtendedSequenceNumber) -> ReadNote | None:
        """Until when the shard was read, for a position: by this hold, or by the row."""
        here, row = self._marks.at(position), self._context.held.lease.read
        if row is None or not row.holds_at(position):
            return here
        return row if here is None or here.until_s < row.until_s else here

    def _time_of(self, fetched: FetchedBatch) -> float:
        return self._now_s() - (self._clock.monotonic() - fetched.fetched_at)

    def _now_s(self) -> float:
        """Time by the clock of the service, because arrival times are its own."""
        now_s = self._parts.service_time()
        return self._clock.corrected() if now_s is None else now_s


def _cause(verdict: LossVerdict) -> PassCause:
    return PassCause.EXPIRED if verdict is LossVerdict.LOST else PassCause.TRIMMED
