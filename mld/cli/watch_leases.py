"""``kcl-mld leases watch``: leases as they move, redrawn on a terminal, events as lines elsewhere."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import click

from kcl_mld.cli.arguments import DAY_S, Finite
from kcl_mld.cli.fleet_access import looks_at_fleet, open_fleet, rules_of, take_snapshot
from kcl_mld.cli.fleet_documents import event_as_json
from kcl_mld.cli.lease_tables import LeaseChoice, beside, heading, selects_leases, table_of
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, terminal
from kcl_mld.errors import AwsError
from kcl_mld.kernel.model.masking import printable
from kcl_mld.observe.rules.explain import explain as explained
from kcl_mld.observe.rules.fleet_events import fleet_events
from kcl_mld.observe.rules.lease_list import list_leases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kcl_mld.config.config import Config
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Explanation
    from kcl_mld.observe.rules.fleet_events import FleetEvent
    from kcl_mld.observe.rules.lease_list import ListedLease

#: Events that stay below the table.
_SHOWN_EVENTS = 8
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command("watch")
@takes_properties_file()
@selects_leases
@looks_at_fleet(with_once=False)
@click.option(
    "--every",
    "every_s",
    type=Finite(0.1, DAY_S),
    metavar="SECONDS",
    help="Time between two snapshots; default: half of failoverTimeMillis.",
)
@click.option(
    "--for",
    "for_s",
    type=Finite(0, DAY_S, least_open=True),
    metavar="SECONDS",
    help="End after this time; default: at Ctrl-C.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "jsonl"]),
    help="Default: table on a terminal, jsonl elsewhere.",
)
def watch(
    file: str,
    *,
    choice: LeaseChoice,
    tip: bool,
    urls: tuple[str, ...],
    every_s: float | None,
    for_s: float | None,
    output: str | None,
) -> int:
    """Show the leases again and again, and who takes, releases, hands over or finishes what.

    On a terminal the table is redrawn in place; rows with events since the last look come first,
    marked with *. Elsewhere each event is one JSON line. Changes nothing. Ctrl-C ends it.
    """
    is_drawn = output == "table" or (output is None and sys.stdout.isatty())
    if is_drawn and not sys.stdout.isatty():
        raise click.UsageError("-o table needs a terminal; use -o jsonl, or leases list")
    config = read_config(file)
    watching = _Watching(config, choice, every_s or config.leases.failover_s / 2, tip=tip)
    try:
        with _screen(is_drawn=is_drawn):
            asyncio.run(watching.run(urls, for_s, is_drawn=is_drawn))
    except KeyboardInterrupt:
        return 0
    return 0


@contextmanager
def _screen(*, is_drawn: bool) -> Iterator[None]:
    """A screen of its own; the terminal's earlier content is restored, also after SIGTERM."""
    if not is_drawn:
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    click.echo(_OTHER_SCREEN, nl=False)
    try:
        yield
    finally:
        click.echo(_OWN_SCREEN, nl=False)
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


class _Watching:
    """One run: the snapshots that verdicts and events need, and the last events."""

    def __init__(self, config: Config, choice: LeaseChoice, every_s: float, *, tip: bool) -> None:
        self._config = config
        self._choice = choice
        self._every_s = every_s
        self._tip = tip
        self._rules = rules_of(config)
        self._snapshots: list[FleetSnapshot] = []
        self._events: deque[FleetEvent] = deque(maxlen=_SHOWN_EVENTS)

    async def run(self, urls: tuple[str, ...], for_s: float | None, *, is_drawn: bool) -> None:
        """Take snapshots until the time is over.

        Args:
            urls: of workers that are asked, too.
            for_s: how long; None = until cancelled.
            is_drawn: on the screen, not as lines.

        Raises:
            AwsError: the first snapshot fails; later ones are repeated.
        """
        loop = asyncio.get_running_loop()
        ends_at = None if for_s is None else loop.time() + for_s
        with open_fleet(self._config, tips=self._tip, urls=urls) as reader:
            while True:
                failure = None
                try:
                    one = await take_snapshot(reader, self._config, fresh=not self._snapshots)
                except AwsError as error:
                    if not self._snapshots:
                        raise
                    failure = f"The last look failed: {error}"
                else:
                    self._keep(one)
                self._show(failure, is_drawn=is_drawn)
                left_s = self._every_s if ends_at is None else ends_at - loop.time()
                if left_s <= 0:
                    return
                await asyncio.sleep(min(self._every_s, left_s))

    def _keep(self, one: FleetSnapshot) -> None:
        """With --tip a checkpoint may have to stand still for long before it is STALLED."""
        window_s = self._rules.late_s + self._rules.failover_s
        if self._tip:
            window_s = max(window_s, self._rules.stalled_after_s + self._every_s)
        self._snapshots = [old for old in self._snapshots if one.at - old.at <= window_s] + [one]

    def _show(self, failure: str | None, *, is_drawn: bool) -> None:
        events = () if failure else fleet_events(self._snapshots, self._rules.failover_s)
        if not is_drawn:
            if failure:
                click.echo(failure, err=True)
            chosen = self._choice
            rows = () if chosen.is_all or not events else self._rows(self._explained())
            for event in chosen.events(events, rows):
                click.echo(json.dumps(event_as_json(event)))
            sys.stdout.flush()
            return
        explanation = self._explained()
        rows = self._rows(explanation)
        events = self._choice.events(events, rows)
        self._events.extend(events)
        config, choice = self._config, str(self._choice)
        lines = [
            f"{_clock(self._snapshots[-1].wall_s)}  {explanation.severity.word}",
            *heading(config.leases.table_name, len(rows), explanation, choice),
            *beside(self._snapshots[-1], explanation, config.leases.max_leases_for_worker),
        ]
        lines = _drawn(lines, rows, events, self._events)
        click.echo(_fitted([*([failure] if failure else []), *lines]), nl=False)
        sys.stdout.flush()

    def _explained(self) -> Explanation:
        return explained(self._snapshots, self._rules)

    def _rows(self, explanation: Explanation) -> tuple[ListedLease, ...]:
        return self._choice.of(list_leases(self._snapshots, explanation, self._rules.failover_s))


def _drawn(
    head: list[str],
    rows: Sequence[ListedLease],
    events: Iterable[FleetEvent],
    recent: Iterable[FleetEvent],
) -> list[str]:
    """The lines of a screen: what matters most first, so that a small one shows it."""
    marked = {event.subject for event in events}
    ordered = sorted(
        rows,
        key=lambda one: (
            one.lease.lease_key not in marked,
            -one.conclusion.severity,
            one.lease.lease_key,
        ),
    )
    lines = list(head)
    last = [event_line(event) for event in recent]
    room = shutil.get_terminal_size().lines - len(lines) - len(last) - 5
    if ordered:
        columns, row = table_of(rows)
        shown = [
            TableRow(
                ("*" if one.lease.lease_key in marked else " ", *row(one).cells), row(one).color
            )
            for one in ordered[: max(1, room)]
        ]
        table = as_table([Column(" "), *columns], [Section("", tuple(shown))], terminal())
        lines += ["", *table.split("\n")]
        if len(ordered) > len(shown):
            lines.append(f"… and {len(ordered) - len(shown)} more")
    return [*lines, "", *last]


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%H:%M:%SZ")


def event_line(event: FleetEvent) -> str:
    """One event for people."""
    change = ""
    if event.before is not None or event.after is not None:
        change = f"  {event.before or '-'} > {event.after or '-'}"
    return printable(f"{_clock(event.time_s)}  {event.kind}  {event.subject}{change}")


def _fitted(lines: Iterable[str]) -> str:
    """The screen anew, without a flicker; a line that does not fit is cut."""
    width, height = shutil.get_terminal_size()
    shown = [
        line if len(click.unstyle(line)) <= width else click.unstyle(line)[:width]
        for line in list(lines)[: height - 1]
    ]
    return _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in shown) + _CLEAR_BELOW
