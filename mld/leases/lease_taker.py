"""Scans the lease table periodically and takes this worker's share."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, MalformedData, Throttled
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.text import counted
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.leases.lease_acquisition import LeaseAcquisition
from kcl_mld.leases.rules.newcomers import SOON_S, Probation, failed_marks, probation
from kcl_mld.leases.rules.own_rows import TODO
from kcl_mld.leases.rules.taking import (
    Sighting,
    TakeLimits,
    TakePlan,
    TakeReason,
    look,
    plan_taking,
)
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.model.metrics import (
    EXPIRED_LEASES,
    LEASE_SPILLOVER,
    LEASES_TO_TAKE,
    LIST_LEASES,
    NEEDED_LEASES,
    NUM_WORKERS,
    TAKE_LEASE,
    TAKE_LEASES,
    TAKEN_LEASES,
    TOTAL_LEASES,
    UNTAKEN_LEASES,
    VERY_OLD_LEASES,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.failing_condition import FailingCondition
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.leases")

#: Sends of one take when the table is throttled (DynamoDBLeaseTaker.java:57, 3.5.1).
TAKE_TRIES = 3
#: How often to scan while there are no leases, in seconds; Java does the same at start-up.
EMPTY_PAUSE_S = 3.0
#: Tells this sign of a doubled id from that of the items of a 3.x fleet.
_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class TakeOutcome:
    """The result of one cycle; ``str()`` is one sentence.

    Attributes:
        plan: the leases to take; None when the table could not be read, or has rows of others.
        taken: lease keys, in the order of taking.
        missed: lease keys that another worker took first, or that could not be written.
        left: leases not tried for lack of time, because held leases had to be renewed.
        error: why the table could not be read.
    """

    plan: TakePlan | None
    taken: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    left: int = 0
    error: str | None = None

    def __str__(self) -> str:
        if self.plan is None:
            return f"Took no leases: {self.error or 'the lease table has rows of others'}"
        plan = self.plan
        share = f"{plan.mine} of {plan.total}, target: {plan.target}, workers: {plan.workers}"
        if not plan.leases:
            return f"Took no leases: {plan.reason} (held: {share})"
        wanted = counted(len(plan.leases), "lease", "leases")
        count = f"{len(self.taken)} of {wanted}" if self.missed or self.left else wanted
        return f"Took {count}: {plan.reason} (held before: {share})"


def _level(outcome: TakeOutcome) -> int:
    if outcome.plan is None:
        return logging.DEBUG if outcome.error is None else logging.WARNING
    return logging.INFO if outcome.plan.leases else logging.DEBUG


class LeaseTaker(LeaseAcquisition):
    """Takes free, expired and surplus leases by the rules of ``kcl_mld.leases.rules.taking``.

    Args:
        renewer: holds the leases that are taken.
        config: section ``leases``.
        metrics: gets Java's ``TakeLeases`` data.
        is_read: leases for which it is False are ignored: their streams are no longer read.
        conditions: shows whether another process writes to this worker's rows.
    """

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        config: LeaseConfig,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        is_read: Callable[[Lease], bool],
        *,
        failing: FailingCondition,
        conditions: Conditions,
    ) -> None:
        super().__init__(store, renewer, failing)
        self._conditions = conditions
        self._has_twin = False
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._is_read = is_read
        self._limits = TakeLimits(
            failover_s=config.failover_s,
            max_leases=config.max_leases_for_worker,
            max_steal=config.max_leases_to_steal,
            prefer_very_old=config.enable_priority,
        )
        self._seen: dict[str, Sighting] = {}
        self._is_on_probation = False

    async def run(self) -> None:
        """Run a cycle at once, then at Java's interval and when woken, until cancelled.

        A woken cycle steals nothing: workers expect at most one batch of steals per interval. A
        worker doesn't steal within a failover time of its start either. Otherwise a worker that
        crashes soon after each start, with a new id each time, would take leases from live workers
        again and again.
        """
        is_due, due_at = False, self._clock.monotonic() + self._config.taker_interval_s / 2
        while not self._is_stopping:
            try:
                outcome = await self.take_once(may_steal=is_due)
            except Exception:
                # A defect in one cycle must not end the taking of leases.
                pause_s = self._config.taker_interval_s
                log.exception("Taking leases failed unexpectedly; next try in %.0f s", pause_s)
            else:
                pause_s = self._pause_after(outcome)
            next_at = self._clock.monotonic() + pause_s
            due_at = next_at if is_due else min(due_at, next_at)
            if not self._is_stopping:
                is_due = not await self._woken.wait(due_at - self._clock.monotonic())

    def stop(self) -> None:
        """As any other; what is known of rows is not looked at any more."""
        super().stop()
        self._forget_twin()

    async def take_once(self, *, may_steal: bool = True) -> TakeOutcome:
        """Scan the table, decide, take."""
        started_at = self._clock.monotonic()
        limits = self._limits if may_steal else replace(self._limits, max_steal=0)
        outcome = await self._cycle(limits)
        took_s = self._clock.monotonic() - started_at
        self._metrics.call(TAKE_LEASES, took_s, succeeded=outcome.error is None)
        log.log(_level(outcome), "%s", outcome)
        return outcome

    async def _cycle(self, limits: TakeLimits) -> TakeOutcome:
        try:
            scan = await self._store.scan()
        except AwsError as error:
            self._metrics.add(LIST_LEASES.success, 0)
            return TakeOutcome(None, error=f"the lease table could not be read: {error}")
        self._metrics.call(LIST_LEASES, scan.finished_at - scan.started_at, succeeded=True)
        self._look_for_twin(scan)
        if scan.conflict is not None:
            return TakeOutcome(None)
        await self._store.remove_false_marks(scan.leases)
        leases = tuple(lease for lease in scan.leases if self._is_read(lease))
        self._seen = look(self._seen, leases, scan.finished_at)
        held = frozenset(one.lease.lease_key for one in self._renewer.held())
        on_probation = self._probation(leases, scan.finished_at)
        plan = plan_taking(
            leases,
            self._seen,
            scan.finished_at,
            self._worker_id,
            held,
            limits if on_probation.may_steal else replace(limits, max_steal=0),
            self._rng,
        )
        plan = on_probation.of(plan, len(held))
        self._report(plan)
        self._refusal = None
        taken: list[str] = []
        missed: list[str] = []
        left: list[str] = []
        # The number of leases that can be written in Java's period can also be renewed in it.
        ends_at = self._clock.monotonic() + self._config.renewal_interval_s

        async def take(lease: Lease) -> None:
            await self._renewer.keeps_up.wait()
            if self._clock.monotonic() >= ends_at:
                left.append(lease.lease_key)
                return
            try:
                success = await self._take(lease, steals=plan.reason is TakeReason.STEAL)
            except Exception:
                # A defect in one take must not stop the others, whose writes may have happened.
                log.exception("Taking lease %s failed unexpectedly", lease.lease_key)
                success = False
            (taken if success else missed).append(lease.lease_key)

        await for_each(await self._recheck(plan, scan), self._config.renewal_threads, take)
        self._report_failing(self._config.table_name)
        self._metrics.add(TAKEN_LEASES, len(taken))
        self._metrics.add(UNTAKEN_LEASES, len(missed))
        return TakeOutcome(plan, tuple(taken), tuple(missed), len(left))

    def _look_for_twin(self, scan: TableScan) -> None:
        """Report whether another living process has this worker's id; nothing is given up."""
        rows = self._store.holder.own_rows
        if rows is None:
            return
        rows.looked(scan.leases, scan.finished_at)
        key = rows.moved_by_others(scan.finished_at)
        if key is None:
            if self._has_twin:
                log.warning(
                    "No other process writes to rows of worker %s any more", self._worker_id
                )
            self._forget_twin()
            return
        if not self._has_twin:
            text = (
                f"Another living process has the id {self._worker_id}: it writes to rows of this "
                f"worker's leases, that of {key} for one, and both may read the same shards. {TODO}"
            )
            log.error("%s", text)
            self._conditions.report(Reason.DOUBLED_ID, text, _ROWS)
        self._has_twin = True

    def _forget_twin(self) -> None:
        self._has_twin = False
        self._conditions.clear(Reason.DOUBLED_ID, _ROWS)

    async def _recheck(self, plan: TakePlan, scan: TableScan) -> list[Lease]:
        """After a slow scan, drop leases that have changed since: stealing them would be unfair.

        Source: DynamoDBLeaseTaker.updateStaleLeasesWithLatestState (3.5.1), which steals them
        nevertheless and fails on deleted ones.
        """
        slow_s = (int(self._config.failover_s * 1000) // 3) / 1000 / 2
        if plan.reason is not TakeReason.STEAL or scan.finished_at - scan.started_at <= slow_s:
            return list(plan.leases)
        return [lease for lease in plan.leases if await self._is_unchanged(lease)]

    async def _is_unchanged(self, lease: Lease) -> bool:
        try:
            now = await self._store.get(lease.lease_key)
        except (AwsError, MalformedData):
            return True  # the condition of the take decides
        return now is not None and (now.lease_owner, now.lease_counter) == (
            lease.lease_owner,
            lease.lease_counter,
        )

    def _probation(self, leases: tuple[Lease, ...], now: float) -> Probation:
        """What this process may take while it is new and other new processes fail."""
        newcomer, failover_s = self._store.holder.newcomer, self._config.failover_s
        if newcomer is None or newcomer.is_proven:
            return Probation()
        alive = {
            one.lease_key
            for one in leases
            if one.lease_owner is not None and now - self._seen[one.lease_key].seen_at <= failover_s
        }
        failed = failed_marks(leases, alive, newcomer.instance, self._clock.service())
        after = probation(
            failed,
            self._seen,
            now,
            lived_s=newcomer.lived_s,
            failover_s=failover_s,
            patience_s=failover_s + self._config.taker_interval_s,
        )
        if failed and not self._is_on_probation:
            lives = len({mark.instance for mark in failed.values()})
            last = max(failed.values(), key=lambda mark: mark.at_s)
            log.warning(
                "%s failed soon after taking leases, the last one as worker %s, so this worker takes "
                "one lease first, and more when it has held it for %.0f s",
                counted(lives, "process", "processes"),
                last.worker_id,
                SOON_S,
            )
        self._is_on_probation = bool(failed)
        return after

    async def _take(self, lease: Lease, *, steals: bool) -> bool:
        """Take one lease and hold it."""
        if not self._may_hold():
            return False
        async with self._alone(lease.lease_key):
            return await self._take_alone(lease, steals=steals)

    async def _take_alone(self, lease: Lease, *, steals: bool) -> bool:
        requested_at = self._clock.monotonic()
        try:
            taken = await self._try_taking(lease, steals=steals)
        except AwsError as error:
            log.warning("Could not take lease %s: %s", lease.lease_key, error)
            taken, self._refusal = None, error
        took_s = self._clock.monotonic() - requested_at
        self._metrics.call(TAKE_LEASE, took_s, succeeded=taken is not None)
        if taken is None:
            return False
        if self._is_stopping:
            await self._renewer.give_back(taken)
            return False
        self._seen[taken.lease_key] = Sighting(taken.lease_counter, requested_at + took_s)
        self._renewer.hold(taken, requested_at)
        return True

    async def _try_taking(self, lease: Lease, *, steals: bool) -> Lease | None:
        for attempt in range(TAKE_TRIES - 1):
            try:
                return await self._store.take(lease, self._worker_id, steals=steals)
            except Throttled:
                await asyncio.sleep(backoff_s(attempt, self._rng, first_s=0.1, cap_s=1.0))
        return await self._store.take(lease, self._worker_id, steals=steals)

    def _pause_after(self, outcome: TakeOutcome) -> float:
        if outcome.error is not None or outcome.left:
            return self._config.renewal_interval_s
        if outcome.plan is not None and outcome.plan.reason is TakeReason.EMPTY:
            return min(EMPTY_PAUSE_S, self._config.taker_interval_s)
        return self._config.taker_interval_s

    def _report(self, plan: TakePlan) -> None:
        self._metrics.add(NUM_WORKERS, plan.workers)
        self._metrics.add(EXPIRED_LEASES, plan.available)
        self._metrics.add(VERY_OLD_LEASES, plan.very_old)
        self._metrics.add(LEASE_SPILLOVER, plan.spillover)
        self._metrics.add(TOTAL_LEASES, plan.total)
        self._metrics.add(NEEDED_LEASES, max(0, plan.needed))
        self._metrics.add(LEASES_TO_TAKE, len(plan.leases))
