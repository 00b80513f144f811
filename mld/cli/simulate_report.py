"""What ``kcl-mld simulate`` prints of an outcome: text, or one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mld.simulate.fleet import Moment
    from mld.simulate.outcome import Outcome

_FREE, _MOVES = "free", "moves"


def as_text(outcome: Outcome) -> Iterator[str]:
    """The timeline and the figures, line by line."""
    yield from _timeline(outcome)
    yield ""
    groups = ", ".join(f"{name} {count}" for name, count in outcome.leases_by_group.items())
    balance_s = outcome.time_to_balance_s
    balance = "not reached" if balance_s is None else f"{balance_s:.0f} s after the last change"
    rows = [
        ("leases by group", groups + (f", nobody {outcome.free}" if outcome.free else "")),
        ("leases by worker", f"{outcome.fewest} to {outcome.most}"),
        ("time to balance", balance),
        ("leases moved", f"{outcome.moves:,}"),
        ("delivered twice", f"{outcome.duplicates:,} records"),
        ("longest time unread", f"{outcome.longest_unread_s:.0f} s"),
        ("requests per hour", _requests(outcome)),
        ("price per hour", f"${outcome.price_per_hour:.4f}"),
    ]
    for name, text in rows:
        yield f"{name + ':':<21}{text}"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The figures as an object of JSON."""
    return {
        "leases_by_group": outcome.leases_by_group,
        "leases_by_worker": {"least": outcome.fewest, "most": outcome.most},
        "time_to_balance_s": outcome.time_to_balance_s,
        "moves": outcome.moves,
        "duplicates": outcome.duplicates,
        "requests_per_hour": round(outcome.reads_per_hour + outcome.writes_per_hour),
        "reads_per_hour": round(outcome.reads_per_hour),
        "writes_per_hour": round(outcome.writes_per_hour),
        "read_units_per_hour": round(outcome.read_units_per_hour),
        "write_units_per_hour": round(outcome.write_units_per_hour),
        "price_per_hour": round(outcome.price_per_hour, 6),
        "free": outcome.free,
        "longest_unread_s": round(outcome.longest_unread_s, 1),
        "timeline": [
            {
                "at_s": round(moment.at_s, 1),
                "event": moment.event,
                "leases_by_group": moment.leases,
                "free": moment.free,
                "moves": moment.moves,
            }
            for moment in outcome.timeline
        ],
    }


def _requests(outcome: Outcome) -> str:
    return (
        f"{outcome.reads_per_hour:,.0f} reads ({outcome.read_units_per_hour:,.0f} units), "
        f"{outcome.writes_per_hour:,.0f} writes ({outcome.write_units_per_hour:,.0f} units)"
    )


def _timeline(outcome: Outcome) -> Iterator[str]:
    groups = list(outcome.leases_by_group)
    rows = [("time", "event", [*groups, _FREE, _MOVES])]
    rows += [(_clock(one.at_s), one.event, _cells(one, groups)) for one in outcome.timeline]
    time_width = max(len(time) for time, _, _ in rows)
    event_width = max(len(event) for _, event, _ in rows)
    widths = [max(len(cells[column]) for _, _, cells in rows) for column in range(len(rows[0][2]))]
    for time, event, cells in rows:
        numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{time:>{time_width}}  {event:<{event_width}}  {numbers}"


def _cells(moment: Moment, groups: Sequence[str]) -> list[str]:
    counts = [moment.leases.get(group, 0) for group in groups]
    return [str(count) for count in (*counts, moment.free, moment.moves)]


def _clock(at_s: float) -> str:
    minutes, seconds = divmod(int(at_s), 60)
    return f"{minutes}:{seconds:02d}"
