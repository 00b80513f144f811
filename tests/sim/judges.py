"""The judges: they watch the table, the children and the workers, and believe nobody.

Nothing here shares code with the services, except the order of sequence numbers; nothing here
changes the world. A judge that is never seen to convict proves nothing: ``test_judges.py`` plants
one fault per rule.

S0  nothing fails in a way that nobody foresaw
S1  no record is skipped: not within a child, not by a checkpoint, not by the end of a shard
S2  a checkpoint never moves back and is only written by the owner; counters never fall
S3  a shard's first record comes after its parents' SHARD_END is in the table
S4  two workers believe in one lease only inside the steal window (see :meth:`Judges.tick`), and
    who does not believe delivers nothing and checkpoints nothing, however long it stood still
S5  every stored item is one that a Java worker can read
S6  no message is illegal for the child's state; nothing is said after the last word
S7  a worker that has ended leaves no task and no child
S8  intents and ticks, see :mod:`tests.sim.intents`
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mld.model.sequence import ExtendedSequenceNumber, Sentinel
from protocol.messages import (
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
)
from tests.sim.intents import IntentJudge, intent_of, intent_sent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.fakes.dynamodb_model import Write
    from tests.sim.children import SimChild
    from tests.sim.stream import ShardTruth, SimStream
    from tests.sim.trace import Trace

    Item = Mapping[str, Mapping[str, Any]]

_ACTION = re.compile(rb'"action" *: *"(\w+)"')
_SETS_CHECKPOINT = re.compile(r"\bcheckpoint = ")
_INTEGER = re.compile(r"0|[1-9][0-9]*\Z")
#: Attribute -> type, as Java's DynamoDBLeaseSerializer 3.5.1 reads them.
_TYPES = {
    "leaseKey": "S",
    "leaseCounter": "N",
    "leaseOwner": "S",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "pendingCheckpoint": "S",
    "pendingCheckpointSubSequenceNumber": "N",
    "pendingCheckpointState": "B",
    "parentShardId": "SS",
    "childShardIds": "SS",
    "startingHashKey": "S",
    "endingHashKey": "S",
    "throughputKBps": "N",
    "checkpointOwner": "S",
    "entityType": "S",
    "kclMldIntent": "M",
}
_MANDATORY = (
    "leaseKey",
    "leaseCounter",
    "ownerSwitchesSinceCheckpoint",
    "checkpoint",
    "checkpointSubSequenceNumber",
)


@dataclass
class Violation:
    """One rule, broken once."""

    rule: str
    text: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.rule} at {self.at_s:.3f} s: {self.text}"


@dataclass
class ShardLog:
    """What has become of one shard's records.

    Attributes:
        done: per index, whether some child has processed it.
        prefix: number of leading records that are done.
        ended: SHARD_END was durable at some time.
        begun: a child was initialized for it.
        leased: it has had a lease.
        row_dropped: an operator has deleted its lease.
    """

    done: list[bool] = field(default_factory=list)
    prefix: int = 0
    ended: bool = False
    begun: bool = False
    leased: bool = False
    row_dropped: bool = False

    def mark(self, index: int) -> bool:
        """Note one record; False when it had been done before."""
        if index >= len(self.done):
            self.done.extend([False] * (index + 1 - len(self.done)))
        first = not self.done[index]
        self.done[index] = True
        while self.prefix < len(self.done) and self.done[self.prefix]:
            self.prefix += 1
        return first


@dataclass
class _Handover:
    """The last change of a lease's owner."""

    at_s: float
    old_owner: str | None
    deadline_s: float


def text_of(item: Item | None, name: str) -> str | None:
    """Content of an attribute as text, None when absent."""
    if item is None or name not in item:
        return None
    return str(next(iter(item[name].values())))


def worker_of(item: Item | None) -> str | None:
    """Who may work on a lease: during a hand-off the old owner."""
    return text_of(item, "checkpointOwner") or text_of(item, "leaseOwner")


def position_of(item: Item) -> ExtendedSequenceNumber:
    """The stored checkpoint."""
    return ExtendedSequenceNumber(
        text_of(item, "checkpoint") or "?", int(text_of(item, "checkpointSubSequenceNumber") or 0)
    )


class Judges:
    """All rules over one run.

    Args:
        believers: worker id -> lease keys that a live worker of ours believes to hold right now.
        failover_s: of the whole fleet.
        all_shards_matter: every shard has to be read; False with LATEST, where those that were
            closed before the first start never get a lease.
    """

    def __init__(
        self,
        stream: SimStream,
        trace: Trace,
        now: Callable[[], float],
        *,
        table: str,
        failover_s: float,
        renewal_s: float,
        request_timeout_s: float,
        all_shards_matter: bool,
        believers: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        self._stream = stream
        self._trace = trace
        self._now = now
        self._table = table
        self._failover_s = failover_s
        self._renewal_s = renewal_s
        self._request_timeout_s = request_timeout_s
        self._all_shards_matter = all_shards_matter
        self._believers = believers
        self.violations: list[Violation] = []
        #: Whose request is having its effect; set by the ports.
        self.actor = ""
        #: Faults are off: belief in a stolen lease must end with the next renewal.
        self.calm = False
        #: A fleet member of version 3.x that may write what we may not.
        self.foreigners: set[str] = set()
        self.logs: dict[str, ShardLog] = {}
        self.duplicates = 0
        self.counts: Counter[str] = Counter()
        self._items: dict[str, Item] = {}
        self._written_s: dict[str, float] = {}
        self._handovers: dict[str, _Handover] = {}
        #: (worker, lease key, what) -> the position or number that it last sent.
        self._sent: dict[tuple[str, str, str], str] = {}
        self._intents = IntentJudge(self.convict, self.counts)

    # -- verdicts ------------------------------------------------------------------------------

    def convict(self, rule: str, text: str) -> None:
        """Note a violation."""
        self._trace.add("", f"VIOLATION {rule}: {text}")
        self.violations.append(Violation(rule, text, self._now()))

    def log(self, shard_id: str) -> ShardLog:
        """The shard's log."""
        return self.logs.setdefault(shard_id, ShardLog())

    def leases(self) -> dict[str, Item]:
        """Stored leases by key, as of now."""
        return self._items

    def unfinished(self) -> list[str]:
        """Shards of the stream whose lease is not at SHARD_END."""
        return [
            key
            for key, item in self._items.items()
            if key in self._stream.shards and not position_of(item).is_shard_end
        ]

    # -- the table -----------------------------------------------------------------------------

    def wrote(self, write: Write) -> None:
        """One item of any table changed."""
        if write.table != self._table:
            if self.actor not in self.foreigners:
                self.convict("S5", f"{self.actor} wrote to table {write.table}")
            return
        key = text_of(write.after or write.before, "leaseKey") or "?"
        item = write.after or write.before
        assert item is not None
        if text_of(item, "entityType") not in {None, "LEASE"}:
            if self.actor not in self.foreigners:
                self.convict("S5", f"{self.actor} wrote {key}, which is no lease")
            return
        self._trace.add(self.actor, f"{_what(write)} {_short(key)}{_details(write)}")
        self.counts[_what(write)] += 1
        if write.after is None:
            self._deleted(key, item)
            self._items.pop(key, None)
            return
        if self.actor in self.foreigners and write.before is None:
            return  # no lease, or a row that is no use to anybody
        self._check_schema(key, write.after)
        if write.before is not None:
            self._check_counter(key, write.before, write.after)
            self._check_owner(key, write.before, write.after)
            holder = worker_of(write.before)
            self._intents.wrote(key, self.actor, holder, write.before, write.after)
        self._check_checkpoint(key, write.before, write.after)
        if write.before is None or write.before["leaseCounter"] != write.after["leaseCounter"]:
            self._written_s[key] = self._now()
        self._items[key] = write.after
        self.log(key.rsplit(":", 1)[-1]).leased = True

    def _check_schema(self, key: str, item: Item) -> None:
        for name, value in item.items():
            kind, content = next(iter(value.items()))
            if _TYPES.get(name) != kind:
                self.convict("S5", f"{key}.{name} is {kind} {content!r}")
            elif kind == "N" and name != "throughputKBps" and not _INTEGER.match(content):
                self.convict("S5", f"{key}.{name} = {content!r} is not a plain integer")
            elif content in ("", [], set()):
                self.convict("S5", f"{key}.{name} is empty")
        for name in _MANDATORY:
            if name not in item:
                self.convict("S5", f"{key} has no {name}")
        start, end = text_of(item, "startingHashKey"), text_of(item, "endingHashKey")
        if (start is None) != (end is None) or (start and end and not int(start) < int(end)):
            self.convict("S5", f"{key} has hash range {start}-{end}")

    def _check_counter(self, key: str, before: Item, after: Item) -> None:
        was, now = (
            int(text_of(before, "leaseCounter") or 0),
            int(text_of(after, "leaseCounter") or 0),
        )
        if now < was:
            self.convict("S2", f"the counter of {key} fell from {was} to {now}")
        changed = text_of(before, "leaseOwner") != text_of(after, "leaseOwner")
        if changed and now == was and self.actor not in self.foreigners:
            self.convict("S2", f"{key} changed its owner without its counter")
        actual = worker_of(before)
        if now != was and not changed and self.actor not in {actual, *self.foreigners}:
            self.convict("S2", f"{self.actor} renewed {key}, which is {actual}'s")

    def _check_owner(self, key: str, before: Item, after: Item) -> None:
        old, new = worker_of(before), worker_of(after)
        if old == new:
            return
        now = self._now()
        was_promised = new == text_of(before, "leaseOwner")
        if new not in {None, self.actor} and self.actor not in self.foreigners and not was_promised:
            self.convict("S2", f"{self.actor} gave {key} to {new}")
        if new is None and self.actor != old and self.actor not in self.foreigners:
            self.convict("S2", f"{self.actor} took {key} away from {old}")
        silent_s = now - self._written_s.get(key, 0.0)
        window_s = self._failover_s * 1.01
        if new is None or self.actor == old:
            pass  # its own release: it reads nothing any more, and its answer may be lost
        elif silent_s > self._failover_s:
            self.counts["failover"] += 1
            if old is not None and key in self._believers().get(old, ()):
                self.convict(
                    "S4",
                    f"{new} took {key} after {silent_s:.3f} s of silence while {old} still believed",
                )
            window_s = 0.0
        elif old is not None:
            self.counts["steal"] += 1
            if self.calm:
                window_s = self._renewal_s + 2 * self._request_timeout_s
        self._handovers[key] = _Handover(now, old, now + window_s)

    def _check_checkpoint(self, key: str, before: Item | None, after: Item) -> None:
        position = position_of(after)
        if before is None:
            return
        was = position_of(before)
        if was == position:
            return
        if position < was:
            self.convict("S2", f"the checkpoint of {key} moved back from {was} to {position}")
        owner = worker_of(before)
        if self.actor != owner:
            self.convict("S2", f"{self.actor} checkpointed {key}, which is {owner}'s")
        truth = self._stream.find(key.rsplit(":", 1)[-1])
        if truth is None:
            return
        log = self.log(truth.shard_id)
        upto = self._covered(truth, position)
        if upto > log.prefix:
            self.convict(
                "S1",
                f"{self.actor} checkpointed {key} at {position}, but only {log.prefix} of "
                f"{upto} records before it were processed",
            )
        if position.is_shard_end:
            log.ended = True
            if self._stream.shards[truth.shard_id].is_open:
                self.convict("S1", f"{self.actor} ended {key}, which is open")

    def _covered(self, truth: ShardTruth, position: ExtendedSequenceNumber) -> int:
        if position.is_shard_end:
            return len(truth.places)
        if position.sentinel is not None:
            return 0
        place = (int(position.sequence_number), position.sub_sequence_number)
        return bisect_right(truth.places, place)

    def _deleted(self, key: str, item: Item) -> None:
        shard_id = key.rsplit(":", 1)[-1]
        shard = self._stream.shards.get(shard_id)
        if self.actor in self.foreigners:
            # Nobody can know at once; and who has no row does not hold up its children.
            now = self._now()
            self._handovers[key] = _Handover(now, worker_of(item), now + self._failover_s * 1.01)
            self.log(shard_id).row_dropped = True
            return
        if shard is None:
            return
        if not position_of(item).is_shard_end:
            self.convict("S1", f"{self.actor} deleted the unfinished {key}")
        for child in shard.children:
            if (
                child not in self._items
                and not self.log(child).ended
                and not self._is_raided(child)
            ):
                self.convict("S3", f"{self.actor} deleted {key} before {child} had a lease")

    def _is_raided(self, key: str) -> bool:
        """Whether an operator has just deleted a row that a worker may have seen before."""
        handover = self._handovers.get(key)
        was_dropped = handover is not None and self.log(key).row_dropped
        return was_dropped and self._now() - handover.at_s < self._failover_s

    # -- beliefs -------------------------------------------------------------------------------

    def tick(self) -> None:
        """Compare beliefs with the table.

        A worker may believe in a lease that the table gives to another until

        * ``failover_s`` after a steal (it may be cut off, and goes by its own clock), and with
          faults off until its next renewal and that one's timeout;
        * not at all after a take of an expired lease;
        * ``failover_s`` after its own release, which comes after the child's end.
        """
        now = self._now()
        for worker, keys in self._believers().items():
            for key in keys:
                item = self._items.get(key)
                owner = worker_of(item)
                if item is None or owner == worker:
                    continue
                handover = self._handovers.get(key)
                if handover is None or handover.old_owner != worker:
                    chain = handover is not None and now <= handover.at_s + self._failover_s * 1.01
                    if not chain:
                        self.convict("S4", f"{worker} believes in {key}, which is {owner}'s")
                elif now > handover.deadline_s:
                    self.convict(
                        "S4",
                        f"{worker} believes in {key} {now - handover.at_s:.3f} s after it went "
                        f"to {owner}",
                    )

    def said(self, child: SimChild, data: bytes) -> None:
        """A worker writes to a child: what belongs to the owner needs belief."""
        match = _ACTION.search(data)
        if match is not None and match[1] in {b"processRecords", b"shardEnded"}:
            self._check_belief(child.worker, child.shard_id, match[1].decode())

    def sent(self, worker: str, request: Mapping[str, Any]) -> None:
        """A request to the lease table leaves a worker.

        A checkpoint that was first sent in belief may be sent again without: the repeat has the
        same owner and counter in its condition, so it cannot touch what became another's.
        """
        if (number := intent_sent(request)) is not None:
            self._sent_first(worker, request, "an intent", number)
        if _SETS_CHECKPOINT.search(request.get("UpdateExpression", "")):
            position = request["ExpressionAttributeValues"][":checkpoint"]["S"]
            self._sent_first(worker, request, "a checkpoint", position)

    def _sent_first(self, worker: str, request: Mapping[str, Any], what: str, value: str) -> None:
        key = request["Key"]["leaseKey"]["S"]
        if self._sent.get((worker, key, what)) != value:
            self._check_belief(worker, key, what)
            self._sent[worker, key, what] = value

    def _check_belief(self, worker: str, key: str, what: str) -> None:
        if key not in self._believers().get(worker, ()):
            self.convict("S4", f"{worker} sent {what} for {key}, in which it did not believe")

    # -- the children --------------------------------------------------------------------------

    def message(self, child: SimChild, message: Any) -> None:
        """A child has received a message."""
        if child.has_last_word:
            self.convict("S6", f"{child.worker} said {message.action} after the last word")
        row = self._items.get(child.shard_id)
        self._intents.told(child, message, row, worker_of(row))
        match message:
            case Initialize():
                self._trace.add(
                    child.worker, f"init {_short(child.shard_id)} {_tail(child.began_at[0])}"
                )
                self._initialized(child)
            case ProcessRecords():
                self._delivered(child, message)
            case ShardEnded():
                self._trace.add(child.worker, f"shardEnded {_short(child.shard_id)}")
                self._told_end(child)
            case LeaseLost() | ShutdownRequested():
                self._trace.add(child.worker, f"{message.action} {_short(child.shard_id)}")

    def _may_follow(self, parent: str) -> bool:
        """Whether a shard's children may be read."""
        log = self.log(parent)
        return log.ended or log.row_dropped or not (self._all_shards_matter or log.leased)

    def _truth(self, child: SimChild) -> ShardTruth:
        return self._stream.truth[child.shard_id]

    def _initialized(self, child: SimChild) -> None:
        truth = self._stream.find(child.shard_id)
        if truth is None:
            self.convict("S6", f"{child.worker} initialized a child for {child.shard_id!r}")
            return
        position = ExtendedSequenceNumber(*child.began_at)
        self.log(child.shard_id).begun = True
        if position.sentinel is Sentinel.LATEST:
            child.next_index = None  # wherever reading happens to begin
        elif position.is_shard_end:
            child.next_index = len(truth.places)
        else:
            child.next_index = self._covered(truth, position)

    def _delivered(self, child: SimChild, message: ProcessRecords) -> None:
        truth = self._truth(child)
        for record in message.records:
            place = (int(record.sequence_number or -1), record.sub_sequence_number or 0)
            index = truth.index.get(place)
            if index is None:
                self.convict("S1", f"{child.shard_id} never had a record {place}")
                return
            if child.next_index is None:
                self._begin_at(child, index)
            if index != child.next_index:
                what = "skipped" if index > child.next_index else "repeated"
                self.convict(
                    "S1",
                    f"{child.worker} {what}: record {index} of {child.shard_id} came where "
                    f"{child.next_index} was due",
                )
                return
            child.next_index += 1
            if record.binary_data.decode() != truth.identities[index]:
                self.convict("S1", f"record {index} of {child.shard_id} has another's data")
        if message.records:
            self._trace.add(child.worker, f"records {_short(child.shard_id)} <{child.next_index}")
            for parent in truth.parents:
                if not self._may_follow(parent):
                    self.convict(
                        "S3", f"{child.worker} read {child.shard_id} before {parent} was finished"
                    )

    def _begin_at(self, child: SimChild, index: int) -> None:
        """A child that starts at LATEST has seen its first record: what came before is past."""
        child.next_index = index
        log = self.log(child.shard_id)
        for past in range(index):
            log.mark(past)

    def _told_end(self, child: SimChild) -> None:
        truth = self._truth(child)
        if child.next_index is None:
            self._begin_at(child, len(truth.places))
        if child.next_index != len(truth.places):
            self.convict(
                "S1",
                f"{child.worker} told the end of {child.shard_id} at record {child.next_index} of "
                f"{len(truth.places)}",
            )

    def processed(self, child: SimChild, records: Sequence[Any]) -> None:
        """A child has done its work on these records."""
        truth, log = self._truth(child), self.log(child.shard_id)
        for record in records:
            index = truth.index.get((int(record.sequence_number), record.sub_sequence_number))
            if index is not None and not log.mark(index):
                self.duplicates += 1

    def peer_read(self, worker: str, shard_id: str, sequence_numbers: Sequence[int]) -> None:
        """A scripted worker has processed these Kinesis records, with all that is inside them."""
        truth, log = self._stream.find(shard_id), self.log(shard_id)
        assert truth is not None
        self._trace.add(worker, f"records {_short(shard_id)} x{len(sequence_numbers)}")
        for number in sequence_numbers:
            sub = 0
            while (index := truth.index.get((number, sub))) is not None:
                if not log.mark(index):
                    self.duplicates += 1
                sub += 1
        for parent in truth.parents:
            if not self._may_follow(parent):
                self.convict("S3", f"{worker} read {shard_id} before {parent} was finished")

    def last_place(self, shard_id: str, sequence_number: int) -> int:
        """Highest sub-sequence number inside a record."""
        sub = 0
        while (sequence_number, sub + 1) in self._stream.truth[shard_id].index:
            sub += 1
        return sub

    def answered(self, child: SimChild, message: Any) -> None:
        """A child has finished a message."""
        if isinstance(message, LeaseLost | ShardEnded):
            child.has_last_word = True

    def checkpoint_answered(self, child: SimChild, result: CheckpointResult) -> None:
        """A child got the answer to its checkpoint."""
        self.counts[f"checkpoint {result.error or 'stored'}"] += 1
        if result.error is not None:
            self._trace.add(child.worker, f"refused {_short(child.shard_id)} {result.error}")

    def intent_answered(self, child: SimChild, error: str | None) -> None:
        """A child got the answer to its intent."""
        self.counts[f"intent {error or 'confirmed'}"] += 1

    def illegal_message(self, child: SimChild, error: Exception) -> None:
        """A child could not take what it was told."""
        self.convict("S6", f"{child.worker}: {error}")

    def child_ended(self, child: SimChild, code: int) -> None:
        """A process is gone."""
        self._trace.add(child.worker, f"child of {_short(child.shard_id)} ends: {code}")


def _what(write: Write) -> str:
    if write.before is None:
        return "create"
    if write.after is None:
        return "delete"
    old, new = text_of(write.before, "leaseOwner"), text_of(write.after, "leaseOwner")
    if old != new:
        return "evict" if new is None else "take"
    if write.before.get("checkpoint") != write.after.get("checkpoint") or write.before.get(
        "checkpointSubSequenceNumber"
    ) != write.after.get("checkpointSubSequenceNumber"):
        return "checkpoint"
    if write.before.get("leaseCounter") != write.after.get("leaseCounter"):
        return "renew" if intent_of(write.before) == intent_of(write.after) else "intent"
    return "metadata"


def _details(write: Write) -> str:
    if write.after is None:
        return ""
    counter = text_of(write.after, "leaseCounter")
    if _what(write) == "checkpoint":
        return f" #{counter} {_tail(text_of(write.after, 'checkpoint'))}"
    if _what(write) == "take":
        return f" #{counter} from {text_of(write.before, 'leaseOwner') or 'nobody'}"
    return f" #{counter}"


def _short(key: str) -> str:
    return key[-3:]


def _tail(text: str | None) -> str:
    """The end of a sequence number tells it apart; a sentinel is shown whole."""
    return "…" + text[-8:] if text and text.isdigit() else str(text)
