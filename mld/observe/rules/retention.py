"""Verdicts on a row by the time for which its stream keeps records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.children.model.consumer_status import UNCONFIRMED_S
from kcl_mld.children.rules.loss import RISK, sentence, shard_created_s
from kcl_mld.kernel.model.text import lasted
from kcl_mld.observe.model.verdict import Verdict, VerdictSeverity
from kcl_mld.observe.rules.scraped import shard_on_page
from kcl_mld.streams.rules.existence import ShardExistence, shard_existence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.rules.watching import ExplainRules, Snapshots


class RetentionFinding(NamedTuple):
    """A verdict; the fields are those of :class:`~kcl_mld.observe.model.verdict.Conclusion`."""

    verdict: Verdict
    severity: VerdictSeverity
    cause: str
    todo: str


def losses(watch: Snapshots, lease: Lease) -> Iterator[RetentionFinding]:
    """Losses that owners have noted in the row within the last day; also of a finished shard."""
    loss = lease.loss
    if loss is None or not loss.is_shown(watch.last.wall_s):
        return
    times = "" if loss.count == 1 else f" (found {loss.count} times within a day)"
    yield RetentionFinding(
        Verdict.RECORDS_LOST if loss.is_certain else Verdict.RECORDS_MAY_BE_LOST,
        VerdictSeverity.CRITICAL if loss.is_certain else VerdictSeverity.WARNING,
        f"{sentence(loss)}{times}",
        "see docs/operations.md#lost-records; it is shown for a day",
    )


def retention(watch: Snapshots, lease: Lease, rules: ExplainRules) -> Iterator[RetentionFinding]:
    """A shard that is past retention, and positions that soon are."""
    keeps_longer = rules.traits.keeps_longer
    listed = watch.listed.get(lease.stream_identifier)
    if (
        listed is not None
        and lease.shard_id not in listed
        and shard_existence(lease.shard_id, None, listed.values(), watch.last.wall_s)
        is ShardExistence.TRIMMED
    ):
        yield RetentionFinding(
            Verdict.RECORDS_LOST,
            VerdictSeverity.CRITICAL,
            "its shard is past retention, and was not read to its end",
            "what was not read is gone"
            + ("; raise the retention of the stream before more is" if keeps_longer else ""),
        )
    stream = watch.streams.get(lease.stream_identifier)
    if stream is None or not stream.retention_s:
        return
    tip = watch.last.tips.get(lease.lease_key)
    if tip is not None and tip.behind_s is not None:
        yield from _by_tip(tip.behind_s, stream.retention_s)
    else:
        yield from _by_ages(watch, lease, stream.retention_s, rules)


def unconfirmed(watch: Snapshots, lease: Lease) -> Iterator[RetentionFinding]:
    """A checkpoint that waits for one of several children; only the page of its owner says so."""
    page = shard_on_page(watch.last, lease)
    waited_s = None if page is None else page.unconfirmed_s
    if waited_s is None or waited_s < UNCONFIRMED_S:
        return
    stream = watch.streams.get(lease.stream_identifier)
    retention_s = None if stream is None else stream.retention_s
    is_close = retention_s is not None and waited_s >= RISK * retention_s
    yield RetentionFinding(
        Verdict.UNCONFIRMED,
        VerdictSeverity.CRITICAL if is_close else VerdictSeverity.WARNING,
        f"one of its children has not confirmed its records for {lasted(waited_s)}, so the checkpoint "
        "does not move",
        "look at children in /leases of its owner, and at the log of that child; with "
        "childConfirms = status an answer confirms a batch",
    )


def _by_tip(behind_s: float, retention_s: float) -> Iterator[RetentionFinding]:
    of = f"its lag is {lasted(behind_s)} of the {lasted(retention_s)} for which records stay"
    if behind_s >= retention_s:
        yield RetentionFinding(
            Verdict.RECORDS_LOST,
            VerdictSeverity.CRITICAL,
            of,
            "raise the retention of the stream now; what is older is gone",
        )
    elif behind_s >= RISK * retention_s:
        yield RetentionFinding(
            Verdict.RETENTION_RISK,
            VerdictSeverity.CRITICAL,
            f"{of}; what is older can't be seen, and may be lost already",
            "raise the retention of the stream now, then make the consumer faster",
        )


def _by_ages(
    watch: Snapshots, lease: Lease, retention_s: float, rules: ExplainRules
) -> Iterator[RetentionFinding]:
    """Without a read of the shard: by its owner's position, and the times noted in its row."""
    page = shard_on_page(watch.last, lease)
    keeps_longer = rules.traits.keeps_longer
    read_s = None if page is None else page.reading_lag_s
    # A shard has no records from before its creation.
    until_s, now_s = lease.read_until_s, watch.last.wall_s
    if until_s is not None:
        until_s = max(until_s, shard_created_s(lease.shard_id, now_s) or until_s)
    if read_s is not None and read_s >= RISK * retention_s:
        yield RetentionFinding(
            Verdict.RETENTION_RISK,
            VerdictSeverity.CRITICAL,
            f"its owner reads {lasted(read_s)} behind the tip of the {lasted(retention_s)} for which "
            "records stay; what is older is lost while it reads",
            "raise the retention of the stream now, then make the consumer faster"
            if keeps_longer
            else "make the consumer faster now: the retention of such a stream can't be raised",
        )
    elif until_s is not None and now_s - until_s >= RISK * retention_s:
        age_s = now_s - until_s
        yield RetentionFinding(
            Verdict.RETENTION_RISK,
            VerdictSeverity.WARNING,
            f"what arrived in the last {lasted(age_s)} is not known to be checkpointed, and records stay "
            f"for {lasted(retention_s)}: what is older is lost at the next start, if there is any",
            f"ask with {rules.asking} whether records wait; start workers, or see why the child does "
            "not checkpoint" + (", and raise the retention until then" if keeps_longer else ""),
        )
