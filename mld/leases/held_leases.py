"""The leases that count as held by this worker, under which tokens, and until when.

This module does no I/O. Every writer to a lease holds the lease's lock during the write, the taker
included. Code that holds the lock may therefore see a holding end, but not change.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.leases.model.lease import HeldLease
from kcl_mld.leases.rules.deleted_row import told_deleted
from kcl_mld.leases.rules.renewal import (
    PRESSING_SHARE,
    ROW_DELETED,
    are_late,
    are_pressing,
    believed_until,
    calm_periods_s,
    calm_renewal_due_at,
    first_renewal_due_at,
    is_prompt,
    renewal_order,
    throughput_after,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.ports import Clock, IdSource
    from kcl_mld.leases.model.lease import Lease

log = logging.getLogger("mld.leases")

#: Time between two checks while renewals are late.
PRESSING_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """The throughput that a write stores.

    Attributes:
        kbps: KiB/s, the moving average.
        received_bytes: bytes received in the measured window.
        at: reading of ``Clock.monotonic`` at the end of the window.
    """

    kbps: float
    received_bytes: int
    at: float


class ThroughputWindow:
    """Measures the throughput of one holding between two writes that store it."""

    def __init__(self, known_kbps: float | None, now: float) -> None:
        """Start with the value in the row.

        Args:
            known_kbps: stored by the previous holder; None = not in the row.
            now: reading of ``Clock.monotonic``.
        """
        self._kbps = known_kbps
        self._received_bytes = 0
        self._from = now

    def received(self, size_bytes: int) -> None:
        """Count bytes of payloads that were sent to the child."""
        self._received_bytes += size_bytes

    def measure(self, now: float, least_s: float) -> Measured | None:
        """Measure the throughput; None = nothing was received yet, or the window is too short.

        Args:
            now: reading of ``Clock.monotonic``.
            least_s: shortest window that is measured, > 0.
        """
        elapsed_s = now - self._from
        if elapsed_s < least_s or (self._kbps is None and not self._received_bytes):
            return None
        kbps = throughput_after(self._kbps, self._received_bytes, elapsed_s)
        return Measured(kbps, self._received_bytes, now)

    def stored(self, measured: Measured) -> None:
        """Start the next window where the stored one ended."""
        self._kbps = measured.kbps
        self._received_bytes -= measured.received_bytes
        self._from = measured.at


@dataclass(slots=True)
class Holding:
    """One holding, from its beginning to its end; a lease that is regained gets a new one.

    Attributes:
        lease: the row as we last wrote it.
        valid_until: reading of ``Clock.monotonic`` from which the lease no longer counts as held.
        last_success: reading before the last successful request was sent.
        renew_at: reading at which the next renewal is due while the table responds promptly.
        not_before: reading before which a failed renewal is not retried.
        ended: True once the lease is no longer held.
        lapsed: True if it ended because its validity ran out.
    """

    lease: Lease
    token: str
    valid_until: float
    last_success: float
    renew_at: float
    window: ThroughputWindow
    not_before: float = 0.0
    ended: bool = False
    lapsed: bool = False

    def due_at(self, brisk_s: float | None) -> float:
        """When to renew: at most ``brisk_s`` after the last success; None = no such limit."""
        due_at = self.renew_at
        if brisk_s is not None:
            due_at = min(due_at, self.last_success + brisk_s)
        return max(due_at, self.not_before)

    def snapshot(self) -> HeldLease:
        """An immutable copy for other parts of the worker."""
        return HeldLease(self.lease, self.token, self.valid_until)


class HeldLeases:
    """The holdings of one worker, at most one per lease."""

    def __init__(self, config: LeaseConfig, clock: Clock, ids: IdSource) -> None:
        self._config = config
        self._clock = clock
        self._ids = ids
        self._holdings: dict[str, Holding] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._is_closed = False
        self._lapsed: dict[str, Lease] = {}
        self._unreleased_at: dict[str, float] = {}
        #: Keys of lapsed leases that no other worker is known to have taken.
        self.expired: set[str] = set()
        #: Held leases whose rows were deleted, as last written, by key.
        self.deleted: dict[str, Lease] = {}
        #: Whether writes store the throughput of a lease, which the leader of a 3.x fleet reads.
        self.writes_throughput = False
        #: Number of leases lost so far.
        self.lost = 0
        #: Set at every gain and every loss, and when a lease is to be handed over.
        self.changed = Wakeup()
        #: Set when a lease was not renewed in time.
        self.lapses = Wakeup()
        #: Cleared while renewals are so late that other work of the worker has to wait for them.
        self.in_time = asyncio.Event()
        self.in_time.set()
        #: Cleared while renewals don't keep up with the held leases: no more leases are taken
        #: meanwhile.
        self.keeps_up = asyncio.Event()
        self.keeps_up.set()
        #: Set when renewals may be due sooner than planned.
        self.wanted = Wakeup()
        self._calm_periods_s = calm_periods_s(config)
        # At start, the response time of the table is unknown and the machine is busy.
        self._troubled_until = clock.monotonic() + config.failover_s

    def __len__(self) -> int:
        return len(self._holdings)

    def __contains__(self, lease_key: str) -> bool:
        return lease_key in self._holdings

    def believed(self) -> tuple[HeldLease, ...]:
        """Snapshots of the leases that count as held now, sorted by key."""
        now = self._clock.monotonic()
        return tuple(
            holding.snapshot()
            for _, holding in sorted(self._holdings.items())
            if holding.valid_until > now
        )

    def get(self, lease_key: str) -> HeldLease | None:
        """One lease that counts as held now, or None."""
        holding = self._holdings.get(lease_key)
        if holding is None or holding.valid_until <= self._clock.monotonic():
            return None
        return holding.snapshot()

    def note_unreleased(self, lease_key: str) -> None:
        """Note that a lease was given up but its row still names this worker."""
        self._unreleased_at[lease_key] = self._clock.monotonic()

    def forget_unreleased(self, lease_key: str) -> None:
        """Note that the row of a lease no longer names this worker."""
        self._unreleased_at.pop(lease_key, None)
        self.expired.discard(lease_key)

    @property
    def unreleased(self) -> int:
        """Number of leases that were given up but whose rows still name this worker.

        See ``LeaseRenewer.unreleased``.
        """
        now = self._clock.monotonic()
        expires_s = self._config.failover_s + self._config.taker_interval_s
        return sum(now - at < expires_s for at in self._unreleased_at.values())

    def find(self, lease_key: str, token: str | None = None) -> Holding | None:
        """A holding that has not ended, valid or about to lapse; None for an old token."""
        holding = self._holdings.get(lease_key)
        if holding is None or token not in (None, holding.token):
            return None
        return holding

    def lock(self, lease_key: str) -> asyncio.Lock:
        """The lock that orders all writes of this worker to one lease."""
        return self._locks.setdefault(lease_key, asyncio.Lock())

    def measure(self, holding: Holding) -> Measured | None:
        """The throughput to store; None if no leader reads it or the window is too short."""
        if not self.writes_throughput:
            return None
        return holding.window.measure(self._clock.monotonic(), self._config.renewal_interval_s)

    def keys_by_wait(self) -> list[str]:
        """Keys of held leases, longest since the last successful request first."""
        return renewal_order((key, held.last_success) for key, held in self._holdings.items())

    def note_trouble(self) -> None:
        """Note a slow or failed response: renew at Java's pace for the failover time."""
        if self._clock.monotonic() >= self._troubled_until:
            self.wanted.wake()
        self._troubled_until = self._clock.monotonic() + self._config.failover_s

    def due(self, by: float) -> list[str]:
        """Keys of held leases to renew by a given time, ordered as :meth:`keys_by_wait`."""
        brisk_s = self._brisk_s()
        return renewal_order(
            (key, held.last_success)
            for key, held in self._holdings.items()
            if held.due_at(brisk_s) <= by
        )

    def next_due_at(self, besides: Container[str] = ()) -> float | None:
        """When the next renewal is due, ``besides`` excluded; None if no other lease is held."""
        brisk_s = self._brisk_s()
        return min(
            (held.due_at(brisk_s) for key, held in self._holdings.items() if key not in besides),
            default=None,
        )

    def _brisk_s(self) -> float | None:
        """Java's renewal period after slow or failed responses of the table, else None."""
        is_well = self._clock.monotonic() >= self._troubled_until
        return None if is_well else self._config.renewal_interval_s

    def postpone(self, lease_key: str, until: float) -> None:
        """After a failed renewal, don't retry before ``until``."""
        holding = self._holdings.get(lease_key)
        if holding is not None:
            holding.not_before = until

    def lapsed(self) -> list[str]:
        """Keys of lapsed leases that no other worker is known to have taken."""
        return sorted(self._lapsed)

    def lapsed_row(self, lease_key: str) -> Lease | None:
        """The row of a lapsed lease as we last wrote it, to write on top of."""
        return self._lapsed.get(lease_key)

    def forget(self, lease_key: str) -> None:
        """Forget a lapsed lease that has another owner or is deleted."""
        self._lapsed.pop(lease_key, None)
        self.expired.discard(lease_key)

    def hold(self, lease: Lease, requested_at: float) -> HeldLease:
        """Begin a holding; an earlier holding of the lease ends."""
        self._unreleased_at.pop(lease.lease_key, None)
        self.deleted.pop(lease.lease_key, None)
        previous = self._holdings.get(lease.lease_key)
        if previous is not None:
            previous.ended = True
        holding = Holding(
            lease,
            self._ids.new_id(),
            self._belief(requested_at),
            requested_at,
            first_renewal_due_at(lease.lease_key, requested_at, self._config.renewal_interval_s),
            ThroughputWindow(lease.throughput_kbps, requested_at),
        )
        self._holdings[lease.lease_key] = holding
        self.forget(lease.lease_key)
        log.info("Acquired lease %s (leaseCounter %d)", lease.lease_key, lease.lease_counter)
        self.changed.wake()
        return holding.snapshot()

    def close(self) -> None:
        """Stop regaining lapsed leases, because the worker stops."""
        self._is_closed = True
        self._lapsed.clear()

    def has_lapsed(self, holding: Holding) -> bool:
        """End a holding whose validity ran out; True if it did."""
        if holding.valid_until > self._clock.monotonic():
            return False
        if not holding.ended:
            holding.lapsed = True
            self.expired.add(holding.lease.lease_key)
            self.lapses.wake()
            if not self._is_closed:
                self._lapsed[holding.lease.lease_key] = holding.lease
            self.lose(holding, "it was not renewed in time")
        return True

    def look_at_time(self) -> float | None:
        """End expired holdings, and check whether the other leases are renewed in time.

        Returns:
            When to check again, a reading of ``Clock.monotonic``; None while nothing is held.
        """
        now = self._clock.monotonic()
        for key in sorted(key for key, one in self._holdings.items() if one.valid_until <= now):
            self.has_lapsed(self._holdings[key])
        ends = [holding.valid_until for holding in self._holdings.values()]
        brisk_s = self._brisk_s()
        due_at = [holding.due_at(brisk_s) for holding in self._holdings.values()]
        if are_late(due_at, now, self._config.failover_s):
            self.keeps_up.clear()
        else:
            self.keeps_up.set()
        if are_pressing(ends, now, self._config.failover_s):
            self.in_time.clear()
            return min(*ends, now + PRESSING_LOOK_S)
        self.in_time.set()
        soon_s = self._config.failover_s * PRESSING_SHARE
        return min((end if end <= now + soon_s else end - soon_s for end in ends), default=None)

    def lose(self, holding: Holding, why: str) -> None:
        """End a holding because the lease was lost; for a finished shard, this is no loss."""
        if not holding.ended:
            if holding.lease.is_finished:
                text = "No longer holding lease %s of a finished shard: %s"
                log.info(text, holding.lease.lease_key, why)
            else:
                log.warning("Lost lease %s: %s", holding.lease.lease_key, why)
                if why == ROW_DELETED:
                    self.deleted[holding.lease.lease_key] = holding.lease
                    log.error("%s", told_deleted(holding.lease))
            self.lost += 1
            self.end(holding)

    def set_aside(self, holding: Holding) -> None:
        """End a holding whose stored row is unknown; it is regained with the row as read then."""
        key = holding.lease.lease_key
        self.end(holding)
        if self._is_closed:
            self.note_unreleased(key)
        else:
            self._lapsed[key] = holding.lease

    def lose_all(self, why: str) -> None:
        """End every holding; no lease is regained."""
        if self._holdings:
            log.warning("Lost all %d leases: %s", len(self._holdings), why)
        self.lost += len(self._holdings)
        self._lapsed.clear()
        self.expired.clear()
        for holding in tuple(self._holdings.values()):
            self.end(holding)

    def end(self, holding: Holding) -> None:
        """End a holding; does nothing if it has ended."""
        if not holding.ended:
            holding.ended = True
            del self._holdings[holding.lease.lease_key]
            self.changed.wake()

    def rebase(self, holding: Holding | None, row: Lease) -> None:
        """Note the row that writes of this worker have left; the next write is on top of it.

        Without it, the next write would find a counter that is more than one ahead, as if another
        process wrote under this worker's id, and the lease would be lost.

        Args:
            holding: None = the lease has lapsed.
            row: as written or read.
        """
        if holding is not None and not holding.ended:
            holding.lease = row
        elif row.lease_key in self._lapsed:
            self._lapsed[row.lease_key] = row

    def succeed(
        self,
        holding: Holding,
        lease: Lease,
        requested_at: float,
        measured: Measured | None = None,
    ) -> None:
        """Note a successful write whose condition was that the lease is ours.

        An answer that arrives after the holding ended can't revive it, because its consumer has
        been asked to stop. The lease is then regained like any lapsed one.
        """
        if self.has_lapsed(holding) or holding.ended:
            self.rebase(holding, lease)
        else:
            if lease.is_handed_over and not holding.lease.is_handed_over:
                self.changed.wake()
            if lease.request is not None and lease.request != holding.lease.request:
                self.changed.wake()
            if measured is not None:
                holding.window.stored(measured)
            holding.lease = lease
            holding.last_success = requested_at
            holding.valid_until = self._belief(requested_at)
            holding.renew_at = calm_renewal_due_at(
                lease.lease_key, requested_at, self._calm_periods_s
            )
            holding.not_before = 0.0
            if not is_prompt(requested_at, self._clock.monotonic(), self._config.failover_s):
                self.note_trouble()

    def _belief(self, requested_at: float) -> float:
        return believed_until(requested_at, self._config.failover_s, self._config.epsilon_s)
