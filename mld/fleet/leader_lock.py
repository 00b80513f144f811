"""One worker's part in the leader lock of a 3.x fleet.

It leads while it has the lock, else it follows.

Whether this worker leads is answered from memory. :meth:`LeaderLock.run`, which the fleet's mode
starts and ends, sends heartbeats and reads the lock. If the owner was suspended or could not reach
the table, the lock stops counting as held before others may take it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kcl_mld.config.reserved_keys import LEADER_KEY
from kcl_mld.errors import AwsError, MalformedData, UnservableFleet
from kcl_mld.fleet.model.lock_item import (
    LockItem,
    lock_from_item,
)
from kcl_mld.fleet.rules.leader_lock import (
    REST_S,
    LockEvent,
    LockMove,
    Phase,
    believed_until,
    follow,
    follow_pause_s,
    is_suspect,
    look_pause_s,
    next_phase,
    sight,
)
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.leases.rules.discovery import Informed
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kcl_mld.fleet.lock_store import LockStore
    from kcl_mld.fleet.model.table_layout import Place
    from kcl_mld.fleet.rules.leader_lock import LockSighting, LockTiming
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.fleet")

#: Pauses between tries of a heartbeat that failed.
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 1.0
#: In heartbeat periods: a scan made for another purpose that is no older replaces a read of the
#: lock.
RECENT = 1.5
#: A live leader renews its lock more often, Java's workers every 30 s.
SILENT_S = 150.0
#: At the end, the lock is released within this many seconds, or left to expire.
RELEASE_LIMIT_S = 2.0


class LeaderLock:
    """One worker's way to the lock of its fleet.

    Args:
        place: where the lock is now; it moves at the end of a table migration, and who led at
            the old place leads no more.
        timing: of the lock if it is ours; followers read as often as a leader would write.
        runtime: the clock by which belief ends, chance that spreads looks, fresh versions.
        on_gain: called each time that this worker begins to lead, with the id of the worker
            whose lock expired, if there was one.
        on_loss: called when its own lock expired or another worker has it.
        confirm_place: has ``place`` say where the lock is at this very time; asked before it
            is taken, lest two workers lead at two places.
        scanned: the last scan of the table in which the lock is, if there is one: who looks at
            the leases anyway sees the lock, too. It is read by itself before it is taken.
        may_lead: False = this process does not seek the lock, and gives it up.
        on_call: called while leading when another worker wants the leader to read the table.
        on_news: called while following when the leader has assigned leases, or a worker has called,
            and when this worker begins or ceases to lead.
    """

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        store: LockStore,
        place: Callable[[], Place],
        worker_id: str,
        timing: LockTiming,
        runtime: Runtime,
        *,
        on_gain: Callable[[str | None], None],
        on_loss: Callable[[], None],
        confirm_place: Callable[[], Awaitable[None]],
        scanned: Callable[[], TableScan | None],
        may_lead: Callable[[], bool],
        on_call: Callable[[], None],
        on_news: Callable[[], None],
        conditions: Conditions,
    ) -> None:
        self._store = store
        self._place = place
        self._worker_id = worker_id
        self._duration_s = timing.duration_s
        self._heartbeat_s = timing.heartbeat_s
        #: Seconds between two reads of a follower whose leader shows when it has assigned leases.
        self.follow_s = follow_pause_s(timing.heartbeat_s, timing.failover_s)
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._ids = runtime.ids
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._confirm_place = confirm_place
        self._scanned = scanned
        self._may_lead = may_lead
        self._on_call = on_call
        self._on_news = on_news
        self._woken = Wakeup()
        self._is_calling = False
        #: As leader: changes with each assignment.
        self._assigned = ""
        self._called: str | None = None
        #: As follower: owner of the lock, its last assignment, as far as it says so, and the last call.
        self._news: tuple[str, str, str | None] | None = None
        self._is_suspect = False
        #: Woken when a read shows that the leader did not renew its lock when it was due.
        self.suspected = Wakeup()
        #: When the lock was last seen.
        self._looked_at = runtime.clock.monotonic()
        self._phase = Phase.FOLLOWS
        self._sighting: LockSighting | None = None
        self._held: LockItem | None = None
        self._held_at: Place | None = None
        self._valid_until = 0.0
        #: Versions that this worker may have written and not replaced since.
        self._own: set[str] = set()
        self._is_first_look = True
        self._rests_until = 0.0
        self._failures = 0
        self._failing = FailingCondition(Reason.LOCK_FAILS, conditions, runtime.clock)
        self._writing = FailingCondition(Reason.LOCK_FAILS, conditions, runtime.clock, "writing")
        self._is_writing = False
        self._silence = FailingCondition(Reason.LOCK_FAILS, conditions, runtime.clock, "silence")
        self._turn = asyncio.Lock()

    @property
    def phase(self) -> Phase:
        """The state of this worker's lock; a leader's lock may have expired already."""
        return self._phase

    async def is_leader(self) -> bool:
        """Whether this worker has the lock, by its own clock; makes no request.

        Cheap enough to check before a write. Two workers may nevertheless get True for a moment, so
        all work of a leader is conditional, or may be done twice.
        """
        return (
            self._phase is Phase.LEADS
            and self._may_lead()
            and self._held_at == self._place()
            and self._clock.monotonic() < self._valid_until
        )

    @property
    def informed(self) -> Informed:
        """Whether this worker knows otherwise than by looking at the leases what is assigned to it."""
        if self._phase is Phase.LEADS:
            return Informed.LEADS
        return Informed.NO if self._news is None else Informed.ANNOUNCED

    @property
    def is_suspect(self) -> bool:
        """The last read showed that the leader did not renew its lock when it was due."""
        return self._phase is Phase.FOLLOWS and self._is_suspect

    def call_leader(self) -> None:
        """Make the leader read the table soon, whichever worker it is; failures are not reported."""
        self._is_calling = True
        self._woken.wake()

    async def call(self) -> None:
        """Make all workers read the table soon, also when this one no longer follows or leads."""
        try:
            await self._store.call(self._place(), self._ids.new_id())
        except AwsError as error:
            log.debug(
                "Could not call the other workers, which read the table at their next interval: %s",
                error,
            )

    def announce(self) -> None:
        """This worker, as the leader, has assigned leases: followers see it at their next read."""
        self._assigned = self._ids.new_id()
        self._woken.wake()

    async def release(self) -> None:
        """Release the lock and pause; others find it free at their next read."""
        before = self._phase
        self._happened(LockEvent.GIVEN_UP)
        self._rests_until = self._clock.monotonic() + REST_S
        if before is Phase.LEADS:
            log.warning("This worker gives up leading the fleet for %.0f s", REST_S)
            async with self._turn:
                await self._delete()

    @asynccontextmanager
    async def standing_aside(self) -> AsyncIterator[None]:
        """Don't lead or send heartbeats inside; afterwards, read the lock and its place."""
        async with self._turn:
            self._valid_until = self._clock.monotonic()
            yield

    async def run(self) -> None:
        """Read the lock or send heartbeats until cancelled; then release it."""
        try:
            while True:
                async with self._turn:
                    if (
                        self._is_calling
                        and self._phase is Phase.FOLLOWS
                        and not self._is_first_look
                    ):
                        self._is_calling = False
                        await self.call()
                    pause_s = await self._step()
                await self._woken.wait(pause_s)
        finally:
            self._phase, self._is_first_look = Phase.FOLLOWS, True
            self._news = None
            self._failing.forget()
            self._writing.forget()
            self._silence.forget()
            await self._delete()

    async def _step(self) -> float:
        """One read or heartbeat; returns the seconds until the next one."""
        now = self._clock.monotonic()
        self._is_writing = False
        if not self._may_lead():
            if self._phase is Phase.LEADS:
                self._happened(LockEvent.GIVEN_UP)
                await self._delete()
            return self._heartbeat_s
        try:
            if self._phase is Phase.RESTS:
                if now < self._rests_until:
                    return self._rests_until - now
                self._happened(LockEvent.RESTED)
            pause_s = await (self._beat(now) if self._phase is Phase.LEADS else self._look())
        except (AwsError, MalformedData, UnservableFleet) as error:
            text = "The leader lock in table %s could not be read or written. While that is so for "
            text += "all workers, no lease gets a new owner"
            failing = self._writing if self._is_writing else self._failing
            failing.failed(text % self._place().table, error)
            self._failures += 1
            first_s, cap_s = RETRY_FIRST_S, RETRY_CAP_S
            return backoff_s(self._failures - 1, self._rng, first_s=first_s, cap_s=cap_s)
        self._failures = 0
        self._failing.resolved()
        return pause_s

    def _is_seen_held(self) -> bool:
        """Whether a scan that was made anyway shows that there is nothing to do."""
        scan, now = self._scanned(), self._clock.monotonic()
        if self._is_first_look or scan is None:
            return False
        item = scan.foreign.get(LEADER_KEY)
        if item is None or now - scan.finished_at > self._every_s * RECENT:
            return False
        lock = lock_from_item(item)
        if scan.started_at >= self._looked_at:
            self._looked_at = scan.finished_at
            self._sighted(lock, scan.finished_at)
        return follow(lock, self._sighting, now, self._own) is LockMove.WAIT

    async def _look(self) -> float:
        if self._is_seen_held():
            return self._follow_on() / 2  # costs nothing, and the next scan may be made soon
        place = self._place()
        is_first = self._is_first_look
        lock, move = await self._read(place, consistent=is_first)
        if move is not LockMove.WAIT and not is_first:
            lock, move = await self._read(place, consistent=True)
        if move is LockMove.WAIT:
            if lock is not None and lock.owner != self._worker_id:
                self._writing.resolved()  # a lock of our own that expires proves nothing
            self._notice_silence(place, lock)
            return self._follow_on()
        self._silence.resolved()
        await self._confirm_place()
        if self._place() != place:
            return 0.0
        # Noted before the result is known: if this is cancelled in between, the end deletes it.
        mine = self._held = self._fresh()
        self._held_at = place
        asked_at = self._clock.monotonic()
        self._is_writing = True
        if not await self._store.acquire(place, lock, mine):
            self._held = None
            self._own.discard(mine.record_version)
            return self._follow_on()
        if self._phase is not Phase.FOLLOWS:  # given up meanwhile
            await self._delete()
            return 0.0
        self._renewed(mine, asked_at)
        self._happened(LockEvent.GRANTED)
        log.info("This worker leads the fleet now: it assigns the leases and syncs the shards")
        self._on_gain(self._expired_owner(lock))
        return self._heartbeat_s

    @property
    def _every_s(self) -> float:
        """Seconds between two reads of a follower."""
        return self._heartbeat_s if self._news is None else self.follow_s

    async def _read(self, place: Place, *, consistent: bool) -> tuple[LockItem | None, LockMove]:
        """Look at the lock; one that is older than the last has this worker wait longer, no more."""
        lock = await self._store.read(place, consistent=consistent)
        now = self._looked_at = self._clock.monotonic()
        if self._is_first_look and lock is not None and lock.owner == self._worker_id:
            self._own.add(lock.record_version)  # of an earlier process with our id, as with leases
        self._is_first_look = False
        self._sighted(lock, now)
        return lock, follow(lock, self._sighting, now, self._own)

    def _sighted(self, lock: LockItem | None, now: float) -> None:
        """Record the result of a read as follower."""
        self._sighting = sight(self._sighting, lock, now)
        before, self._news = self._news, None
        if lock is not None and lock.assigned is not None and lock.owner != self._worker_id:
            self._news = (lock.owner, lock.assigned, lock.called)
        if before != self._news:
            self._on_news()
        self._is_suspect = self._news is not None and is_suspect(
            self._sighting, now, self._heartbeat_s
        )
        if self._is_suspect:
            self.suspected.wake()

    def _expired_owner(self, lock: LockItem | None) -> str | None:
        """The owner of a lock that was taken because it had expired."""
        if lock is None or lock.is_released or lock.owner == self._worker_id:
            return None
        return lock.owner

    def _notice_silence(self, place: Place, lock: LockItem | None) -> None:
        """Log if a lock that is valid for hours is not renewed: its owner may be dead."""
        sighting = self._sighting
        assert lock is not None, "nobody waits for a lock that is not there"
        assert sighting is not None, "nor for one that was not seen"
        if self._clock.monotonic() - sighting.since < SILENT_S:
            self._silence.resolved()
            return
        self._silence.failed(
            f"Worker {lock.owner} has the leader lock for {lock.duration_s:.0f} s at a time and has "
            "not renewed it for minutes: meanwhile no lease gets a new owner. If that worker is "
            f"dead, delete the item {LEADER_KEY} of table {place.table}"
        )

    def _follow_on(self) -> float:
        """Seconds until the next read, a little less than due so that workers spread out."""
        if self._phase is Phase.FOLLOWS:
            self._happened(LockEvent.REFUSED)
        every_s = self._every_s * (1 - self._rng.random() / 10)
        return look_pause_s(self._sighting, self._clock.monotonic(), every_s)

    async def _beat(self, now: float) -> float:
        assert self._held is not None, "a leader has a lock"
        assert self._held_at is not None, "and knows where"
        if self._held_at != self._place():
            log.info("The leader lock is now in table %s", self._place().table)
            self._happened(LockEvent.OVERTAKEN)
            await self._delete()
            return 0.0
        if now >= self._valid_until:
            log.warning(
                "This worker no longer leads the fleet: its lock was not renewed in time or is moving"
            )
            self._happened(LockEvent.OUTDATED)
            self._held = None
            self._on_loss()
            return 0.0
        mine = self._fresh()
        self._is_writing = True
        stored = await self._store.heartbeat(self._held_at, self._held, mine)
        if stored is None or stored.record_version not in self._own:
            self._held = None
            if self._phase is Phase.LEADS:
                owner = "nobody" if stored is None else f"worker {stored.owner}"
                log.warning("This worker no longer leads the fleet: %s has the lock", owner)
                self._happened(LockEvent.OVERTAKEN)
                self._on_loss()
            return 0.0
        self._held = stored
        if self._called != stored.called:
            self._called = stored.called
            self._on_call()
        if stored.record_version != mine.record_version:
            return 0.0  # an earlier heartbeat without an answer was stored: write on top of it
        self._renewed(mine, now)
        self._writing.resolved()  # taking it is not enough: it may be lost after each time
        if self._phase is Phase.LEADS:
            self._happened(LockEvent.RENEWED)
        return max(0.0, now + self._heartbeat_s - self._clock.monotonic())

    def _fresh(self) -> LockItem:
        version = self._ids.new_id()
        self._assigned = self._assigned or version
        mine = LockItem(self._worker_id, self._duration_s, version, assigned=self._assigned)
        self._own.add(mine.record_version)
        return mine

    def _renewed(self, mine: LockItem, requested_at: float) -> None:
        self._own = {mine.record_version}
        self._valid_until = believed_until(requested_at, self._duration_s)

    def _happened(self, event: LockEvent) -> None:
        before, self._phase = self._phase, next_phase(self._phase, event)
        if Phase.LEADS in (before, self._phase) and before is not self._phase:
            self._on_news()

    async def _delete(self) -> None:
        """Release the lock at once, if the table responds in time."""
        held, place, self._held = self._held, self._held_at, None
        if held is None or place is None:
            return
        try:
            # Not asyncio.timeout: before Python 3.11.3 it raises nothing in a task that was cancelled.
            await asyncio.wait_for(self._store.delete(place, held), RELEASE_LIMIT_S)
        except (AwsError, TimeoutError) as error:
            why = str(error) or f"no answer within {RELEASE_LIMIT_S:g} s"
            log.warning("Could not delete the leader lock; it will expire: %s", why)
