"""From several snapshots of a fleet, a verdict for each shard and for the fleet.

Pure, and without memory: the arguments are its only input. A verdict holds for a moment between the
first snapshot and the last; it states what snapshots can't show.

Sources of the rules: status by a window of snapshots as in Burrow; the failover time is KCL's own.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules.client_version import ALIVE_S, BEHAVIOUR, Mode
from kcl_mld.fleet.rules.crash_loop import poisoned
from kcl_mld.fleet.rules.table_migration import COMPLETE
from kcl_mld.kernel.model.sequence import LATEST
from kcl_mld.kernel.model.text import lasted
from kcl_mld.kernel.rules.clock_offset import offset_text, wrong_by_s
from kcl_mld.leases.rules.newcomers import MOST_WAIT_S, SOON_S, failed_marks
from kcl_mld.leases.rules.requests import asked_facts
from kcl_mld.observe.model.verdict import Conclusion, Explanation, Verdict, VerdictSeverity
from kcl_mld.observe.rules.reported_lag import lag_facts
from kcl_mld.observe.rules.scraped import failures
from kcl_mld.observe.rules.shard_verdict import EXITS, ShardJudge, gap_severity
from kcl_mld.observe.rules.watching import ExplainRules, Snapshots
from kcl_mld.signals.model.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kcl_mld.observe.model.fleet_snapshot import FleetItems, FleetSnapshot

#: Number of failed processes that are named.
_NAMED = 3


def explain(snapshots: Iterable[FleetSnapshot], rules: ExplainRules) -> Explanation:
    """Evaluate the snapshots.

    Args:
        snapshots: in order of time, at least one. A span of ``rules.window_s`` or more gives the
            most reliable verdicts.
    """
    watch = Snapshots(tuple(snapshots))
    shards = _Shards(watch, rules).judged()
    fleet = [*_streams(watch), *_not_ready(watch), *_clocks(watch), *_fleet(watch, rules)]
    return Explanation(
        looks=len(watch.snapshots),
        span_s=watch.span_s,
        facts=tuple(_facts(watch, rules)),
        fleet=_sorted(fleet),
        shards=_sorted(shards),
    )


def _sorted(found: Iterable[Conclusion]) -> tuple[Conclusion, ...]:
    return tuple(sorted(found, key=lambda one: (-one.severity, one.subject)))


class _Shards:
    """The rows of a watch, each judged once, parents before those that wait for them."""

    def __init__(self, watch: Snapshots, rules: ExplainRules) -> None:
        self._watch = watch
        self._rules = rules
        self._judge = ShardJudge(watch, rules, self._known)
        self._found: dict[str, Conclusion] = {
            key: Conclusion(
                subject=key,
                verdict=Verdict.UNREADABLE_ROW,
                severity=VerdictSeverity.CRITICAL,
                cause=f"the row can't be read, so no worker can take its shard: {why}",
                todo="mend the row as the reason says",
            )
            for key, why in watch.last.broken
        }
        self._open: set[str] = set()

    def judged(self) -> list[Conclusion]:
        for key in self._watch.last.leases:
            self._known(key)
        named = {
            key
            for lease in self._watch.last.leases.values()
            for key in self._watch.missing_children(lease)
        }
        gaps = [
            self._gap(key, str(shard.hash_range))
            for key, shard in self._watch.uncovered[-1].items()
            if shard.is_open and key not in named
        ]
        return [*self._found.values(), *gaps]

    def _known(self, key: str) -> Conclusion | None:
        """The conclusion on a row; None = there is none, or rows name each other as parents."""
        lease = self._watch.last.leases.get(key)
        if key not in self._found and lease is not None and key not in self._open:
            self._open.add(key)
            self._found[key] = self._judge.judge(lease)
        return self._found.get(key)

    def _gap(self, key: str, keys: str) -> Conclusion:
        since_s = self._watch.uncovered_s(key)
        return Conclusion(
            subject=key,
            verdict=Verdict.HASH_GAP,
            severity=gap_severity(since_s, self._watch, self._rules),
            cause=f"no lease covers the hash keys {keys} of this open shard, so nobody reads it",
            since_s=since_s,
            todo="look at the log of the leader, which mends it within a few minutes",
        )


def _streams(watch: Snapshots) -> Iterator[Conclusion]:
    """Conclusions on streams, and on unknown facts about them."""
    read = {lease.stream_identifier for lease in watch.last.leases.values()}
    for stream in watch.last.streams:
        if stream.unknown is not None:
            yield Conclusion(
                subject=stream.name,
                verdict=Verdict.UNKNOWN,
                severity=VerdictSeverity.WARNING,
                cause=f"not all is known of this stream: {stream.unknown}",
                todo=stream.unknown_todo or "look again",
            )
        if stream.gone is not None and stream.identifier not in read:
            yield Conclusion(
                subject=stream.name,
                verdict=Verdict.STREAM_GONE,
                severity=VerdictSeverity.CRITICAL,
                cause=stream.gone,
                todo="see whether the stream was deleted, or its name is wrong",
            )
        if stream.disabled is not None:
            yield Conclusion(
                subject=stream.name,
                verdict=Verdict.STREAM_DISABLED,
                severity=VerdictSeverity.WARNING if stream.is_listed else VerdictSeverity.INFO,
                cause=stream.disabled,
                todo=stream.disabled_todo if stream.is_listed else "",
            )


def _not_ready(watch: Snapshots) -> Iterator[Conclusion]:
    """Conclusions from workers' own reports; starting or stopping is not a problem."""
    doubled = {
        page.worker: text
        for page in watch.last.pages
        for reason, text in page.reasons
        if reason == Reason.DOUBLED_ID
    }
    for worker, text in doubled.items():
        yield Conclusion(
            subject=worker,
            verdict=Verdict.DOUBLED_ID,
            severity=VerdictSeverity.WARNING,
            cause=f"it reports: {text.rstrip('.')}",
            todo="give each process an id of its own; docs/operations.md#doubled-id",
        )
    shown_elsewhere = {Reason.NOT_RUNNING, Reason.DOUBLED_ID}
    for worker, reasons in {page.worker: page.reasons for page in watch.last.pages}.items():
        texts = [text for reason, text in reasons if reason not in shown_elsewhere]
        if texts:
            yield Conclusion(
                subject=worker,
                verdict=Verdict.NOT_READY,
                severity=VerdictSeverity.WARNING,
                cause="it reports: " + "; ".join(text.rstrip(".") for text in texts),
                todo="mend what it names: docs/operations.md has the cures, docs/probes.md the reasons",
            )


def _clocks(watch: Snapshots) -> Iterator[Conclusion]:
    """Workers whose clocks are wrong, by their reports or by the time of their metrics."""
    ahead_s: dict[str, float | None] = {}
    for one in () if watch.last.items is None else watch.last.items.metrics:
        # That of a Java worker may be ahead of it, and shows no more.
        ahead_s[one.worker_id] = max(0.0, one.updated_at_s - watch.last.wall_s)
        is_young = watch.last.wall_s - one.updated_at_s <= ALIVE_S
        if one.clock_ahead_s is not None and is_young:
            ahead_s[one.worker_id] = one.clock_ahead_s
    for page in watch.last.pages:
        if page.clock_ahead_s is not None:
            ahead_s[page.worker] = page.clock_ahead_s
    for worker, seconds in ahead_s.items():
        wrong_s = wrong_by_s(seconds)
        if wrong_s is not None:
            yield Conclusion(
                subject=worker,
                verdict=Verdict.WRONG_CLOCK,
                severity=VerdictSeverity.WARNING,
                cause=f"the clock of its machine is {offset_text(wrong_s)}",
                todo="set the clock right, by NTP for example; docs/operations.md#wrong-clock",
            )


def _fleet(watch: Snapshots, rules: ExplainRules) -> Iterator[Conclusion]:
    """Conclusions on a fleet beside its leases."""
    if watch.last.moving:
        yield Conclusion(
            subject="fleet",
            verdict=Verdict.MIGRATING,
            severity=VerdictSeverity.WARNING,
            cause=f"{len(watch.last.moving)} rows are on their way to other keys, so no worker runs",
            todo="go on with kcl-mld leases migrate",
        )
    yield from _crash_loop(watch)
    yield from _failed_newcomers(watch, rules)
    items = watch.last.items
    if items is None:
        yield Conclusion(
            subject="fleet",
            verdict=Verdict.UNKNOWN,
            severity=VerdictSeverity.WARNING,
            cause=f"what the fleet has beside its leases can't be read: {watch.last.items_unknown}",
            todo=watch.last.items_todo or "look again",
        )
        return
    if items.version is not None and BEHAVIOUR[items.version].mode is Mode.ASSIGNED:
        yield from _leader(watch, rules, items)
        yield from _without_metrics(watch, rules, items)
    if items.version is ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X:
        yield Conclusion(
            subject="fleet",
            verdict=Verdict.MIGRATING,
            severity=VerdictSeverity.INFO,
            cause="it works as 2.x until every owner of a lease has reported metrics for ten minutes",
        )
    if items.table_status not in (None, COMPLETE):
        yield Conclusion(
            subject="fleet",
            verdict=Verdict.MIGRATING,
            severity=VerdictSeverity.INFO,
            cause=f"it moves from three tables to one: {items.table_status}",
        )


def _crash_loop(watch: Snapshots) -> Iterator[Conclusion]:
    """Processes that failed one after the other: at one lease, or soon after their start."""
    lives, now_s = watch.last.failed, watch.last.wall_s
    place = poisoned(lives)
    short = [one for one in lives if one.lived_s <= SOON_S + MOST_WAIT_S]
    if place is not None:
        subject, failed = str(place.lease_key), lives
        cause = f"{len(lives)} processes failed at this lease, at position {place.position}"
        todo = "see the log of a worker for the record that its child fails at: docs/operations.md"
    else:
        subject, failed = "fleet", tuple(short)
        cause = f"{len(short)} processes failed soon after their start"
        todo = "see the log of one of these workers for why it ended: docs/operations.md"
    if len(failed) < 2:
        return
    named = [
        f"{one.worker_id} {lasted(now_s - one.failed_at_s)} ago after {lasted(one.lived_s)}: "
        f"{one.why}"
        for one in reversed(failed[-_NAMED:])
    ]
    more = "" if place is not None else "; newcomers wait for their leases"
    yield Conclusion(
        subject=subject,
        verdict=Verdict.CRASH_LOOP,
        severity=VerdictSeverity.WARNING,
        cause=f"{cause}, the last of them {', before it '.join(named)}{more}",
        todo=todo,
    )


def _failed_newcomers(watch: Snapshots, rules: ExplainRules) -> Iterator[Conclusion]:
    """The same in a fleet of 2.x, by the marks in its rows."""
    last = watch.last
    alive = {key for key in last.leases if watch.still_s(key) <= rules.failover_s}
    found = failed_marks(last.leases.values(), alive, "", last.wall_s)
    lives = {mark.instance: (key, mark) for key, mark in found.items()}
    if len(lives) < 2:
        return
    latest = sorted(lives.values(), key=lambda one: one[1].at_s, reverse=True)
    named = [
        f"{mark.worker_id}, which took {key} {lasted(last.wall_s - mark.at_s)} ago"
        for key, mark in latest[:_NAMED]
    ]
    yield Conclusion(
        subject="fleet",
        verdict=Verdict.CRASH_LOOP,
        severity=VerdictSeverity.WARNING,
        cause=f"{len(lives)} processes failed soon after they took leases, the last of them "
        f"{', before it '.join(named)}; newcomers take one lease first",
        todo="see the log of one of these workers for why it ended: docs/operations.md",
    )


def _leader(watch: Snapshots, rules: ExplainRules, items: FleetItems) -> Iterator[Conclusion]:
    lock = items.lock

    def is_same(snapshot: FleetSnapshot) -> bool:
        return snapshot.items is not None and snapshot.items.lock == lock

    since_s = watch.holds_s(is_same)
    is_free = lock is None or lock.is_released
    bound_s = rules.failover_s if lock is None or is_free else lock.duration_s
    if since_s < bound_s or len(watch.snapshots) == 1:
        return
    if lock is None or is_free:
        cause = "nobody leads, so no lease gets an owner"
    else:
        cause = f"{lock.owner} leads and does not renew its lock, so no lease gets an owner"
    yield Conclusion(
        subject="fleet",
        verdict=Verdict.LEADER_SILENT,
        severity=VerdictSeverity.CRITICAL
        if since_s >= bound_s + rules.late_s
        else VerdictSeverity.WARNING,
        cause=cause,
        since_s=since_s,
        todo="see whether workers run and can write the item Leader: /readyz says leader_lock_fails; "
        + EXITS,
    )


def _without_metrics(
    watch: Snapshots, rules: ExplainRules, items: FleetItems
) -> Iterator[Conclusion]:
    """Live owners that get no leases because the leader does not see them."""
    if len(watch.snapshots) == 1:
        return
    written = items.written_at_s
    before = watch.snapshots[0].items
    old = set() if before is None else {(one.worker_id, one.updated_at_s) for one in before.metrics}
    alive = {
        owner
        for key, lease in watch.last.leases.items()
        if (owner := lease.actual_owner) is not None
        and watch.still_s(key) < rules.failover_s
        and any(row.lease_counter != lease.lease_counter for _look, row in watch.rows(key))
    }
    for worker in sorted(alive):
        at_s = written.get(worker)
        if at_s is None:
            cause = "it owns leases and writes no metrics, so the leader gives it no more"
        elif watch.last.wall_s - at_s > ALIVE_S and (worker, at_s) in old:
            age_s = watch.last.wall_s - at_s
            cause = f"its metrics are {lasted(age_s)} old, so it gets no more leases"
        else:
            continue
        yield Conclusion(
            subject=worker,
            verdict=Verdict.NO_METRICS,
            severity=VerdictSeverity.WARNING,
            cause=cause,
            todo="see whether it can write its metrics: /readyz says worker_metrics_fail",
        )


def _facts(watch: Snapshots, rules: ExplainRules) -> Iterator[str]:
    yield from failures(watch.last.pages)
    items = watch.last.items
    if items is not None:
        version = "works as 2.x" if items.version is None else items.version.value
        yield f"Fleet: {version}"
        if items.lock is not None:
            yield f"Leader: {items.lock.owner} (its lock is good for {items.lock.duration_s:g} s)"
            if items.lock.duration_s > watch.span_s:
                yield f"Whether the leader lives takes longer looks: --for {items.lock.duration_s:g}"
    yield from asked_facts(watch.last.leases.values(), watch.last.wall_s)
    yield from lag_facts(watch.snapshots, rules)
    if len(watch.snapshots) == 1:
        yield "One look can't tell who lives and what moves: the table has no times"
    elif watch.span_s < rules.window_s:
        yield f"Gaps and trends take longer looks: --for {rules.window_s:g}"


class Awaited(StrEnum):
    """The states that a command waits for."""

    ALL_OWNED = "all-owned"
    CAUGHT_UP = "caught-up"


def missing(explained: Explanation, awaited: Awaited, within_s: float) -> Explanation | None:
    """The states that are still awaited.

    Args:
        explained: by snapshots in the order of time.
        within_s: a checkpoint that is at most this far behind counts as caught up.
    """
    if not explained.shards:
        return explained
    left = tuple(one for one in explained.shards if _is_missing(one, awaited, within_s))
    return replace(explained, shards=left) if left else None


def _is_missing(one: Conclusion, awaited: Awaited, within_s: float) -> bool:
    lease = one.lease
    if lease is None or one.verdict is Verdict.CHILDREN_MISSING:
        return True
    if one.verdict is Verdict.STREAM_GONE:
        return one.severity is VerdictSeverity.CRITICAL
    if lease.is_finished:
        return False
    if not one.lives:
        return True
    if awaited is Awaited.ALL_OWNED or lease.checkpoint == LATEST:
        return False
    return one.behind_s is None or one.behind_s > within_s
