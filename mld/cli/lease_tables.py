"""Leases as people read them: the tables of ``list`` and ``watch``, and the lines of ``describe``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.tables import Column, Section, TableRow, as_table, terminal
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.text import lasted
from kcl_mld.leases.model.containment import skipped_behind
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.leases.rules.lease_report import group_leases, left_free, told_free
from kcl_mld.observe.model.verdict import VerdictSeverity
from kcl_mld.observe.rules.lease_list import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.leases.rules.lease_report import Grouping
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Explanation
    from kcl_mld.observe.rules.fleet_events import FleetEvent
    from kcl_mld.observe.rules.lease_list import ListedLease

COLORS = {VerdictSeverity.CRITICAL: "red", VerdictSeverity.WARNING: "yellow"}
#: In facts that say how to learn more of what ``explain`` concludes.
_HINTS = ("longer looks", "has no lag of")


def table_of(rows: Sequence[ListedLease]) -> tuple[list[Column], Callable[[ListedLease], TableRow]]:
    """The columns that have values in these rows, and a function that makes a table row."""
    is_multi = any(one.lease.stream_identifier is not None for one in rows)
    is_scraped = any(one.page is not None for one in rows)

    def is_shown(column: Column, cell: Callable[[ListedLease], str]) -> bool:
        if column.name == "stream":
            return is_multi
        if column.name in _OF_PAGES:
            return is_scraped
        return column.rank < 6 or any(cell(one) != "-" for one in rows)

    kept = [(column, cell) for column, cell in _CELLS if is_shown(column, cell)]

    def row(one: ListedLease) -> TableRow:
        return TableRow(
            tuple(cell(one) for _column, cell in kept), COLORS.get(one.conclusion.severity)
        )

    return [column for column, _cell in kept], row


def listed(
    table: str,
    rows: Sequence[ListedLease],
    snapshot: FleetSnapshot,
    explanation: Explanation,
    by: Grouping,
    most: int,
    choice: str = "",
) -> str:
    """What ``list`` prints.

    Args:
        explanation: of this snapshot and those before it.
        by: what rows are grouped by.
        most: ``maxLeasesForWorker``.
        choice: the options that chose the rows.
    """
    columns, row = table_of(rows)
    by_key = {one.lease.lease_key: one for one in rows}
    groups = group_leases((one.lease for one in rows), by)
    sections = [
        Section(
            f"{name or '(nobody)'}: {len(owned)}", tuple(row(by_key[o.lease_key]) for o in owned)
        )
        for name, owned in groups.items()
    ]
    lines = heading(table, len(rows), explanation, choice)
    if rows:
        lines.append(as_table(columns, sections, terminal()))
    lines += ["", *beside(snapshot, explanation, most)]
    return "\n".join(lines).rstrip("\n")


def heading(table: str, count: int, explanation: Explanation, choice: str = "") -> list[str]:
    """Table and number of leases, then the state of the fleet as a whole.

    Args:
        count: leases that are shown.
        choice: the options that chose them; "" = all are shown.
    """
    shown = f"{count} lease{'s' * (count != 1)}"
    if choice:
        total = sum(one.lease is not None for one in explanation.shards)
        shown = f"{count} of {total} lease{'s' * (total != 1)} ({choice})"
    facts = [printable(one) for one in explanation.facts if not any(text in one for text in _HINTS)]
    return [printable(f"{table}: {shown}"), *facts]


def beside(snapshot: FleetSnapshot, explanation: Explanation, most: int) -> Iterable[str]:
    """Problems that concern none of the rows that are shown."""
    if snapshot.moving:
        keys = ", ".join(map(printable, snapshot.moving))
        yield (
            "On their way to other keys, so no worker runs; go on with kcl-mld leases migrate: "
            f"{keys}"
        )
    if free := left_free(snapshot.leases.values(), most):
        yield told_free(len(free), most)
    without = [one for one in explanation.shards if one.lease is None]
    for one in (*explanation.fleet, *without):
        if one.severity >= VerdictSeverity.WARNING:
            head = click.style(
                f"{one.severity.word.upper()} {one.verdict}", fg=COLORS[one.severity]
            )
            yield f"{head} {printable(one.subject)}: {printable(one.cause)}"
    if explanation.needs_a_person:
        yield "kcl-mld explain says what to do"


def described(
    one: ListedLease, parents: Iterable[ListedLease], children: Iterable[ListedLease]
) -> str:
    """What ``describe`` prints of a lease."""
    lease, conclusion, page = one.lease, one.conclusion, one.page
    by_id = {kin.lease.shard_id: kin for kin in (*parents, *children)}

    def kin(ids: Iterable[str]) -> str:
        known = [(shard_id, by_id.get(shard_id)) for shard_id in ids]
        return ", ".join(
            f"{shard_id} ({'no row' if row is None else row.conclusion.verdict})"
            for shard_id, row in known
        )

    failure = lease.failure.behind(lease.checkpoint)
    child_ids = dict.fromkeys([*lease.child_shard_ids, *(row.lease.shard_id for row in children)])
    facts = {
        "verdict": f"{conclusion.verdict} ({conclusion.severity.word}): {conclusion.cause}",
        "do": conclusion.todo,
        "stream": one.stream,
        "owner": owners_of(one),
        "host": one.host,
        "group": one.group,
        "state": one.state,
        "renewed": renewed(one),
        "counter": str(lease.lease_counter),
        "checkpoint": str(lease.checkpoint or "-"),
        "pending": lease.pending_checkpoint and str(lease.pending_checkpoint),
        "fails at": failure.suspects and f"{failure.suspects}, {failure.attempts} attempts",
        "asked": lease.request and _asked(lease.request),
        "changed by": lease.steered and _changed_by(lease.steered),
        "skipped": ", ".join(map(str, skipped_behind(lease.skipped, lease.checkpoint))),
        "lag": seconds(one.lag_s),
        "KiB/s": lease.throughput_kbps and f"{lease.throughput_kbps:.1f}",
        "switches": str(lease.owner_switches_since_checkpoint),
        "hash keys": lease.hash_range and str(lease.hash_range),
        "parents": kin(lease.parent_shard_ids),
        "children": kin(child_ids),
    }
    if page is not None:
        facts |= {
            "records/s": number(one.records_per_s),
            "consumer": page.state,
            "call": _call(one),
            "restarts": str(page.restarts),
            "reading fails": page.reading_error,
            "last error": page.last_error,
        }
    lines = [click.style(printable(lease.lease_key), bold=True)]
    lines += [f"  {name:<10}  {printable(text)}" for name, text in facts.items() if text]
    return "\n".join(lines)


def _asked(request: LeaseRequest) -> str:
    """What its holder is asked to do, by whom, and until when that stands."""
    text = f"{request.holder}: {request.verb}, by {request.by or 'somebody'}"
    text += f", until {shown_time(request.expires_s)}"
    return f"{text}: {request.reason}" if request.reason else text


def _changed_by(note: LeaseRequest) -> str:
    """The last command on the lease, and who ran it."""
    text = f"{note.by or 'somebody'}: {note.verb}"
    if note.at_s is not None:
        text += f" at {shown_time(note.at_s)}"
    if note.verb == SteerVerb.RESET:
        text += f", from {note.before or 'no row'}"
    return f"{text}: {note.reason}" if note.reason else text


def owners_of(one: ListedLease) -> str:
    """The owner; in a hand-off both."""
    lease = one.lease
    if lease.checkpoint_owner is not None:
        return f"{lease.checkpoint_owner} > {lease.lease_owner or '-'}"
    return lease.lease_owner or "-"


def renewed(one: ListedLease) -> str:
    """How long ago its owner renewed it, as far as the snapshots show it."""
    if one.lease.actual_owner is None:
        return "-"
    if one.renewed_within_s is not None and one.state != "expired":
        return f"< {lasted(one.renewed_within_s)}" if one.renewed_within_s >= 1 else "< 1 s"
    return "unknown" if one.still_s is None else f"> {lasted(one.still_s)}"


def _call(one: ListedLease) -> str:
    if one.page is None or one.page.call is None:
        return "-"
    return f"{one.page.call} {seconds(one.page.child_silent_s)}"


def _restarts(one: ListedLease) -> str:
    return "-" if one.page is None else str(one.page.restarts)


def seconds(number_s: float | None) -> str:
    """A time that passed; ``-`` where it is not known."""
    return "-" if number_s is None else lasted(number_s)


def shown_time(epoch_s: float) -> str:
    """A time in UTC, to the second."""
    try:
        return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):  # a row may hold any text
        return f"{epoch_s:g}"


def number(value: float | None) -> str:
    """For people."""
    return "-" if value is None else f"{value:.1f}"


#: Heading, how a cell is made of a row, and rank: see :class:`Column`.
_CELLS: tuple[tuple[Column, Callable[[ListedLease], str]], ...] = (
    (Column("stream", least=6), lambda one: one.stream or "-"),
    (Column("shard"), lambda one: one.lease.shard_id),
    (Column("owner", least=10, rank=2), owners_of),
    (Column("verdict"), lambda one: str(one.conclusion.verdict)),
    (Column("state", rank=6), lambda one: one.state),
    (Column("renewed", rank=4), renewed),
    (
        Column("checkpoint", least=13, rank=5, keeps_end=True),
        lambda one: str(one.lease.checkpoint or "-"),
    ),
    (Column("lag", is_number=True, rank=1), lambda one: seconds(one.lag_s)),
    (Column("records/s", is_number=True, rank=3), lambda one: number(one.records_per_s)),
    (Column("call", rank=3), _call),
    (Column("restarts", is_number=True, rank=4), _restarts),
    (Column("host", least=8, rank=7), lambda one: one.host or "-"),
    (Column("group", least=6, rank=7), lambda one: one.group or "-"),
    (Column("parents", rank=8), lambda one: ",".join(one.lease.parent_shard_ids) or "-"),
    (Column("children", rank=8), lambda one: ",".join(one.lease.child_shard_ids) or "-"),
)
_OF_PAGES = {"records/s", "call", "restarts"}


_OPTIONS = {
    "worker": "Only leases of this worker; may be repeated.",
    "group": "Only leases of workers of this workerGroup; may be repeated.",
    "stream": "Only leases of this stream; may be repeated.",
}


@dataclass(frozen=True, slots=True)
class LeaseChoice:
    """Names of which one must fit; without names of a kind each does."""

    workers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        kinds = {"worker": self.workers, "group": self.groups, "stream": self.streams}
        return " ".join(f"--{kind} {name}" for kind, names in kinds.items() for name in names)

    @property
    def is_all(self) -> bool:
        """No lease is left out."""
        return not (self.workers or self.groups or self.streams)

    def of(self, rows: Iterable[ListedLease]) -> tuple[ListedLease, ...]:
        """The leases that are chosen."""
        return tuple(one for one in rows if matches(one, self.workers, self.groups, self.streams))

    def events(
        self, events: Iterable[FleetEvent], rows: Iterable[ListedLease]
    ) -> tuple[FleetEvent, ...]:
        """Events of the chosen rows and of the chosen workers."""
        if self.is_all:
            return tuple(events)
        keys = {one.lease.lease_key for one in rows}
        return tuple(
            event
            for event in events
            if event.subject in keys
            or not {event.subject, event.before, event.after}.isdisjoint(self.workers)
        )


def selects_leases(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the parameter ``choice``."""

    @functools.wraps(command)
    def with_choice(
        *args: Any,
        workers: tuple[str, ...],
        groups: tuple[str, ...],
        streams: tuple[str, ...],
        **options: Any,
    ) -> Any:
        return command(*args, choice=LeaseChoice(workers, groups, streams), **options)

    decorated: Callable[..., Any] = with_choice
    for name, text in reversed(_OPTIONS.items()):
        option = click.option(f"--{name}", f"{name}s", multiple=True, metavar="NAME", help=text)
        decorated = option(decorated)
    return decorated
