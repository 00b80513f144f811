"""The verdict on one row of the lease table, from several snapshots.

First the state of the lease: unowned, silent, waiting, read. Then what may be wrong besides. The
gravest counts; of two that are equally grave, what is nearer to the cause.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.kernel.model.text import lasted
from kcl_mld.leases.rules.lease_report import left_free, told_free
from kcl_mld.leases.rules.pausing import paused_by
from kcl_mld.observe.model.verdict import Conclusion, Verdict, VerdictSeverity
from kcl_mld.observe.rules.letters import with_letter
from kcl_mld.observe.rules.reported_lag import bound_text, reported_lags
from kcl_mld.observe.rules.retention import losses, retention, unconfirmed
from kcl_mld.observe.rules.scraped import cure_of, has_raised, is_failing, owner_says, shard_on_page
from kcl_mld.shards.rules.audit import signs_of_recreation
from kcl_mld.streams.rules.existence import ShardExistence, shard_existence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import TipSnapshot
    from kcl_mld.observe.rules.watching import ExplainRules, Snapshots

#: Part of the remedy where workers are missing.
EXITS = "if workers exit, the last line of their logs says why"
#: A lag that changes by less than this share of the time that passes is steady.
_STEADY = 0.1
#: What the page of its owner may explain.
_EXPLAINED_BY_PAGES = frozenset({Verdict.STALLED, Verdict.NO_PROGRESS, Verdict.FALLING_BEHIND})
_RAISED = "look for the exception in the log of its owner: its records count as processed"
#: Owners in a row that are too many for one window.
_THRASHING = 3


class ShardJudge:
    """Judges the rows of one watch.

    Args:
        parent: the verdict on another row, for those that wait for it.
    """

    def __init__(
        self, watch: Snapshots, rules: ExplainRules, parent: Callable[[str], Conclusion | None]
    ) -> None:
        self._watch = watch
        self._rules = rules
        self._parent = parent
        free = left_free(watch.last.leases.values(), rules.max_leases)
        self._limited = frozenset(free)

    def judge(self, lease: Lease) -> Conclusion:
        """The gravest verdict on a row of the last snapshot."""
        if lease.is_finished:
            found = [*self._stream(lease), *self._losses(lease), self._finished(lease)]
        else:
            state = self._state(lease)
            found = [
                *self._stream(lease),
                *self._losses(lease),
                *self._confirmed(lease),
                *self._retention(lease),
                *self._rewound(lease),
                *self._held(lease),
                *self._thrashing(lease),
                *(() if state.verdict is Verdict.OWNER_SILENT else self._handing_over(lease)),
                state,
            ]
        return max(found, key=lambda one: one.severity)

    def _conclude(
        self,
        lease: Lease,
        verdict: Verdict,
        severity: VerdictSeverity,
        cause: str,
        todo: str = "",
        since_s: float | None = None,
    ) -> Conclusion:
        last = self._watch.last
        tip, page = last.tips.get(lease.lease_key), shard_on_page(last, lease)
        return Conclusion(
            subject=lease.lease_key,
            verdict=verdict,
            severity=severity,
            cause=cause,
            since_s=since_s,
            todo=todo,
            lease=lease,
            behind_s=None if tip is None else tip.behind_s,
            behind_age_s=None if tip is None else max(0.0, last.at - tip.asked_at),
            reported_lag_s=None if page is None else page.lag_s,
            lives=self._lives(lease),
        )

    def _row_holds_s(self, lease: Lease, holds: Callable[[Lease], bool]) -> float:
        key = lease.lease_key
        return self._watch.holds_s(lambda at: key in at.leases and holds(at.leases[key]))

    def _lives(self, lease: Lease) -> bool:
        """Whether its owner was seen to renew it, and not too long ago."""
        rows = self._watch.rows(lease.lease_key)
        return (
            lease.actual_owner is not None
            and any(row.lease_counter != lease.lease_counter for _look, row in rows)
            and self._watch.still_s(lease.lease_key) < self._rules.failover_s
        )

    # -- its state ---------------------------------------------------------------------------------

    def _state(self, lease: Lease) -> Conclusion:
        owner = lease.actual_owner
        if owner is None:
            return self._unowned(lease)
        rows = self._watch.rows(lease.lease_key)
        if len(rows) == 1:
            return self._conclude(
                lease,
                Verdict.UNKNOWN,
                VerdictSeverity.INFO,
                "one look can't tell whether its owner lives",
                "look again, without --once",
            )
        still_s = self._watch.still_s(lease.lease_key)
        if still_s >= self._rules.failover_s:
            severity = (
                VerdictSeverity.CRITICAL
                if still_s >= self._rules.late_s
                else VerdictSeverity.WARNING
            )
            return self._conclude(
                lease,
                Verdict.OWNER_SILENT,
                severity,
                f"{owner} has not renewed it for longer than failoverTimeMillis, so {owner} is dead, "
                "stands still, or can't write the table",
                f"see whether a worker runs and can reach the table; start one; {EXITS}",
                still_s,
            )
        if not self._lives(lease):
            return self._conclude(
                lease,
                Verdict.UNKNOWN,
                VerdictSeverity.INFO,
                "the counter stands still, but not yet for failoverTimeMillis",
                "look for longer: --for",
                still_s,
            )
        return (
            self._paused(lease)
            or self._waiting(lease)
            or with_letter(
                self._with_page(lease, self._progress(lease)), lease, self._watch.last.wall_s
            )
        )

    def _paused(self, lease: Lease) -> Conclusion | None:
        left_s = (lease.paused_until_s or 0.0) - self._watch.last.wall_s
        if left_s <= 0:
            return None
        owner = lease.actual_owner
        if not lease.is_held_by_ours:  # others do not know of it
            cause = f"paused for another {lasted(left_s)}, but read by {owner}: {paused_by(lease)}"
            todo = f"stop {owner}, or end the pause with kcl-mld leases resume"
            return self._conclude(
                lease, Verdict.PAUSE_IGNORED, VerdictSeverity.WARNING, cause, todo
            )
        cause = f"{owner} does not read it for another {lasted(left_s)}: {paused_by(lease)}"
        return self._conclude(
            lease, Verdict.PAUSED, VerdictSeverity.INFO, cause, "kcl-mld leases resume ends it"
        )

    def _with_page(self, lease: Lease, one: Conclusion) -> Conclusion:
        """With the owner's page: a checkpoint that stands still or lags, and exceptions."""
        page = shard_on_page(self._watch.last, lease)
        if page is None:
            return one
        raised = has_raised(page)
        if one.verdict not in _EXPLAINED_BY_PAGES and not raised:
            return one
        says = owner_says(page, is_stalled=one.verdict is Verdict.STALLED)
        one = replace(one, cause=f"{one.cause}; {says}") if says else one
        if one.severity >= VerdictSeverity.WARNING:
            return one
        if one.verdict is Verdict.NO_PROGRESS and is_failing(page):
            todo = self._todo_of_stalled(lease)
            return replace(one, severity=VerdictSeverity.WARNING, todo=todo)
        if raised:
            return replace(one, severity=VerdictSeverity.WARNING, todo=_RAISED)
        return one

    def _unowned(self, lease: Lease) -> Conclusion:
        since_s = self._row_holds_s(lease, lambda row: row.actual_owner is None)
        late = since_s >= self._rules.late_s
        if lease.lease_key in self._limited:
            cause = told_free(len(self._limited), self._rules.max_leases)
            todo = "start more workers, or raise maxLeasesForWorker"
        else:
            cause = "nobody owns it, so nobody reads it"
            todo = f"see whether workers run; in a 3.x fleet, whether one leads and they write metrics; {EXITS}"
        severity = VerdictSeverity.WARNING if late else VerdictSeverity.INFO
        return self._conclude(lease, Verdict.UNOWNED, severity, cause, todo, since_s)

    def _waiting(self, lease: Lease) -> Conclusion | None:
        if lease.checkpoint is None or lease.checkpoint.sentinel is None:
            return None
        parents = [self._parent(lease.key_of(one)) for one in lease.parent_shard_ids]
        unfinished = [
            one for one in parents if one and not (one.lease is not None and one.lease.is_finished)
        ]
        if not unfinished:
            return None
        worst = max(unfinished, key=lambda one: one.severity)
        named = ", ".join(f"{one.subject} ({one.verdict})" for one in unfinished)
        return self._conclude(
            lease,
            Verdict.WAITING_FOR_PARENT,
            max(VerdictSeverity.INFO, worst.severity),
            f"it begins when its parent has ended: {named}",
            f"look at {worst.subject}: {worst.todo}" if worst.todo else "",
        )

    def _progress(self, lease: Lease) -> Conclusion:
        position = lease.checkpoint
        still_s = self._row_holds_s(lease, lambda row: row.checkpoint == position)
        moved = any(row.checkpoint != position for _, row in self._watch.rows(lease.lease_key))
        if moved and still_s < self._rules.window_s:
            return self._moving(lease)
        tip = self._watch.last.tips.get(lease.lease_key)
        has_tip = tip is not None and tip.position == position
        page = shard_on_page(self._watch.last, lease)
        if not has_tip and page is not None and page.processing_lag_s is not None:
            return self._waited(lease, page.processing_lag_s, still_s)
        if position is not None and position.sentinel is Sentinel.LATEST:
            return self._conclude(
                lease,
                Verdict.NO_PROGRESS,
                VerdictSeverity.INFO,
                "nothing was checkpointed since it began at LATEST, so what it may lack can't be known",
                "",
                still_s,
            )
        asking = self._rules.asking
        if tip is None or not has_tip:
            return self._conclude(
                lease,
                Verdict.NO_PROGRESS,
                VerdictSeverity.INFO,
                f"counter moves, checkpoint does not; {asking} tells whether records wait",
                f"ask with {asking}",
                still_s,
            )
        return self._still(lease, tip, still_s)

    def _still(self, lease: Lease, tip: TipSnapshot, still_s: float) -> Conclusion:
        if tip.behind_s is None:
            return self._conclude(
                lease,
                Verdict.UNKNOWN,
                VerdictSeverity.WARNING,
                f"the checkpoint does not move, and the tip can't be asked: {tip.unknown}",
                tip.unknown_todo or "ask again later",
                still_s,
            )
        if tip.behind_s == 0:
            return self._conclude(
                lease,
                Verdict.IDLE,
                VerdictSeverity.OK,
                "no record behind the checkpoint",
                "",
                still_s,
            )
        # The checkpoint is where it was when the tip was asked: that record waits on.
        waited_s = tip.behind_s + max(0.0, self._watch.last.at - tip.asked_at)
        return self._waited(lease, waited_s, still_s)

    def _waited(self, lease: Lease, waited_s: float, still_s: float) -> Conclusion:
        """A record is known to wait behind a checkpoint that stands still."""
        after_s = self._rules.stalled_after_s
        page = shard_on_page(self._watch.last, lease)
        silent_s = 0.0 if page is None else page.child_silent_s or 0.0
        waits = f"a record has waited behind the checkpoint for {lasted(waited_s)}"
        # A child that owes an answer checkpoints nothing, however long it is watched.
        if max(still_s, silent_s) >= after_s <= waited_s:
            return self._conclude(
                lease,
                Verdict.STALLED,
                VerdictSeverity.CRITICAL,
                f"{lease.actual_owner} renews it, its checkpoint stands still, and {waits}",
                self._todo_of_stalled(lease),
                still_s,
            )
        return self._conclude(
            lease,
            Verdict.NO_PROGRESS,
            VerdictSeverity.INFO,
            f"the checkpoint does not move, and {waits}",
            f"look on with {self._rules.asking} --for {after_s:g}: after that it is STALLED",
            still_s,
        )

    def _todo_of_stalled(self, lease: Lease) -> str:
        page = shard_on_page(self._watch.last, lease)
        if page is None:
            return (
                f"look at /leases of {lease.actual_owner}, or ask with --scrape: reading fails, or "
                "the child hangs, fails, or does not checkpoint"
            )
        return cure_of(page) or f"look at /leases and the log of {lease.actual_owner}"

    def _moving(self, lease: Lease) -> Conclusion:
        known = self._lags(lease)
        times = sorted(known)
        failover_s, cause = self._rules.failover_s, "counter and checkpoint move"
        if not times and (bound := bound_text(self._watch.last, lease, failover_s)):
            return self._conclude(
                lease,
                Verdict.READING,
                VerdictSeverity.INFO,
                f"{cause}; {bound}",
                f"ask with {self._rules.asking}",
            )
        if not times or known[times[-1]] <= failover_s:
            return self._conclude(lease, Verdict.READING, VerdictSeverity.OK, cause)
        if len(times) == 1:
            cause += f", and it is {lasted(known[times[0]])} behind"
            todo = f"{self._rules.asking} tells whether that rises"
            return self._conclude(lease, Verdict.READING, VerdictSeverity.INFO, cause, todo)
        grown_s, took_s = known[times[-1]] - known[times[0]], times[-1] - times[0]
        lag = (
            f"from {lasted(known[times[0]])} to {lasted(known[times[-1]])} within {lasted(took_s)}"
        )
        if grown_s > _STEADY * took_s:
            return self._conclude(
                lease,
                Verdict.FALLING_BEHIND,
                VerdictSeverity.WARNING,
                f"its lag rises: {lag}",
                "its consumer is too slow: speed up the program, split the shard, or add workers if its "
                "worker has others",
            )
        if -grown_s > _STEADY * took_s:
            return self._conclude(
                lease, Verdict.CATCHING_UP, VerdictSeverity.INFO, f"its lag falls: {lag}"
            )
        return self._conclude(
            lease, Verdict.READING, VerdictSeverity.OK, f"its lag is steady: {lag}"
        )

    def _lags(self, lease: Lease) -> dict[float, float]:
        """Lag by the time at which it was known: of the tips, else by the owner's page or metrics."""
        of_tips = {
            tip.asked_at: tip.behind_s
            for snapshot in self._watch.snapshots
            if (tip := snapshot.tips.get(lease.lease_key)) and tip.behind_s is not None
        }
        if len(of_tips) > 1:
            return of_tips
        on_pages = {
            snapshot.at: page.lag_s
            for snapshot in self._watch.snapshots
            if (page := shard_on_page(snapshot, lease)) and page.lag_s is not None
        }
        return on_pages or of_tips or reported_lags(self._watch.snapshots, lease)

    # -- what may be besides -----------------------------------------------------------------------

    def _stream(self, lease: Lease) -> Iterator[Conclusion]:
        stream = self._watch.streams.get(lease.stream_identifier)
        if stream is None:
            return
        why = stream.gone
        if why is None and stream.asked_at >= self._watch.last.at:
            why = self._foreign(lease)
        if why is not None:
            todo = "see whether the stream was deleted or created again; nothing is read from it"
            yield self._conclude(lease, Verdict.STREAM_GONE, VerdictSeverity.CRITICAL, why, todo)
        elif not stream.is_listed:
            yield self._conclude(
                lease,
                Verdict.STREAM_GONE,
                VerdictSeverity.INFO,
                f"the file does not name stream {stream.name}",
                "name it in streams, or set formerStreamsLeasesDeletionStrategy, which deletes its leases",
            )

    def _foreign(self, lease: Lease) -> str | None:
        """Why a row can't be of a stream whose shards were listed after it was read."""
        listed = self._watch.listed.get(lease.stream_identifier)
        if listed is None:
            return None
        shard = listed.get(lease.shard_id)
        if shard is not None:
            signs = signs_of_recreation([lease], [shard])
            return f"the row is of an earlier stream of that name: {signs[0]}" if signs else None
        found = shard_existence(lease.shard_id, None, listed.values(), self._watch.last.wall_s)
        if found is ShardExistence.FOREIGN:
            return "the stream never had such a shard"
        return None

    def _retention(self, lease: Lease) -> Iterator[Conclusion]:
        for one in retention(self._watch, lease, self._rules):
            yield self._conclude(lease, *one)

    def _confirmed(self, lease: Lease) -> Iterator[Conclusion]:
        for one in unconfirmed(self._watch, lease):
            yield self._conclude(lease, *one)

    def _losses(self, lease: Lease) -> Iterator[Conclusion]:
        for one in losses(self._watch, lease):
            yield self._conclude(lease, *one)

    def _rewound(self, lease: Lease) -> Iterator[Conclusion]:
        now = lease.checkpoint
        rows = self._watch.rows(lease.lease_key)
        for (_, earlier), (snapshot, later) in reversed(list(pairwise(rows))):
            if later.steered != earlier.steered:
                continue  # kcl-mld leases reset did it
            if (
                earlier.checkpoint
                and later.checkpoint
                and later.checkpoint < earlier.checkpoint
                # Where it is past the old one again, no record comes twice any more.
                and not (now and now >= earlier.checkpoint)
            ):
                yield self._conclude(
                    lease,
                    Verdict.REWOUND,
                    VerdictSeverity.WARNING,
                    f"its checkpoint went back, from {earlier.checkpoint} to {later.checkpoint}, which "
                    "no worker does by itself",
                    "ask who changed the row, with kcl-mld leases reset or by hand: records come again once "
                    "another child starts before the next checkpoint",
                    self._watch.since_s(snapshot),
                )
                return

    def _held(self, lease: Lease) -> Iterator[Conclusion]:
        held = lease.failure.behind(lease.checkpoint).held
        if held is None or lease.actual_owner is None:
            return
        yield self._conclude(
            lease,
            Verdict.HELD,
            VerdictSeverity.WARNING,
            f"{lease.actual_owner} holds it and reads nothing: {held}",
            "look at the dead letters, correct the program, and restart the worker",
            self._row_holds_s(lease, lambda row: row.failure.held is not None),
        )

    def _thrashing(self, lease: Lease) -> Iterator[Conclusion]:
        owners: list[str] = []
        for _look, row in self._watch.rows(lease.lease_key):
            if row.actual_owner is not None and owners[-1:] != [row.actual_owner]:
                owners.append(row.actual_owner)
        if len(owners) >= _THRASHING:
            yield self._conclude(
                lease,
                Verdict.THRASHING,
                VerdictSeverity.WARNING,
                f"it had {len(owners)} owners in a row: {', '.join(owners)}",
                "see whether two live workers have one workerId, or workers come and go",
            )

    def _handing_over(self, lease: Lease) -> Iterator[Conclusion]:
        if not lease.is_handed_over:
            return
        since_s = self._row_holds_s(lease, lambda row: row.checkpoint_owner is not None)
        late = since_s > self._rules.hand_off_s + self._rules.failover_s
        yield self._conclude(
            lease,
            Verdict.HANDING_OVER,
            VerdictSeverity.WARNING if late else VerdictSeverity.INFO,
            f"{lease.checkpoint_owner} finishes its batch, then {lease.lease_owner} has it",
            f"look at /leases of {lease.checkpoint_owner}, which does not let go" if late else "",
            since_s,
        )

    # -- finished ----------------------------------------------------------------------------------

    def _finished(self, lease: Lease) -> Conclusion:
        missing = self._watch.missing_children(lease)
        if not missing:
            return self._conclude(lease, Verdict.FINISHED, VerdictSeverity.OK, "read to its end")
        since_s = min(self._watch.uncovered_s(key) for key in missing)
        return self._conclude(
            lease,
            Verdict.CHILDREN_MISSING,
            gap_severity(since_s, self._watch, self._rules),
            f"it is finished, and its children have no rows: {', '.join(missing)}",
            "look at the log of the leader, which makes them within a few minutes",
            since_s,
        )


def gap_severity(since_s: float, watch: Snapshots, rules: ExplainRules) -> VerdictSeverity:
    """How much a gap matters: a stream that is being resharded shows one for a moment.

    Args:
        since_s: for how long it was seen.
    """
    if since_s >= rules.window_s:
        return VerdictSeverity.CRITICAL
    is_known = since_s > 0 and len(watch.snapshots) > 1
    return VerdictSeverity.WARNING if is_known else VerdictSeverity.INFO
