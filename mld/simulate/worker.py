"""A worker of the simulated fleet: what all kinds have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mld.simulate.events import Events
    from mld.simulate.lock import Lock
    from mld.simulate.profile import Profile
    from mld.simulate.reading import Reading, Readings
    from mld.simulate.scenario import Scenario
    from mld.simulate.table import Table


@dataclass(slots=True, eq=False)
class Hold:
    """One hold of one lease.

    Attributes:
        key: of the lease.
        since: when it began.
        reading: its child, once that gets records.
        is_handed_over: its child is finishing, so that another worker may go on.
    """

    key: str
    since: float
    reading: Reading | None = None
    is_handed_over: bool = False


class WorkerFleet(Protocol):
    """What a worker shares with the others; :class:`mld.simulate.fleet.SimulatedFleet` has it."""

    scenario: Scenario
    profile: Profile
    rng: random.Random
    events: Events
    table: Table
    lock: Lock
    readings: Readings
    workers: dict[str, SimulatedWorker]

    def find(self, worker_id: str | None) -> SimulatedWorker | None:
        """A worker that lives, by its id."""

    def begin_reading(self, key: str, worker: SimulatedWorker) -> Reading:
        """A child gets its first record."""

    def end_reading(self, key: str, reading: Reading, *, checkpoints: bool) -> None:
        """A child ends."""

    def count_hold(self, hold: Hold) -> None:
        """Put a hold's renewals on the bill."""

    def note(self, event: str) -> None:
        """Add a line to the timeline."""


class SimulatedWorker:
    """Holds leases, renews them by rate, reads their shards, and ends in one of two ways.

    Attributes:
        id: begins with the name of its group and ``-``.
        group: name.
        started_at: when its process started.
        ended_at: when it was gone; infinity = it lives.
        is_leaving: it was told to stop and reads on until others go on.
        held: by lease key.
    """

    def __init__(self, fleet: WorkerFleet, worker_id: str, group: str) -> None:
        """A process that starts now."""
        self.fleet = fleet
        self.id = worker_id
        self.group = group
        self.started_at = fleet.events.now
        self.ended_at = math.inf
        self.is_leaving = False
        self.held: dict[str, Hold] = {}
        self.fleet.events.at(self.started_at + fleet.profile.starting_s, self.guarded(self.start))

    def start(self) -> None:
        """Begin to work; the process has loaded."""
        raise NotImplementedError

    def count(self, until_s: float) -> None:
        """Put on the bill what it asked for by rate, besides renewals and checkpoints."""
        raise NotImplementedError

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """An action that is not done when this worker is gone by then."""

        def act() -> None:
            if self.is_alive:
                action()

        return act

    def later(self, pause_s: float, action: Callable[[], None]) -> None:
        """Do something after a pause, if this worker lives then."""
        self.fleet.events.at(self.fleet.events.now + pause_s, self.guarded(action))

    @property
    def is_alive(self) -> bool:
        """It has neither stopped nor died."""
        return self.ended_at == math.inf

    def hold(self, key: str) -> None:
        """Hold a lease that the table says is ours: renew it, and open its shard."""
        now, profile = self.fleet.events.now, self.fleet.profile
        every_s = self.fleet.scenario.checkpoint_every_s
        first_at = profile.first_beat_at(key, self.started_at, now)
        self.fleet.table.rows[key].renew_from(first_at, profile.beat_s(key, every_s))
        hold = self.held[key] = Hold(key, now)
        self.later(profile.opening_s, lambda: self._open(hold))

    def lose(self, key: str, noticed_at: float) -> None:
        """Somebody else took a lease; this worker notices when a write is refused."""
        now, hold = self.fleet.events.now, self.held.get(key)
        if hold is None:
            return
        if hold.reading is not None:
            hold.reading.fenced_at = now
            checkpoint_at = self.fleet.readings.next_checkpoint_at(hold.reading, now)
            noticed_at = min(noticed_at, checkpoint_at)
        noticed_at = min(noticed_at, now + self.fleet.profile.failover_s)
        self.fleet.events.at(noticed_at, self.guarded(lambda: self._drop(hold)))

    def die(self) -> None:
        """Be gone without a word."""
        self._end(checkpoints=False)

    def leave(self) -> None:
        """Stop as this kind of worker does when it is told to."""
        rows = [self.fleet.table.rows[key] for key in self.held]
        self._end(checkpoints=self.fleet.profile.releases)
        if self.fleet.profile.releases:
            for row in rows:
                if row.actual_owner == self.id:
                    self.fleet.table.release(row.key, self.fleet.events.now)

    def _open(self, hold: Hold) -> None:
        if self.held.get(hold.key) is hold:
            hold.reading = self.fleet.begin_reading(hold.key, self)

    def _drop(self, hold: Hold) -> None:
        """A write was refused: hold it no more, and end its child soon."""
        if self.held.get(hold.key) is not hold:
            return
        del self.held[hold.key]
        self.fleet.count_hold(hold)
        if hold.reading is not None:
            ending_at = self.fleet.events.now + self.fleet.profile.notice_s
            self.fleet.events.at(ending_at, lambda: self.close(hold, checkpoints=False))

    def close(self, hold: Hold, *, checkpoints: bool) -> None:
        """End the child of a hold."""
        if hold.reading is not None:
            self.fleet.end_reading(hold.key, hold.reading, checkpoints=checkpoints)
            hold.reading = None

    def _end(self, *, checkpoints: bool) -> None:
        now = self.ended_at = self.fleet.events.now
        for hold in self.held.values():
            row = self.fleet.table.rows[hold.key]
            if row.actual_owner == self.id:
                row.fall_silent(now)
            self.close(hold, checkpoints=checkpoints)
            self.fleet.count_hold(hold)
        self.held.clear()
