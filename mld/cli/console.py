"""``kcl-mld console``: a page that shows a running fleet, from the verdict of a shard to its past."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kcl_mld.cli.arguments import DAY_S, Finite
from kcl_mld.cli.fleet_access import looks_at_fleet, open_fleet, rules_of, take_snapshot
from kcl_mld.cli.fleet_documents import as_json, lease_as_json
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import parse_address, takes_properties_file
from kcl_mld.errors import MldError
from kcl_mld.observe.adapters.console.server import ConsoleServer, Published
from kcl_mld.observe.rules.explain import explain as explained
from kcl_mld.observe.rules.fleet_events import fleet_events
from kcl_mld.observe.rules.fleet_history import FleetHistory
from kcl_mld.observe.rules.fleet_workers import fleet_workers
from kcl_mld.observe.rules.lease_list import list_leases

if TYPE_CHECKING:
    from kcl_mld.config.config import Config
    from kcl_mld.observe.fleet_reader import FleetReader
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion
    from kcl_mld.observe.rules.fleet_events import FleetEvent
    from kcl_mld.observe.rules.watching import ExplainRules

#: Of the documents; higher when something in them gets another meaning, or goes away.
VERSION = 1
#: Events that are kept.
EVENTS = 500
#: Snapshots in one failover time, unless --interval sets another number.
_LOOKS = 2
_LEAST_INTERVAL_S = 1.0
#: A snapshot takes at most this fraction (1/n) of the time, however slow the table is.
_SHARE = 4
#: Of the documents of rows, what the table of shards has, too.
_OF_ROWS = (
    "next_owner",
    "counter",
    "pending_checkpoint",
    "throughput_kbps",
    "records_per_s",
    "worker_page",
)
#: Snapshots that are kept beside those that show which workers live, to detect standstills.
_OLD_LOOKS = 10


class ConsoleWatch:
    """The snapshots of one console, and the documents made from them; bounded.

    Args:
        interval_s: between two snapshots, shown on the page.
    """

    def __init__(self, config: Config, rules: ExplainRules, interval_s: float) -> None:
        self._table = config.leases.table_name
        self._application = config.application_name
        self._rules = rules
        self.interval_s = interval_s
        self._snapshots: list[FleetSnapshot] = []
        self._count = 0
        self._history = FleetHistory()
        self._events: deque[FleetEvent] = deque(maxlen=EVENTS)
        self._since_s: float | None = None
        self._known: dict[str, Any] = {}

    @property
    def looks(self) -> int:
        """The snapshots that are kept for the verdicts."""
        return len(self._snapshots)

    def add(self, snapshot: FleetSnapshot) -> Published:
        """Add a snapshot, and update the documents."""
        self._snapshots = _thinned([*self._snapshots, snapshot], self._rules)
        self._count += 1
        self._since_s = self._since_s or snapshot.wall_s
        explanation = explained(self._snapshots, self._rules)
        self._history.add(snapshot, explanation)
        self._events.extend(fleet_events(self._snapshots, self._rules.failover_s))
        document = as_json(self._table, explanation)
        shards = zip(document["shards"], explanation.shards, strict=True)
        rows = {
            one.lease.lease_key: lease_as_json(one)
            for one in list_leases(self._snapshots, explanation, self._rules.failover_s)
        }
        self._known = {
            "version": VERSION,
            "application": self._application,
            **document,
            "shards": [shard | _more(one, rows.get(one.subject, {})) for shard, one in shards],
            "at_s": snapshot.wall_s,
            "since_s": self._since_s,
            "look": self._count,
            "interval_s": self.interval_s,
            "failover_s": self._rules.failover_s,
            "workers": fleet_workers(snapshot, explanation),
            "lineage": self._history.lineage,
            "history": self._history.points,
            "events": tuple(self._events),
        }
        return self._published(None)

    def failed(self, why: str) -> Published:
        """Report that a snapshot failed, so the documents are older than they should be."""
        return self._published(why)

    def _published(self, error: str | None) -> Published:
        document = {**self._known, "error": error}
        keys = ("version", "look", "at_s", "severity", "needs_a_person", "error")
        summary = {key: document.get(key) for key in keys}
        encode = msgspec.json.encode
        return Published(encode(document), encode(summary), self._shard)

    def _shard(self, key: str) -> bytes | None:
        found = self._history.of_shard(key)
        if found is None:
            return None
        changes, samples = found
        events = [one for one in self._events if one.subject == key]
        return msgspec.json.encode(
            {
                "version": VERSION,
                "subject": key,
                "changes": changes,
                "samples": samples,
                "events": events,
            }
        )


def _more(one: Conclusion, row: dict[str, Any]) -> dict[str, Any]:
    """Further fields of a shard's row and of its owner's page; nulls without a row."""
    return {
        "lives": one.lives,
        "owner_switches": row.get("switches"),
        **{name: row.get(name) for name in _OF_ROWS},
    }


def _thinned(snapshots: list[FleetSnapshot], rules: ExplainRules) -> list[FleetSnapshot]:
    """The latest snapshots, and some older ones, which are enough for what stands still."""
    newest_s = snapshots[-1].at
    late_s = rules.late_s + rules.failover_s
    oldest_s = max(late_s, rules.stalled_after_s + rules.failover_s)
    step_s = oldest_s / _OLD_LOOKS
    kept: list[FleetSnapshot] = []
    for one in snapshots:
        age_s = newest_s - one.at
        # One snapshot beyond the oldest age shows what has lasted for all of it.
        if age_s > oldest_s + step_s:
            continue
        if age_s <= late_s or not kept or one.at - kept[-1].at >= step_s:
            kept.append(one)
    return kept


@click.command("console")
@takes_properties_file()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=parse_address,
    default="127.0.0.1:0",
    show_default=True,
    help="Loopback address of the page; port 0 = any free one.",
)
@click.option(
    "--interval",
    "interval_s",
    type=Finite(_LEAST_INTERVAL_S, DAY_S),
    metavar="SECONDS",
    help="Time between two snapshots; default: half of failoverTimeMillis.",
)
@looks_at_fleet(with_once=False, with_stalled_after=True)
def console(
    file: str,
    *,
    listen: tuple[str, int],
    interval_s: float | None,
    tip: bool,
    urls: tuple[str, ...],
    stalled_after_s: float,
) -> int:
    """Serve a page that shows the fleet of the properties FILE, and print its address.

    It reads what the command explain reads, again and again, and changes nothing. What it has seen is
    kept in memory, so it knows no more than since it was started. The address has a token, without
    which nothing is served. Ends with Ctrl-C or SIGTERM.
    """
    host = _loopback(listen[0])
    config = read_config(file)
    rules = rules_of(config, stalled_after_s)
    interval_s = interval_s or max(_LEAST_INTERVAL_S, config.leases.failover_s / _LOOKS)
    server = ConsoleServer(host, listen[1])
    watch = ConsoleWatch(config, rules, interval_s)
    asyncio.run(_serve(config, watch, server, tip=tip, urls=urls))
    return 0


def _loopback(host: str) -> str:
    """The host, if nobody but this machine can reach it.

    Raises:
        click.BadParameter: others can: what the page and its token say would be sent in the clear.
    """
    try:
        if ip_address("127.0.0.1" if host == "localhost" else host).is_loopback:
            return host
    except ValueError:
        pass
    raise click.BadParameter(
        f"{host} is not a loopback address, and the page has no TLS: listen on 127.0.0.1 and reach "
        "it by ssh -L or kubectl port-forward",
        param_hint="--listen",
    )


async def _serve(
    config: Config, watch: ConsoleWatch, server: ConsoleServer, *, tip: bool, urls: tuple[str, ...]
) -> None:
    """Take snapshots and serve them until a signal."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    with open_fleet(config, tips=tip, urls=urls) as reader:
        # An error at the first snapshot ends the command.
        first = watch.add(await take_snapshot(reader, config))
        await server.start()
        server.publish(first)
        click.echo(f"The console of {config.leases.table_name}: {server.address}")
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_watch(reader, config, watch, server))
            await stopped.wait()
            looking.cancel()
        await server.close()


async def _watch(
    reader: FleetReader, config: Config, watch: ConsoleWatch, server: ConsoleServer
) -> None:
    loop = asyncio.get_running_loop()
    took_s = 0.0
    while True:
        await asyncio.sleep(max(watch.interval_s, (_SHARE - 1) * took_s))
        began_at = loop.time()
        try:
            published = watch.add(await take_snapshot(reader, config, fresh=False))
        except MldError as error:
            published = watch.failed(str(error))
        server.publish(published)
        took_s = loop.time() - began_at
