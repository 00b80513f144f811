"""What ``kcl-mld simulate`` shows of an outcome: text, one JSON object, or a picture."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mld.cli.places import require_writable
from mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mld.simulate.fleet import Moment, Sample
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


#: One in so many samples may show a worker with more leases than fit into the picture.
_MOMENTS = 100
#: Inches.
_SIZE = (10, 7)


def require_plot(file: str) -> None:
    """Refuse a picture that could not be made, before anything is simulated.

    Raises:
        ConfigError: the package is missing, or the file could not be written.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError("needs the package matplotlib: pip install 'kcl-mld[plot]'", key="--plot")
    require_writable(file, "--plot")
    if Path(file).suffix.lower() != ".png":
        raise ConfigError(f"{file}: only .png files are written", key="--plot")


def draw(outcome: Outcome, file: str, title: str) -> None:
    """Write the picture.

    Args:
        outcome: what to show.
        file: path of a PNG file, replaced.
        title: above it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = [sample.at_s / 60 for sample in outcome.samples]
    workers = dict.fromkeys(worker for sample in outcome.samples for worker in sample.leases)
    colors = {group: f"C{number}" for number, group in enumerate(outcome.leases_by_group)}
    for worker in workers:
        counts = [sample.leases.get(worker, float("nan")) for sample in outcome.samples]
        above.plot(minutes, counts, color=colors[_group_of(worker)], linewidth=0.7, alpha=0.6)
    for group, color in colors.items():
        sums = [
            sum(count for worker, count in sample.leases.items() if _group_of(worker) == group)
            for sample in outcome.samples
        ]
        below.plot(minutes, sums, color=color, label=group)
    below.plot(minutes, [sample.free for sample in outcome.samples], "k:", label="nobody")
    above.set_title(title)
    above.set_ylabel("leases of a worker")
    below.set_ylabel("leases of a group")
    below.set_xlabel("minutes")
    below.legend(loc="best")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    above.set_ylim(top=1.1 * lasting_most(outcome.samples))
    figure.savefig(file, format="png", dpi=110)


def lasting_most(samples: Sequence[Sample]) -> int:
    """The most leases of a worker, moments aside; 1 if nobody ever has one.

    The first worker of a fleet has all leases for a second. On a scale for that, nothing else could
    be seen.
    """
    most = sorted(max(sample.leases.values(), default=0) for sample in samples)
    return max(1, most[-1 - len(most) // _MOMENTS])


def _group_of(worker: str) -> str:
    return worker.partition("-")[0]
