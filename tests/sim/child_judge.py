"""The judge of the children: what they are told and what becomes of it (S1, S3, S6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber, Sentinel
from kcl_mld.leases.model.lease_request import PAUSED_UNTIL
from kcl_mld_protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
)
from tests.sim.ports import EPOCH_S
from tests.sim.rows import short, tail, text_of, worker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.sim.children import SimChild
    from tests.sim.court import Court
    from tests.sim.sibling_judge import SiblingJudge
    from tests.sim.stream import Place, ShardTruth


class ChildJudge:
    """Hears every message, and sees every record that is processed.

    Args:
        court: where it sits.
        siblings: judges what several children of a shard do.
    """

    def __init__(self, court: Court, siblings: SiblingJudge) -> None:
        self._court = court
        self._siblings = siblings
        #: Told whose each message and each answer is; tests do something then.
        self.on_event: Callable[[SimChild], None] = lambda _child: None

    def message(self, child: SimChild, message: Any) -> None:
        """A child has received a message."""
        self.on_event(child)
        if child.has_last_word:
            self._court.convict("S6", f"{child.worker} said {message.action} after the last word")
        child.acknowledged = child.confirmed
        child.busy_since_s = self._court.now()
        if isinstance(message, ProcessRecords) and not message.records:
            is_asked = child.siblings > 1 and child.owes
            self._court.counts["tick" if child.asked_for_ticks else "reminder"] += 1
            if not (child.asked_for_ticks or is_asked):
                self._court.convict("S8", f"{child.worker} sent a tick that nobody asked for")
        match message:
            case Initialize():
                self._court.trace.add(
                    child.worker, f"init {_name(child)} {tail(child.began_at[0])}"
                )
                self._initialized(child)
            case ProcessRecords():
                self._delivered(child, message)
            case ShardEnded():
                child.knows_end = True
                self._court.trace.add(child.worker, f"shardEnded {_name(child)}")
                self._told_end(child)
            case LeaseLost() | ShutdownRequested():
                self._court.trace.add(child.worker, f"{message.action} {_name(child)}")

    def _may_follow(self, parent: str) -> bool:
        """Whether a shard's children may be read."""
        log = self._court.log(parent)
        return log.ended or log.row_dropped or not (self._court.all_shards_matter or log.leased)

    def _truth(self, child: SimChild) -> ShardTruth:
        return self._court.stream.truth[child.shard_id]

    def _initialized(self, child: SimChild) -> None:
        truth = self._court.stream.find(child.shard_id)
        if truth is None:
            self._court.convict("S6", f"{child.worker} initialized a child for {child.shard_id!r}")
            return
        position = ExtendedSequenceNumber(*child.began_at)
        self._court.log(child.shard_id).begun = True
        self._siblings.began(child, truth, position)
        if position.sentinel is Sentinel.LATEST:
            child.next_index = None  # wherever reading happens to begin
        else:
            child.next_index = truth.covered(position)

    def _delivered(self, child: SimChild, message: ProcessRecords) -> None:
        truth = self._truth(child)
        if message.records:
            self._check_pause(child)
        for record in message.records:
            place = (int(record.sequence_number or -1), record.sub_sequence_number or 0)
            index = truth.index.get(place)
            if index is None:
                self._court.convict("S1", f"{child.shard_id} never had a record {place}")
                return
            if child.next_index is None:
                self._begin_at(child, index)
            self._pass_others(child, truth, index)
            if index != child.next_index:
                what = "skipped" if index > child.next_index else "repeated"
                self._court.convict(
                    "S1",
                    f"{child.worker} {what}: record {index} of {child.shard_id} came where "
                    f"{child.next_index} was due",
                )
                return
            child.next_index += 1
            self._siblings.given(child, truth, index)
            if record.binary_data.decode() != truth.identities[index]:
                self._court.convict("S1", f"record {index} of {child.shard_id} has another's data")
        if message.records:
            self._court.trace.add(child.worker, f"records {_name(child)} <{child.next_index}")
            for parent in truth.parents:
                if not self._may_follow(parent):
                    self._court.convict(
                        "S3", f"{child.worker} read {child.shard_id} before {parent} was finished"
                    )

    def _check_pause(self, child: SimChild) -> None:
        item = self._court.rows.get(child.shard_id)
        until_s = float(text_of(item, PAUSED_UNTIL) or 0)
        now_s = EPOCH_S + self._court.now()
        if worker_of(item) == child.worker and now_s < until_s:
            self._court.convict("S16", f"{child.worker} reads {child.shard_id}, which is paused")

    def _pass_others(self, child: SimChild, truth: ShardTruth, index: int) -> None:
        """Dead letters and records of its siblings are left out, wherever they stand."""
        dead = self._court.log(child.shard_id).dead
        while child.next_index is not None and child.next_index < index:
            if child.next_index not in dead and child.gets(truth.keys[child.next_index]):
                return
            child.next_index += 1

    def set_aside(self, worker: str, letter: dict[str, Any]) -> None:
        """A dead letter is durable."""
        key = letter["leaseKey"]
        truth, log = self._court.stream.truth[key], self._court.log(key)
        ends = [
            truth.index[int(letter[f"{end}SequenceNumber"]), letter[f"{end}SubSequenceNumber"]]
            for end in ("first", "last")
        ]
        self._court.trace.add(worker, f"letter {short(key)} {ends}")
        self._court.counts["dead letter"] += 1
        for index in range(ends[0], ends[1] + 1):
            log.dead.add(index)
            log.mark(index)

    def _begin_at(self, child: SimChild, index: int) -> None:
        """A child that starts at LATEST has seen its first record: what came before is past."""
        child.next_index = self._siblings.begins_at(child, index)
        log = self._court.log(child.shard_id)
        for past in range(child.next_index):
            log.mark(past)
            log.confirm(past)

    def _told_end(self, child: SimChild) -> None:
        truth = self._truth(child)
        if self._court.stream.shards[child.shard_id].is_open:
            self._court.convict(
                "S9", f"{child.worker} told the end of {child.shard_id}: it is open"
            )
        if child.next_index is None:
            self._begin_at(child, len(truth.places))
        self._pass_others(child, truth, len(truth.places))
        if child.next_index != len(truth.places):
            self._court.convict(
                "S1",
                f"{child.worker} told the end of {child.shard_id} at record {child.next_index} of "
                f"{len(truth.places)}",
            )

    def processed(self, child: SimChild, records: Sequence[Any]) -> None:
        """A child has done its work on these records."""
        truth = self._truth(child)
        for record in records:
            index = truth.index.get((int(record.sequence_number), record.sub_sequence_number))
            if index is not None and not self._siblings.processed(
                child.worker, child.shard_id, truth, index
            ):
                self._court.duplicates += 1

    def peer_read(
        self, worker: str, shard_id: str, sequence_numbers: Sequence[int], behind: Place = (-1, 0)
    ) -> None:
        """A scripted worker has processed these Kinesis records, with what is inside them.

        Args:
            behind: the checkpoint that it began at, maybe inside the first of them.
        """
        truth = self._court.stream.find(shard_id)
        assert truth is not None
        self._court.trace.add(worker, f"records {short(shard_id)} x{len(sequence_numbers)}")
        for number in sequence_numbers:
            sub = 0
            while (index := truth.index.get((number, sub))) is not None:
                if (number, sub) > behind and not self._siblings.processed(
                    worker, shard_id, truth, index
                ):
                    self._court.duplicates += 1
                self._court.counts["begun inside an aggregate"] += (number, sub) == behind
                sub += 1
        for parent in truth.parents:
            if not self._may_follow(parent):
                self._court.convict("S3", f"{worker} read {shard_id} before {parent} was finished")

    def answered(self, child: SimChild, message: Any) -> None:
        """A child has finished a message."""
        self.on_event(child)
        child.busy_since_s = None
        if not (isinstance(message, ProcessRecords) and not message.records):
            child.idle_since_s = self._court.now()
        if isinstance(message, ProcessRecords):
            self._siblings.answered_batch(child)
        if isinstance(message, LeaseLost | ShardEnded):
            child.has_last_word = True

    def requested(self, child: SimChild, request: CheckpointRequest) -> None:
        """A child is about to ask for a checkpoint."""
        if child.next_index is not None:
            self._siblings.requested(child, self._truth(child), request)

    def checkpoint_answered(self, child: SimChild, result: CheckpointResult) -> None:
        """A child got the answer to its checkpoint."""
        self._court.counts[f"checkpoint {result.error or 'stored'}"] += 1
        if result.error is None:
            child.acknowledged = child.confirmed
        if result.error is not None:
            self._court.trace.add(child.worker, f"refused {_name(child)} {result.error}")

    def illegal_message(self, child: SimChild, error: Exception) -> None:
        """A child could not take what it was told."""
        self._court.convict("S6", f"{child.worker}: {error}")

    def child_ended(self, child: SimChild, code: int) -> None:
        """A process is gone."""
        self._court.trace.add(child.worker, f"child of {_name(child)} ends: {code}")
        self._siblings.ended(child, code)


def _name(child: SimChild) -> str:
    which = f"/{child.index}" if child.siblings > 1 else ""
    return f"{short(child.shard_id)}{which}"
