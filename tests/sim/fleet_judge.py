"""The judge of a 3.x fleet: who leads, and what leaders do to the leases of others (S10 to S15, L7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.config.reserved_keys import FAILED_LIFE
from kcl_mld.fleet.model.worker_life import SILENT
from tests.sim.node import TABLE
from tests.sim.rows import position_of, taken_away, text_of, worker_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
SETTLE_S = 200.0
#: Whoever has not reported for two periods of 30 s is not alive; a look and a slow write come on top.
SILENT_S = 60.0 + 15.0
#: A fleet of which this is said takes its leases; None = nothing is said.
_TAKES = {None, "CLIENT_VERSION_UPGRADE_FROM_2X", "CLIENT_VERSION_2X"}
_COMPLETE = "TABLE_MIGRATION_STATUS_COMPLETE"
_FLEET_KEYS = {"Leader", "Migration3.0", "TableMigration3.5"}


class FleetJudge:
    """Watches the items beside the leases, and every change of a lease's owners.

    Args:
        court: where it sits.
        is_on: False = in this fleet nobody leads by a lock.
    """

    def __init__(self, court: Court, *, is_on: bool) -> None:
        self.is_on = is_on
        self._court = court
        #: Until then workers may not know what the fleet is now.
        self._settled_s = float("-inf")
        #: Of the last steps from three tables to one.
        self._left_s = float("inf")
        #: (table, key) of all items that are no leases.
        self._items: dict[tuple[str, str], Item] = {}
        #: Who has the lock.
        self.leader: str | None = None
        self._former: str | None = None
        self._changed_s = float("-inf")
        self._version: str | None = "CLIENT_VERSION_3X" if is_on else None
        self._beaten_s: dict[str, float] = {}
        #: Worker -> when it wrote its metrics last.
        self._reported_s: dict[str, float] = {}
        #: Workers whose expired leases a leader of ours gave away, and that have not reported since,
        #: and when it did.
        self._dead: dict[str, float] = {}
        #: Lease key -> the two owners of its hand-off, and since when.
        self._hand_offs: dict[str, tuple[str | None, str | None, float]] = {}

    def begin(self) -> None:
        """From now on a leader assigns."""
        if not self.is_on:
            self.is_on, self._version = True, "CLIENT_VERSION_3X"
            self._settled_s = self._court.now() + SETTLE_S

    @property
    def is_assigned(self) -> bool:
        """A leader assigns the leases, by what the fleet's item says."""
        return self.is_on and self._version not in _TAKES

    @property
    def is_settling(self) -> bool:
        """What the fleet's item says may be news to workers."""
        return self.is_on and self._court.now() < self._settled_s

    def lost(self, table: str) -> None:
        """A table of the fleet was deleted, with what it said."""
        self._settled_s = float("inf")
        self._items = {place: item for place, item in self._items.items() if place[0] != table}

    def restored(self) -> None:
        """It is there again."""
        self._settled_s = self._court.now() + SETTLE_S

    def tick(self, leaders: Sequence[str]) -> None:
        """S10: who believes to have the lock, at this very moment.

        A lock that was deleted with its table is taken in the next one while its owner believes.
        """
        if len(leaders) > 1 and self._court.lost != "table":
            self._court.convict("S10", f"{' and '.join(leaders)} lead at the same time")

    def sent(self, worker: str, table: str, *, is_starting: bool) -> None:
        """S13: a request leaves a worker; one that starts can't know that a table was left."""
        is_late = self._court.now() > self._left_s + SETTLE_S
        if is_late and table != TABLE and table.startswith(TABLE) and not is_starting:
            self._court.convict("S13", f"{worker} still asks {table}, which was left")

    def check_attributes(self, key: str, before: Item, after: Item) -> None:
        """S14: what others have noted stays."""
        if self._court.actor not in self._court.foreigners and (names := taken_away(before, after)):
            self._court.convict("S14", f"{self._court.actor} removed {names} of {key}")

    def _keep(self, key: str, write: Write) -> None:
        """S14: what is moved is moved as it is."""
        place, actor = (write.table, key), self._court.actor
        if write.after is not None:
            self._items[place] = write.after
            if write.before is not None and key != "Leader":
                self.check_attributes(key, write.before, write.after)
            return
        gone = self._items.pop(place, {})
        if write.table == TABLE or actor in self._court.foreigners or key in {"Leader", actor}:
            return
        if "lut" in gone or "tm" in gone:
            return
        new = self._items.get((TABLE, key), {})
        lost = sorted(name for name in gone if name != "key" and new.get(name) != gone[name])
        if lost:
            self._court.convict("S14", f"{actor} moved {key} without {lost}")

    def wrote_item(self, key: str, write: Write) -> None:
        """An item that is no lease was written, to any table of the fleet."""
        actor = self._court.actor
        self._keep(key, write)
        if key == actor and text_of(write.after, "lut") is not None:
            self._reported_s[key] = self._court.now()
            self._dead.pop(key, None)
        if key == "Migration3.0" and write.after is not None:
            self._says(text_of(write.after, "cv"))
        if text_of(write.after, "tm") == _COMPLETE:
            self._left_s = min(self._left_s, self._court.now())
        is_rolled_back = self._version == "CLIENT_VERSION_2X" and not self.is_settling
        if is_rolled_back and write.after is not None and actor not in self._court.foreigners:
            self._court.convict("S12", f"{actor} wrote {key}, and the fleet was rolled back")
        if key == "Leader":
            self._wrote_lock(write)
        elif key.startswith(FAILED_LIFE):
            self._wrote_failed_life(key, write)
        elif actor in self._court.foreigners or key in _FLEET_KEYS or key == actor:
            pass
        elif (write.after is not None and not self._moves(key)) or not self._may_lead(actor):
            self._court.convict("S5", f"{actor} wrote {key}, which is no item of its own")

    def _wrote_failed_life(self, key: str, write: Write) -> None:
        """A worker notes the end of a process under its own id, once.

        Leaders note that of one that stopped renewing, and delete such items.
        """
        actor = self._court.actor
        if write.after is None:
            may = self._may_lead(actor)
        else:
            texts = write.after["properties"]["M"]
            is_seen = text_of(texts, "kclMldWhy") == SILENT and self._may_lead(actor)
            is_own = text_of(texts, "kclMldWorker") == actor
            may = write.before is None and (is_own or is_seen)
        if not may:
            self._court.convict("S5", f"{actor} wrote {key}, which is not its own")
        if write.after is not None and not self.is_assigned and not self.is_settling:
            self._court.convict("S12", f"{actor} wrote {key} in a fleet whose leases are taken")

    def _moves(self, key: str) -> bool:
        """Whether an item is one of the old coordinator table, which a leader may move."""
        return any(table != TABLE and name == key for table, name in self._items)

    def _wrote_lock(self, write: Write) -> None:
        court, now = self._court, self._court.now()
        before, after = text_of(write.before, "ownerName"), text_of(write.after, "ownerName")
        if court.actor == "operator":
            self.leader = after
            return
        if not self.is_assigned and not self.is_settling and after not in {None, *court.foreigners}:
            court.convict("S12", f"{after} has the lock of a fleet whose leases are taken")
        if write.before is not None and after != before:
            waited_s = now - self._beaten_s.get(write.table, float("-inf"))
            lasts_s = int(text_of(write.before, "leaseDuration") or 0) / 1000
            if after is not None and waited_s < lasts_s * TOLERANCE:
                court.convict("S10", f"{after} took the lock of {before} after {waited_s:.3f} s")
            if after is None and court.actor != before:
                court.convict("S10", f"{court.actor} deleted the lock of {before}")
        if after != self.leader:
            court.trace.add(court.actor, f"LOCK of {after or 'nobody'}")
            court.counts["leader"] += after is not None
            self._former, self.leader, self._changed_s = self.leader, after, now
        version = text_of(write.after, "recordVersionNumber")
        if version != text_of(
            write.before, "recordVersionNumber"
        ):  # else a worker calls the leader
            self._beaten_s[write.table] = now

    def _says(self, version: str | None) -> None:
        if version != self._version:
            self._version, self._settled_s = version, self._court.now() + SETTLE_S

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
                self._check_lives(key, pair[1])

    def _check_leads(self, what: str) -> None:
        actor = self._court.actor
        if not self._may_lead(actor):
            text = f"{actor} {what} and does not lead: {self.leader} does"
            self._court.convict("S10", text)

    def gave(self, key: str, before: Item, new: str | None, silent_s: float) -> None:
        """A worker of ours gave a lease to another, or to itself, and was not its owner."""
        if new == self._court.actor and self.is_settling:
            return
        self._check_leads(f"assigned {key}")
        self._check_lives(key, new)
        self._bury(before, silent_s)
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

    def _bury(self, before: Item, silent_s: float) -> None:
        """Its lease expired, and a leader of ours has seen that."""
        old, expired_s = worker_of(before), self._court.now() - silent_s + self._court.failover_s
        if (
            old not in {None, self._court.actor}
            and silent_s > self._court.failover_s
            and not position_of(before).is_shard_end
            and self._reported_s.get(old, float("-inf")) <= expired_s
        ):
            self._dead.setdefault(str(old), self._court.now())

    def all_ended(self) -> None:
        """No worker is left that has seen another one die."""
        self._dead.clear()

    def _check_lives(self, key: str, new: str | None) -> None:
        """S15: leaders of ours give no lease to the dead; who leads knows of itself that it lives."""
        court = self._court
        if court.actor != self.leader or court.actor in court.foreigners or self.is_settling:
            return
        if new is None or new == court.actor:
            return
        reported_s = self._reported_s.get(new, court.now())
        # What was reported while the leader was cut off, it saw when it was back.
        began_s, ended_s = court.cut_off_s.get(court.actor, (0.0, 0.0))
        silent_s = court.now() - (ended_s if began_s <= reported_s <= ended_s else reported_s)
        # Who began later can't know: both leaders that saw it may be gone before they delete its item.
        if self._dead.get(new, float("-inf")) >= court.began_s.get(court.actor, 0.0):
            court.convict("S15", f"{court.actor} gave {key} to {new}, which it had seen dead")
        elif silent_s > SILENT_S + court.clock_skew_s:
            text = f"{court.actor} gave {key} to {new}, which reported {silent_s:.0f} s ago"
            court.convict("S15", text)

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
