"""``kcl-mld simulate``: how a fleet shares its leases when workers come and go, and what it costs.

An outcome is shown as text, as one JSON object, or as a picture.
"""

from __future__ import annotations

import json
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import Finite, WholeNumber, require_writable
from kcl_mld.config.config import LeaseConfig
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import brief
from kcl_mld.leases.rules.renewal import most_renewable
from kcl_mld.simulate.fleet import SimulatedFleet, outcome_of
from kcl_mld.simulate.profile import ProfileName
from kcl_mld.simulate.scenario import (
    MAX_GROUPS,
    MAX_WORKERS,
    ChangeKind,
    Load,
    Scenario,
    check,
    group_names,
    parse_change,
    parse_duration,
)
from kcl_mld.simulate.table import PRICE_READ, PRICE_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcl_mld.simulate.fleet import Moment, Outcome, Sample

_FREE, _MOVES = "free", "moves"

#: One sample in this number may show a worker with more leases than fit into the picture.
_MOMENTS = 100
#: Inches.
_SIZE = (10, 7)
#: Bounds of a simulation; larger fleets would take too long.
MAX_SHARDS, MAX_DURATION_S = 10_000, 86_400.0
#: Steps of the progress bar.
_STEPS = 100
#: A record of Kinesis has at most 10 MiB; 10,000 shards take ten million records a second.
_RECORD_BYTES, _RATE = WholeNumber(1, 10 * 2**20), Finite(0, 1e9, least_open=True)
#: As in Java, whose properties these are.
_JAVA_INT = WholeNumber(1, 2**31 - 1)
#: A dollar for each request and more is no price.
_PRICE = Finite(0, 1e6)


def as_text(outcome: Outcome, most: int) -> Iterator[str]:
    """The timeline and the figures, line by line.

    Args:
        most: leases that one worker can renew in time.
    """
    yield from _timeline(outcome)
    yield ""
    groups = ", ".join(f"{name} {count}" for name, count in outcome.leases_by_group.items())
    balance_s = outcome.time_to_balance_s
    balance = "not reached" if balance_s is None else f"{balance_s:.0f} s after the last change"
    rows = [
        ("leases by group", groups + (f", nobody {outcome.free}" if outcome.free else "")),
        ("leases by worker", f"{outcome.fewest} to {outcome.most}"),
        ("renewed in time", f"up to {most:,} leases of a worker"),
        ("time to balance", balance),
        ("leases moved", f"{outcome.moves:,}"),
        ("delivered twice", f"{outcome.duplicates:,} records"),
        ("longest time unread", f"{outcome.longest_unread_s:.0f} s"),
        ("requests per hour", _requests(outcome)),
        ("price per hour", f"${outcome.price_per_hour:.4f}"),
    ]
    for name, text in rows:
        yield f"{name + ':':<21}{text}"


def as_json(outcome: Outcome, most: int) -> dict[str, Any]:
    """The figures as an object of JSON; ``most`` as above."""
    return {
        "leases_by_group": outcome.leases_by_group,
        "leases_by_worker": {"least": outcome.fewest, "most": outcome.most},
        "most_renewable": most,
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
        file: path of a PNG file, replaced.
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


class Seconds(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """A length of time such as 10s, 5m or 1h."""

    name = "TIME"

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s

    def __str__(self) -> str:
        """Its bounds."""
        return f"{self._least_s:g}s to {self._most_s:.6g}s"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; a failure is an error of usage."""
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(value, key="")
        except ConfigError as error:
            self.fail(error.why, param, ctx)
        if not self._least_s <= seconds <= self._most_s:
            self.fail(f"{brief(value)} is not from {self}", param, ctx)
        return seconds


_FAILOVER = Seconds(1, 600)
_CHECKPOINTS = Seconds(0.1, MAX_DURATION_S)
_DURATION = Seconds(60, MAX_DURATION_S)
_ANSWERS = Seconds(0.001, 1)


def _changes(kind: ChangeKind, text: str) -> Callable[..., Callable[..., int]]:
    return click.option(
        f"--{kind}", f"{kind}s", multiple=True, metavar="COUNT[:GROUP]@TIME", help=text
    )


@click.command("simulate", short_help="plan a fleet: balance, moves, failover, cost")
@click.option(
    "--profile",
    type=click.Choice([str(name) for name in ProfileName]),
    default=str(ProfileName.OURS),
    show_default=True,
    help="Kind of workers: Java 2.x, Java 3.x, or kcl-mld in a fleet of 3.x.",
)
@click.option(
    "--workers",
    type=WholeNumber(1, MAX_WORKERS),
    default=4,
    show_default=True,
    help="Workers that start at the beginning, within five seconds.",
)
@click.option(
    "--groups",
    type=WholeNumber(1, MAX_GROUPS),
    default=1,
    show_default=True,
    help="Number of groups (groupA, groupB, …) that the workers are spread over.",
)
@click.option(
    "--shards",
    type=WholeNumber(1, MAX_SHARDS),
    default=16,
    show_default=True,
    help="Number of shards; each starts with a lease without an owner.",
)
@click.option(
    "--failover",
    "failover_s",
    type=_FAILOVER,
    default="10s",
    show_default=True,
    help=f"failoverTimeMillis of all workers, {_FAILOVER}.",
)
@_changes(ChangeKind.JOIN, "Workers that start at TIME, such as 20@5m or 20:groupB@5m; repeatable.")
@_changes(ChangeKind.LEAVE, "Workers that are stopped (SIGTERM) at TIME; repeatable.")
@_changes(ChangeKind.KILL, "Workers that die at TIME, such as 3@8m, or leader@8m; repeatable.")
@click.option(
    "--throughput",
    type=click.Choice([str(load) for load in Load]),
    default=str(Load.EVEN),
    show_default=True,
    help="Distribution of the records over the shards.",
)
@click.option(
    "--records-per-second",
    type=_RATE,
    default=1000.0,
    show_default=True,
    help="Records per second of the whole stream.",
)
@click.option(
    "--record-bytes",
    type=_RECORD_BYTES,
    default=1000,
    show_default=True,
    help="Size of a record.",
)
@click.option(
    "--checkpoint-every",
    "checkpoint_every_s",
    type=_CHECKPOINTS,
    default="10s",
    show_default=True,
    help=f"Pause between two checkpoints of a shard, {_CHECKPOINTS}.",
)
@click.option("--max-leases", type=_JAVA_INT, default=2**31 - 1, help="maxLeasesForWorker.")
@click.option(
    "--max-steal",
    type=_JAVA_INT,
    default=1,
    show_default=True,
    help="maxLeasesToStealAtOneTime; only Java 2.x steals.",
)
@click.option(
    "--table-answers",
    "answer_s",
    type=_ANSWERS,
    default="10ms",
    show_default=True,
    help=f"Time from a write on the lease table to its answer, {_ANSWERS}.",
)
@click.option(
    "--duration",
    "duration_s",
    type=_DURATION,
    default="30m",
    show_default=True,
    help=f"Simulated time, {_DURATION}.",
)
@click.option(
    "--seed",
    type=WholeNumber(-(2**63), 2**63 - 1),
    default=1,
    show_default=True,
    help="The same seed gives the same result.",
)
@click.option(
    "--price-read",
    type=_PRICE,
    default=PRICE_READ,
    show_default=True,
    help="Dollars per million read request units in your region.",
)
@click.option(
    "--price-write",
    type=_PRICE,
    default=PRICE_WRITE,
    show_default=True,
    help="Dollars per million write request units in your region.",
)
@click.option("--json", "with_json", is_flag=True, help="Print one JSON object on one line.")
@click.option(
    "--plot",
    type=click.Path(),
    metavar="FILE.png",
    help="Draw leases over time; needs the extra [plot].",
)
def simulate(
    *,
    profile: str,
    workers: int,
    groups: int,
    shards: int,
    failover_s: float,
    joins: tuple[str, ...],
    leaves: tuple[str, ...],
    kills: tuple[str, ...],
    throughput: str,
    records_per_second: float,
    record_bytes: int,
    checkpoint_every_s: float,
    max_leases: int,
    max_steal: int,
    answer_s: float,
    duration_s: float,
    seed: int,
    price_read: float,
    price_write: float,
    with_json: bool,
    plot: str | None,
) -> int:
    """Simulate a fleet and print what happens to its leases.

    The workers make the real decisions, without AWS. Write times as 90, 10s, 5m or 1h.
    """
    scenario = Scenario(
        workers=workers,
        groups=group_names(groups),
        shards=shards,
        failover_s=failover_s,
        duration_s=duration_s,
        changes=tuple(
            parse_change(kind, text, key=f"--{kind}")
            for kind, texts in zip(ChangeKind, (joins, leaves, kills), strict=True)
            for text in texts
        ),
        load=Load(throughput),
        records_per_s=records_per_second,
        record_bytes=record_bytes,
        checkpoint_every_s=checkpoint_every_s,
        max_leases=max_leases,
        max_steal=max_steal,
        answer_s=answer_s,
    )
    check(scenario)
    if plot is not None:
        require_plot(plot)
    fleet = SimulatedFleet(scenario, ProfileName(profile), random.Random(seed))
    _run(fleet)
    outcome = outcome_of(fleet, price_read, price_write)
    if plot is not None:
        draw(outcome, plot, f"{profile}: {shards} leases")
    most = most_renewable(LeaseConfig(table_name="", failover_s=failover_s), answer_s)
    lines = [json.dumps(as_json(outcome, most))] if with_json else as_text(outcome, most)
    for line in lines:
        click.echo(line)
    return 0


def _run(fleet: SimulatedFleet) -> None:
    """Let the simulated time pass, with a bar on a terminal."""
    duration_s = fleet.scenario.duration_s
    steps = [duration_s * number / _STEPS for number in range(1, _STEPS + 1)]
    if sys.stderr.isatty():
        with click.progressbar(steps, label="Simulating", file=sys.stderr) as bar:
            for until_s in bar:
                fleet.run(until_s)
    else:
        fleet.run(duration_s)
    fleet.finish()
