"""The JSON that commands print of a fleet; ``docs/fleet-commands.md`` describes each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion, Explanation
    from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage
    from kcl_mld.observe.rules.fleet_events import FleetEvent
    from kcl_mld.observe.rules.fleet_workers import WorkerState
    from kcl_mld.observe.rules.lease_list import ListedLease

#: Of the JSON: a key never changes its meaning within one, others may be added.
VERSION = 1


def fleet_document(table: str, snapshot: FleetSnapshot, explanation: Explanation) -> dict[str, Any]:
    """The part of a fleet's document beside its rows.

    Args:
        explanation: of this snapshot and those before it.
    """
    return {
        "version": VERSION,
        "table": table,
        "looks": explanation.looks,
        "span_s": round(explanation.span_s, 3),
        "facts": list(explanation.facts),
        "fleet": [conclusion_as_json(one) for one in explanation.fleet],
        "without_lease": [
            conclusion_as_json(one) for one in explanation.shards if one.lease is None
        ],
        "moving": list(snapshot.moving),
    }


def lease_as_json(one: ListedLease) -> dict[str, Any]:
    """One row."""
    lease, position, pending = one.lease, one.lease.checkpoint, one.lease.pending_checkpoint
    return {
        "lease": lease.lease_key,
        "stream": one.stream,
        "stream_identifier": lease.stream_identifier,
        "shard": lease.shard_id,
        "owner": lease.actual_owner,
        "next_owner": lease.lease_owner if lease.is_handed_over else None,
        "host": one.host,
        "group": one.group,
        "state": one.state,
        "verdict": str(one.conclusion.verdict),
        "severity": one.conclusion.severity.word,
        "cause": one.conclusion.cause,
        "renewed_within_s": rounded(one.renewed_within_s),
        "still_s": rounded(one.still_s),
        "counter": lease.lease_counter,
        "checkpoint": None if position is None else position.sequence_number,
        "sub_sequence_number": None if position is None else position.sub_sequence_number,
        "pending_checkpoint": None if pending is None else str(pending),
        "lag_s": rounded(one.lag_s),
        "throughput_kbps": lease.throughput_kbps,
        "switches": lease.owner_switches_since_checkpoint,
        "changed_by": None if lease.steered is None else _note_as_json(lease.steered),
        "asked": None if lease.request is None else _request_as_json(lease.request),
        "parents": list(lease.parent_shard_ids),
        "children": list(lease.child_shard_ids),
        "hash_keys": None if lease.hash_range is None else str(lease.hash_range),
        "records_per_s": rounded(one.records_per_s),
        "worker_page": None if one.page is None else _page_as_json(one.page),
    }


def _request_as_json(request: LeaseRequest) -> dict[str, Any]:
    return {
        "verb": request.verb,
        "worker": request.holder,
        "by": request.by,
        "expires_s": request.expires_s,
        "reason": request.reason,
        "request": request.request_id,
    }


def _note_as_json(note: LeaseRequest) -> dict[str, Any]:
    return {
        "by": note.by,
        "verb": note.verb,
        "at_s": note.at_s,
        "before": note.before,
        "reason": note.reason,
        "request": note.request_id,
    }


def _page_as_json(page: ShardOnPage) -> dict[str, Any]:
    return {
        "state": page.state,
        "call": page.call,
        "call_s": rounded(page.child_silent_s),
        "restarts": page.restarts,
        "child_exceptions": page.child_exceptions,
        "child_exception_age_s": rounded(page.child_exception_age_s),
        "reading_fails_s": rounded(page.reading_fails_s),
        "reading_error": page.reading_error,
        "reading_todo": page.reading_todo,
        "last_error": page.last_error,
        "unconfirmed_s": rounded(page.unconfirmed_s),
        "children": [
            {
                "child": one.child,
                "pid": one.pid,
                "silent_s": rounded(one.silent_s),
                "unanswered": one.unanswered,
                "confirmed": one.confirmed,
                "owes": one.owes,
                "is_left_out": one.is_left_out,
                "restarts": one.restarts,
            }
            for one in page.children
        ],
    }


def worker_as_json(
    one: WorkerState, host: str | None, page: WorkerPage | None, records_per_s: float | None
) -> dict[str, Any]:
    """One worker.

    Args:
        host: where it runs; None = not known.
        page: the worker's own page; None = it was not requested.
        records_per_s: of all its shards; None = not known.
    """
    return {
        "worker": one.worker,
        "host": host,
        "lives": one.lives,
        "leads": one.leads,
        "group": one.group,
        "leases": one.leases,
        "silent_leases": one.silent,
        "cpu_percent": rounded(one.cpu_percent),
        "throughput_kbps": rounded(one.throughput_kbps),
        "metrics_age_s": rounded(one.metrics_age_s),
        "records_per_s": rounded(records_per_s),
        "lag_s": None if page is None else rounded(greatest(s.lag_s for s in page.shards.values())),
        "call_s": None
        if page is None
        else rounded(greatest(s.child_silent_s for s in page.shards.values())),
        "restarts": None if page is None else sum(s.restarts for s in page.shards.values()),
    }


def event_as_json(event: FleetEvent) -> dict[str, Any]:
    """One event, a line of ``watch``."""
    return {
        "time_s": round(event.time_s, 3),
        "event": str(event.kind),
        "subject": event.subject,
        "before": event.before,
        "after": event.after,
        **({} if event.checkpoint is None else {"checkpoint": event.checkpoint}),
    }


def greatest(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)


def rounded(number: float | None) -> float | None:
    """To milliseconds, or thousandths of another unit."""
    return None if number is None else round(number, 3)


def as_json(table: str, explanation: Explanation) -> dict[str, Any]:
    """One JSON object; names and verdicts are for programs, sentences for people."""
    return {
        "table": table,
        "severity": explanation.severity.word,
        "needs_a_person": explanation.needs_a_person,
        "looks": explanation.looks,
        "span_s": round(explanation.span_s, 3),
        "facts": list(explanation.facts),
        "fleet": [conclusion_as_json(one) for one in explanation.fleet],
        "shards": [conclusion_as_json(one) | _row_as_json(one) for one in explanation.shards],
    }


def conclusion_as_json(one: Conclusion) -> dict[str, Any]:
    """One verdict with its reasons."""
    return {
        "subject": one.subject,
        "verdict": str(one.verdict),
        "severity": one.severity.word,
        "cause": one.cause,
        "since_s": None if one.since_s is None else round(one.since_s, 3),
        "do": one.todo,
        "link": one.link,
    }


def _row_as_json(one: Conclusion) -> dict[str, Any]:
    lease = one.lease
    position = None if lease is None else lease.checkpoint
    return {
        "stream": None if lease is None else lease.stream_identifier,
        "shard": None if lease is None else lease.shard_id,
        "owner": None if lease is None else lease.actual_owner,
        "checkpoint": None if position is None else str(position),
        "behind_s": one.behind_s,
        "behind_age_s": None if one.behind_age_s is None else round(one.behind_age_s, 3),
        "lag_s": one.lag_s,
    }
