"""The judge of the lease table: what is written to it, by whom and when (S1, S2, S3, S5, L6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.leases.model.lease_request import STEERED
from tests.sim.court import OPERATOR, Handover
from tests.sim.request_judge import RequestJudge
from tests.sim.rows import (
    details_of,
    kind_of_change,
    misfits,
    position_of,
    short,
    text_of,
    worker_of,
)

if TYPE_CHECKING:
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from tests.fakes.dynamodb_model import Write
    from tests.sim.court import Court
    from tests.sim.fleet_judge import FleetJudge
    from tests.sim.rows import Item
    from tests.sim.sibling_judge import SiblingJudge


#: So long after a loss its effects may be missing: the end of a shard that was read from the living
#: stream is told, its children get leases, a request that was on its way arrives.
LATE_S = {"stream": 60.0, "table": 10.0}


class TableJudge:
    """Watches every write.

    Args:
        court: where it sits.
        fleet: the judge of leaders.
        siblings: the judge of what may be left behind.
        table: name of the lease table.
        calm_window_s: how long the loser of a stolen lease may believe in it while faults are off.
        steal_pause_s: between two leases that one worker steals while nothing delays its writes;
            all workers count on one a look (no plan configures more).
        is_undisturbed: nothing ever delays a write or ends a worker.
        deletes_former: leases of a stream that was deleted may be deleted.
    """

    def __init__(
        self,
        court: Court,
        fleet: FleetJudge,
        siblings: SiblingJudge,
        *,
        table: str,
        calm_window_s: float,
        steal_pause_s: float,
        is_undisturbed: bool,
        deletes_former: bool,
    ) -> None:
        self._court = court
        self._fleet = fleet
        self._siblings = siblings
        self._table = table
        self._calm_window_s = calm_window_s
        self._steal_pause_s = steal_pause_s
        self._is_undisturbed = is_undisturbed
        self._deletes_former = deletes_former
        #: Told of what commands have withdrawn.
        self.requests = RequestJudge(court)
        self._stole_s: dict[str | None, float] = {}
        self._written_s: dict[str, float] = {}

    def wrote(self, write: Write) -> None:
        """One item of any table changed."""
        if write.table != self._table:
            if self._fleet.is_on and write.table.startswith(f"{self._table}-"):
                item = write.after or write.before
                key = text_of(item, "key") or text_of(item, "wid") or "?"
                self._fleet.wrote_item(key, write)
            elif self._court.actor not in self._court.foreigners:
                self._court.convict("S5", f"{self._court.actor} wrote to table {write.table}")
            return
        key = text_of(write.after or write.before, "leaseKey") or "?"
        item = write.after or write.before
        assert item is not None
        if text_of(item, "entityType") not in {None, "LEASE"}:
            self._wrote_item(key, write)
            return
        kind = kind_of_change(write)
        self._court.trace.add(self._court.actor, f"{kind} {short(key)}{details_of(write, kind)}")
        self._court.counts[kind] += 1
        if write.after is None:
            self._deleted(key, item)
            self._court.rows.pop(key, None)
            return
        if self._court.actor in self._court.foreigners - {OPERATOR} and write.before is None:
            return  # no lease, or a row that is no use to anybody
        for misfit in misfits(key, write.after):
            self._court.convict("S5", misfit)
        self.requests.wrote(key, write.before, write.after)
        if write.before is not None:
            self._check_counter(key, write.before, write.after)
            self._check_owner(key, write.before, write.after)
            self._fleet.check_attributes(key, write.before, write.after)
        self._check_checkpoint(key, write.before, write.after)
        self._siblings.wrote(key, write.before, write.after)
        self._fleet.changed(key, write.before, write.after)
        if write.before is None or write.before["leaseCounter"] != write.after["leaseCounter"]:
            self._written_s[key] = self._court.now()
        self._court.rows[key] = write.after
        self._court.log(key).leased = True

    def _wrote_item(self, key: str, write: Write) -> None:
        """An item that is no lease."""
        if self._fleet.is_on:
            self._fleet.wrote_item(key, write)
        elif self._court.actor not in self._court.foreigners:
            self._court.convict("S5", f"{self._court.actor} wrote {key}, which is no lease")

    def _check_counter(self, key: str, before: Item, after: Item) -> None:
        was, now = (
            int(text_of(before, "leaseCounter") or 0),
            int(text_of(after, "leaseCounter") or 0),
        )
        if now < was:
            self._court.convict("S2", f"the counter of {key} fell from {was} to {now}")
        # The end of a hand-off leaves the next owner's name as it is.
        changed = text_of(before, "leaseOwner") != text_of(after, "leaseOwner") or (
            self._fleet.is_on and worker_of(before) != worker_of(after)
        )
        if (
            changed
            and now == was
            and self._court.actor not in self._court.foreigners
            and not self._fleet.is_hand_off_start(before, after)
        ):
            self._court.convict("S2", f"{key} changed its owner without its counter")
        actual = worker_of(before)
        if (
            now != was
            and not changed
            and self._court.actor not in {actual, *self._court.foreigners}
            and not self._fits_again(key)
        ):
            self._court.convict("S2", f"{self._court.actor} renewed {key}, which is {actual}'s")

    def _fits_again(self, key: str) -> bool:
        """Whether a Java worker of version 2.x writes to another's row and cannot know it.

        An operator deletes the row that it holds, another worker makes and takes it anew, and the
        counter of the new row comes to what the first remembers: its condition names nothing else,
        whoever the new owner is. A worker of ours names the owner, too, so it never writes so.
        """
        actor = self._court.actor
        return actor in self._court.by_counter and actor in self._court.log(key).dropped_from

    def _check_owner(self, key: str, before: Item, after: Item) -> None:
        old, new = worker_of(before), worker_of(after)
        if old == new:
            return
        now = self._court.now()
        silent_s = now - self._written_s.get(key, 0.0)
        self._check_giver(key, before, new, silent_s)
        window_s = self._court.failover_s * 1.01
        if new is None or self._court.actor == old:
            pass  # its own release: it reads nothing any more, and its answer may be lost
        elif silent_s > self._court.failover_s:
            self._court.counts["failover"] += 1
            self._court.counts["failover of a live worker"] += old in self._court.believers()
            if old is not None and key in self._court.believers().get(old, ()):
                self._court.convict(
                    "S4",
                    f"{new} took {key} after {silent_s:.3f} s of silence while {old} still believed",
                )
            window_s = 0.0
        elif old is not None:
            self._court.counts["steal"] += 1
            # A worker of version 3.x assigns at once.
            is_taker = new not in self._court.foreigners and not self._fleet.is_assigned
            # A row that was deleted may come back with the counter that a worker remembers.
            is_undisturbed = self._is_undisturbed and not self._court.log(key).dropped_from
            if is_taker and (self._court.calm or is_undisturbed):
                self._check_pause(new, now)
            if self._court.calm:
                window_s = self._calm_window_s
        self._court.handovers[key] = Handover(now, old, now + window_s)

    def _check_giver(self, key: str, before: Item, new: str | None, silent_s: float) -> None:
        """Who may take a lease away from its owner, and give it to whom."""
        old, actor = worker_of(before), self._court.actor
        if actor in self._court.foreigners:
            return
        was_promised = new == text_of(before, "leaseOwner")
        if self._fleet.is_assigned or self._fleet.is_settling:
            if actor != old:
                self._fleet.gave(key, before, new, silent_s)
        elif new not in {None, actor} and not was_promised:
            self._court.convict("S2", f"{actor} gave {key} to {new}")
        if new is None and actor != old:
            self._court.convict("S2", f"{actor} took {key} away from {old}")

    def started(self, worker: str) -> None:
        """A process began under that id, and knows nothing of what another one has stolen."""
        self._stole_s.pop(worker, None)
        self._siblings.started(worker)

    def _check_pause(self, worker: str | None, now: float) -> None:
        since_s = now - self._stole_s.get(worker, float("-inf"))
        self._stole_s[worker] = now
        if since_s < self._steal_pause_s:
            self._court.convict("L6", f"{worker} stole again after {since_s:.3f} s")

    def _check_checkpoint(self, key: str, before: Item | None, after: Item) -> None:
        position = position_of(after)
        if before is None:
            self._check_loss(key, "created")
        was = None if before is None else position_of(before)
        if was != position and (before or {}).get(STEERED) != after.get(STEERED):
            self._reset(key, position)
            return
        if before is None or was is None or was == position:
            return
        owner = worker_of(before)
        if position < was:
            self._court.convict(
                "S2", f"the checkpoint of {key} moved back from {was} to {position}"
            )
        if self._court.actor != owner and not self._fits_again(key):
            self._court.convict("S2", f"{self._court.actor} checkpointed {key}, which is {owner}'s")
        truth = self._court.stream.find(key)
        if truth is None:
            return
        self._siblings.stored(key, truth, position)
        log = self._court.log(truth.shard_id)
        upto = truth.covered(position)
        if upto > log.prefix:
            self._court.convict(
                "S1",
                f"{self._court.actor} checkpointed {key} at {position}, but only {log.prefix} of "
                f"{upto} records before it were processed",
            )
        if position.is_shard_end:
            log.ended = True
            if self._court.stream.shards[truth.shard_id].is_open:
                self._court.convict("S1", f"{self._court.actor} ended {key}, which is open")
            self._check_loss(key, "ended")

    def _reset(self, key: str, position: ExtendedSequenceNumber) -> None:
        """A person moved a checkpoint: a new epoch, in which all that comes after it is due."""
        if self._court.actor not in {OPERATOR, worker_of(self._court.rows.get(key))}:
            self._court.convict("S2", f"{self._court.actor} reset {key}")
        truth = self._court.stream.find(key)
        if truth is None:
            return
        log = self._court.log(truth.shard_id)
        log.ended = position.is_shard_end  # else its children wait for it again
        log.begin_at(truth.covered(position))

    def _check_loss(self, key: str, what: str) -> None:
        lost, now = self._court.lost, self._court.now()
        if lost and now - self._court.lost_s > LATE_S[lost]:
            self._court.convict(
                "S9", f"{self._court.actor} {what} {key} after the {lost} was deleted"
            )
        since_s = self._court.stream.deleted_s(key)
        if since_s is not None and now - since_s > LATE_S["stream"]:
            self._court.convict(
                "S9", f"{self._court.actor} {what} {key} after its stream was deleted"
            )

    def _deleted(self, key: str, item: Item) -> None:
        may_delete = self._deletes_former or self._court.actor == OPERATOR
        if self._court.stream.deleted_s(key) is not None and may_delete:
            return
        self._check_loss(key, "deleted")
        shard = self._court.stream.shards.get(key)
        if self._court.actor in self._court.foreigners:
            # And who has no row does not hold up its children.
            self._took_away(key, item)
            self._court.log(key).dropped_from.add(worker_of(item))
            return
        if shard is None:
            return
        if not position_of(item).is_shard_end:
            self._court.convict("S1", f"{self._court.actor} deleted the unfinished {key}")
        for child in shard.children:
            if (
                child not in self._court.rows
                and not self._court.log(child).ended
                and not self._is_raided(child)
            ):
                self._court.convict(
                    "S3", f"{self._court.actor} deleted {key} before {child} had a lease"
                )

    def table_deleted(self) -> None:
        """All rows are gone at once, and another table of that name may be there already."""
        for key, item in self._court.rows.items():
            self._took_away(key, item)

    def _took_away(self, key: str, item: Item) -> None:
        """A row is gone by no worker's doing; its owner cannot know at once."""
        now = self._court.now()
        deadline_s = now + self._court.failover_s * 1.01
        self._court.handovers[key] = Handover(now, worker_of(item), deadline_s)

    def _is_raided(self, key: str) -> bool:
        """Whether an operator has just deleted a row that a worker may have seen before."""
        handover = self._court.handovers.get(key)
        was_dropped = handover is not None and self._court.log(key).row_dropped
        return was_dropped and self._court.now() - handover.at_s < self._court.failover_s
