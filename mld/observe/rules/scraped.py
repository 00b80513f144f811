"""What the pages of workers add to what tables and streams show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.children.model.consumer_status import CHILD_SILENT_S
from kcl_mld.kernel.model.text import lasted
from kcl_mld.observe.rules.readiness import CRASH_LOOP_FAILURES, READING_FAILS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage

#: Seconds for which an exception of a processor is a warning, and the failure of a child is named.
SHOWN_S = 600.0
#: Seconds that a child may take for one call before it is named.
SLOW_CALL_S = 10.0


def page_of(snapshot: FleetSnapshot, worker: str | None) -> WorkerPage | None:
    """The page of a worker in one snapshot; None = it was not asked, or did not answer."""
    return next((page for page in snapshot.pages if page.worker == worker and worker), None)


def shard_on_page(snapshot: FleetSnapshot, lease: Lease) -> ShardOnPage | None:
    """The lease on its owner's page; None = it is not there, or not held."""
    page = page_of(snapshot, lease.actual_owner)
    return None if page is None else page.shards.get(lease.lease_key)


def records_per_s(snapshots: Sequence[FleetSnapshot], lease: Lease) -> float | None:
    """Records a second that the owner gave to the child, from the first to the last of its pages.

    Args:
        snapshots: in the order of time.
        lease: a row.

    Returns:
        None unless two pages of one hold of the lease say it, or if the child was busy with one batch
        for all of the time: records are counted when they are given to the child.
    """
    counts: list[tuple[float, int]] = []
    is_busy = False
    for snapshot in snapshots:
        page = page_of(snapshot, lease.actual_owner)
        shard = None if page is None else page.shards.get(lease.lease_key)
        if page is None or shard is None or shard.records is None:
            continue
        if counts and shard.records < counts[-1][1]:
            counts.clear()  # a new hold began
        counts.append((page.asked_at, shard.records))
        is_busy = shard.child_silent_s is not None
    if len(counts) < 2 or counts[-1][0] <= counts[0][0]:
        return None
    (first_at, before), (last_at, after) = counts[0], counts[-1]
    if after == before and is_busy:
        return None
    return (after - before) / (last_at - first_at)


def is_failing(shard: ShardOnPage) -> bool:
    """Whether the owner itself counts a shard as one that is not read, by the rules of ``/readyz``."""
    silent_s, fails_s = shard.child_silent_s or 0.0, shard.reading_fails_s or 0.0
    return (
        silent_s >= CHILD_SILENT_S
        or fails_s >= READING_FAILS_S
        # Without a record that waits, it may have recovered, with nothing to checkpoint since.
        or (shard.child_failures >= CRASH_LOOP_FAILURES and shard.processing_lag_s is not None)
    )


def has_raised(shard: ShardOnPage) -> bool:
    """Whether its processor raised an exception recently. Old workers report no time."""
    age_s = shard.child_exception_age_s
    return shard.child_exceptions > 0 and (age_s is None or age_s < SHOWN_S)


def owner_says(shard: ShardOnPage | None, *, is_stalled: bool) -> str:
    """Why a checkpoint stands still or lags, as far as its owner knows it.

    Args:
        shard: on the page of its owner; None = there is none.
        is_stalled: records are known to wait behind the checkpoint.

    Returns:
        Without a full stop; "" = the owner knows of nothing.
    """
    if shard is None:
        return ""
    causes: list[str] = []
    silent_s = shard.child_silent_s
    if shard.reading_fails_s is not None:
        why = f": {shard.reading_error}" if shard.reading_error else ""
        causes.append(f"reading has failed for {lasted(shard.reading_fails_s)}{why}")
    if silent_s is not None and (is_stalled or silent_s >= SLOW_CALL_S):
        causes.append(f"the child has not answered {shard.call} for {lasted(silent_s)}")
    failed_s = shard.child_failure_age_s
    if shard.restarts and (failed_s is None or failed_s < SHOWN_S):
        times = "once" if shard.restarts == 1 else f"{shard.restarts} times"
        ago = "" if failed_s is None else f" {lasted(failed_s)} ago"
        last = f", the last time{ago} because {shard.last_error}" if shard.last_error else ""
        causes.append(f"the child was restarted {times}{last}")
    if has_raised(shard):
        count, age_s = shard.child_exceptions, shard.child_exception_age_s
        last = "" if age_s is None else f", the last {lasted(age_s)} ago"
        causes.append(
            f"its processor raised {count} exception{'s' * (count != 1)} and went on{last}"
        )
    if is_stalled and not causes and shard.state == "PROCESSING" and silent_s is None:
        causes.append("the child owes no answer: it does not checkpoint what it has")
    return "; ".join(causes)


def cure_of(shard: ShardOnPage) -> str:
    """The remedy for a shard without progress, by its owner's page; "" = the page shows none."""
    if shard.reading_fails_s is not None:
        return shard.reading_todo or "see the error: Kinesis does not give the records"
    if shard.child_failures:
        return "see why the child fails: the log has what it wrote to stderr"
    if shard.child_silent_s is not None:
        return (
            f"see what the child does with {shard.call}: it works on one long batch, or hangs; "
            "child_pid on /leases is its process"
        )
    return "see why the program makes no checkpoint: it has answered all that it was given"


def failures(pages: Iterable[WorkerPage]) -> tuple[str, ...]:
    """A sentence for each page that can't be read."""
    return tuple(f"Can't be read: {page.url}: {page.failure}" for page in pages if page.failure)
