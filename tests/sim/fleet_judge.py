"""The judge of a 3.x fleet: who leads, and what leaders do to the leases of others (S10, S11, L7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.rows import position_of, text_of, worker_of

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import Write
    from tests.sim.court import Court
    from tests.sim.rows import Item

#: Two clocks may differ in speed by one percent each.
TOLERANCE = 0.975
#: How long an old owner may take, as all configurations here have it.
HAND_OFF_S = 30.0
#: A request that was sent by a leader may have its effect so much later while faults are off.
ON_ITS_WAY_S = 3.0
#: So long after a flip workers may not know it yet, and take leases as they did.
SETTLE_S = 120.0
_FLEET_KEYS = {"Leader", "Migration3.0", "TableMigration3.5"}


class FleetJudge:
    """Watches the items beside the leases, and every change of a lease's owners.

    Args:
        court: where it sits.
        is_on: False = in this fleet nobody leads by a lock.
    """

    def __init__(self, court: Court, *, is_on: bool) -> None:
        self.is_on = is_on
        self._since_s = float("-inf")
        self._court = court
        #: Who has the lock.
        self.leader: str | None = None
        self._former: str | None = None
        self._changed_s = float("-inf")
        self._version: str | None = None
        self._beaten_s = float("-inf")
        #: Lease key -> the two owners of its hand-off, and since when.
        self._hand_offs: dict[str, tuple[str | None, str | None, float]] = {}

    def begin(self) -> None:
        """From now on a leader assigns."""
        if not self.is_on:
            self.is_on, self._since_s = True, self._court.now()

    def wrote_item(self, key: str, write: Write) -> None:
        """An item that is no lease was written, to any table of the fleet."""
        actor = self._court.actor
        if key == "Leader":
            self._wrote_lock(write)
        elif actor in self._court.foreigners or key in _FLEET_KEYS or key == actor:
            pass
        elif write.after is not None or not self._may_lead(actor):
            self._court.convict("S5", f"{actor} wrote {key}, which is no item of its own")

    def _wrote_lock(self, write: Write) -> None:
        court, now = self._court, self._court.now()
        before, after = text_of(write.before, "ownerName"), text_of(write.after, "ownerName")
        if write.before is not None and after != before:
            waited_s = now - self._beaten_s
            lasts_s = int(text_of(write.before, "leaseDuration") or 0) / 1000
            if after is not None and waited_s < lasts_s * TOLERANCE:
                court.convict("S10", f"{after} took the lock of {before} after {waited_s:.3f} s")
            if after is None and court.actor != before:
                court.convict("S10", f"{court.actor} deleted the lock of {before}")
        if after != self.leader:
            court.trace.add(court.actor, f"LOCK of {after or 'nobody'}")
            court.counts["leader"] += after is not None
            self._former, self.leader, self._changed_s = self.leader, after, now
        self._beaten_s = now

    def _may_lead(self, worker: str) -> bool:
        if worker in {self.leader, *self._court.foreigners} or not self._court.calm:
            return True
        was = worker == self._former
        return was and self._court.now() - self._changed_s <= ON_ITS_WAY_S

    def is_hand_off_start(self, before: Item, after: Item) -> bool:
        """Whether a write that changes the owner may leave the counter alone."""
        return (
            self.is_on
            and text_of(before, "checkpointOwner") is None
            and text_of(after, "checkpointOwner") == text_of(before, "leaseOwner") is not None
        )

    def changed(self, key: str, before: Item | None, after: Item) -> None:
        """A lease was written, by whomever."""
        pair = text_of(after, "checkpointOwner"), text_of(after, "leaseOwner")
        known = self._hand_offs.get(key)
        if pair[0] is None:
            self._hand_offs.pop(key, None)
        elif known is None or known[:2] != pair:
            self._hand_offs[key] = (*pair, self._court.now())
            self._court.counts["hand-off"] += 1
            if before is not None and self._court.actor != worker_of(before):
                self._check_leads(f"began to hand {key} over")

    def _check_leads(self, what: str) -> None:
        actor = self._court.actor
        if not self._may_lead(actor):
            text = f"{actor} {what} and does not lead: {self.leader} does"
            self._court.convict("S10", text)

    def gave(self, key: str, before: Item, new: str | None, silent_s: float) -> None:
        """A worker of ours gave a lease to another, or to itself, and was not its owner."""
        if new == self._court.actor and self._court.now() - self._since_s < SETTLE_S:
            return
        self._check_leads(f"assigned {key}")
        old, hand_off = worker_of(before), self._hand_offs.get(key)
        is_overdue = hand_off is not None and (
            self._court.now() - hand_off[2] > (HAND_OFF_S + self._court.failover_s) * TOLERANCE
        )
        is_unread = (
            old is None
            or position_of(before).is_shard_end
            or silent_s > self._court.failover_s * TOLERANCE
        )
        if not is_overdue and not is_unread:
            self._court.convict(
                "S11",
                f"{self._court.actor} took {key} from {old}, which renewed it {silent_s:.3f} s ago",
            )

    def under_way(self) -> str:
        """The hand-offs that have not ended, for people; "" = none."""
        keys = sorted(self._pending())
        return f"hand-offs under way: {keys}" if keys else ""

    def check_hand_offs(self, bound_s: float) -> None:
        """L7, with the faults off: a hand-off ends, whatever became of both sides."""
        for key, (old, new, since_s) in self._pending().items():
            if self._court.now() - since_s > bound_s:
                self._court.convict(
                    "L7", f"{key} has been on its way from {old} to {new} for {bound_s:.0f} s"
                )

    def _pending(self) -> dict[str, tuple[str | None, str | None, float]]:
        """Hand-offs of rows that somebody reads: where the stream is gone, nobody goes on."""
        return {
            key: hand_off
            for key, hand_off in self._hand_offs.items()
            if key in self._court.rows and self._court.stream.deleted_s(key) is None
        }
