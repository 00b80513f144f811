"""Opens what commands that watch a fleet need: clients that read, and nothing of a daemon."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from kcl_mld.aws import clients
from kcl_mld.aws.credentials import AwsSessions, require_credentials
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.kinesis_port import open_kinesis
from kcl_mld.aws.regions import resolve_region
from kcl_mld.cli.arguments import DAY_S, Finite
from kcl_mld.errors import NotFound, ResourceMissing
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import RandomIds, SystemClock
from kcl_mld.kernel.model.masking import brief
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.observe.adapters.worker_pages import WorkerPages
from kcl_mld.observe.fleet_reader import FleetReader, fleet_items
from kcl_mld.observe.rules.explain import explain as explained
from kcl_mld.observe.rules.watching import STALLED_AFTER_S, ExplainRules
from kcl_mld.observe.stream_reader import StreamReader
from kcl_mld.observe.tip_reader import TipReader
from kcl_mld.streams.rules.stream_identity import stream_to_read
from kcl_mld.streams.stream_names import configured_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcl_mld.aws.kinesis_port import KinesisPort
    from kcl_mld.config.config import Config
    from kcl_mld.config.credentials import CredentialChain
    from kcl_mld.config.stream import Stream
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Explanation
    from kcl_mld.streams.stream_names import StreamNames

_THREADS = 8
#: Snapshots in one failover time.
LOOKS = 4


def rules_of(config: Config, stalled_after_s: float = STALLED_AFTER_S) -> ExplainRules:
    """The times that the file sets."""
    return ExplainRules(
        failover_s=config.leases.failover_s,
        stalled_after_s=stalled_after_s,
        hand_off_s=config.leases.hand_off_timeout_s,
        max_leases=config.leases.max_leases_for_worker,
        traits=config.traits,
    )


def _page_url(text: str) -> str:
    """An address as it is asked, of a worker that serves ``--http``.

    Raises:
        click.BadParameter: it is none, or has a password, which would be shown.
    """
    wrong = click.BadParameter(f"{brief(text)!r} is not http://HOST:PORT, the --http of a worker")
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not is_url or parts.path not in {"", "/", "/leases"} or parts.query or parts.fragment:
        raise wrong
    if "@" in parts.netloc:
        raise click.BadParameter("user names and passwords in addresses are not sent")
    return urlunsplit((parts.scheme, parts.netloc, "/leases", "", ""))


def _page_urls(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_page_url, texts)))


def looks_at_fleet(
    *, with_once: bool = True, with_stalled_after: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--tip`` and ``--scrape``, and where it takes them ``--once``, ``--stalled-after``."""
    options = [
        click.option(
            "--tip",
            is_flag=True,
            help="Ask each shard how far its checkpoint is behind: one read a minute and shard.",
        ),
        click.option(
            "--scrape",
            "urls",
            multiple=True,
            metavar="URL",
            callback=_page_urls,
            help="Ask the worker at http://HOST:PORT, its --http, too; may be repeated.",
        ),
    ]
    if with_once:
        text = "One look; who lives and what moves is not known then."
        options.insert(1, click.option("--once", is_flag=True, help=text))
    if with_stalled_after:
        options.append(
            click.option(
                "--stalled-after",
                "stalled_after_s",
                type=Finite(0, DAY_S, least_open=True),
                default=STALLED_AFTER_S,
                show_default=True,
                metavar="SECONDS",
                help="Report STALLED if records wait this long behind a checkpoint that does not move.",
            )
        )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """What commands ask, opened for one application.

    Attributes:
        begins_s: epoch seconds at which shards at AT_TIMESTAMP of a stream begin.
        pool: makes a pool of threads, which ends with the access.
    """

    dynamodb: BotocoreDynamoDb
    kinesis: KinesisPort
    store: LeaseStore
    streams: StreamReader
    clock: SystemClock
    begins_s: Callable[[Stream], float | None]
    pool: Callable[[str], CallPool]


@contextmanager
def open_access(config: Config) -> Iterator[FleetAccess]:
    """Clients and readers for the application that a file describes; closed on exit.

    Raises:
        ConfigError: no region, an endpoint that is no URL, or a stream that can't be named.
        CredentialsMissing: a client's chain has no credentials.
    """
    region = resolve_region(config.aws.kinesis_region or config.stream.region)
    sessions = AwsSessions(region)
    rng = random.Random()
    with ExitStack() as closing:

        def pool(name: str) -> CallPool:
            made = CallPool(name, _THREADS)
            closing.callback(made.close)
            return made

        def client(
            chain: CredentialChain | None, key: str, settings: clients.ClientSettings
        ) -> Any:
            session = sessions.of(chain or config.aws.kinesis_credentials)
            require_credentials(session, key if chain else "AwsCredentialsProvider")
            return clients.make_client(session, settings)

        leases, streams = pool("leases"), pool("streams")
        chain, key = config.aws.dynamodb_credentials, "AwsCredentialsProviderDynamoDB"
        settings = clients.patient_dynamodb_settings(config)
        dynamodb = BotocoreDynamoDb(client(chain, key, settings), leases)
        clock = SystemClock(dynamodb.clock.now_s)
        kinesis = open_kinesis(
            config, partial(client, None, "AwsCredentialsProvider"), streams, streams
        )
        single, names = find_streams(config, region, kinesis, clock, rng)

        def begins_s(stream: Stream) -> float | None:
            listed = config.streams
            own = None if listed is None else listed.options_of(stream.name).initial_position
            return (own or config.stream.initial_position).timestamp_s

        yield FleetAccess(
            dynamodb,
            kinesis,
            LeaseStore(dynamodb, config.leases, clock, rng),
            StreamReader(kinesis, config, region, single, names, clock, rng),
            clock,
            begins_s,
            pool,
        )


@contextmanager
def open_fleet(
    config: Config, *, tips: bool = False, urls: Sequence[str] = ()
) -> Iterator[FleetReader]:
    """A reader of the application that a file describes; closed on exit.

    Args:
        tips: ask shards for their lag.
        urls: of workers that serve ``/leases``.

    Raises:
        ConfigError: see :func:`open_access`.
        CredentialsMissing: likewise.
    """
    readers = config.traits.most_readers
    if tips and readers is not None:
        click.echo(
            f"--tip reads nothing: a shard of these streams may have {readers} readers. --scrape asks "
            "the workers",
            err=True,
        )
        tips = False
    with open_access(config) as access:
        kinesis, clock = access.kinesis, access.clock
        yield FleetReader(
            partial(fleet_items, access.dynamodb, Layout.of(config), RandomIds(), random.Random()),
            access.store,
            access.streams,
            TipReader(kinesis, clock, kinesis.clock.now_s, access.begins_s) if tips else None,
            clock,
            WorkerPages(urls, access.pool("pages"), clock).ask if urls else None,
        )


def find_streams(
    config: Config,
    region: str,
    kinesis: KinesisPort,
    clock: SystemClock,
    rng: random.Random,
) -> tuple[Stream | None, StreamNames | None]:
    """The one stream that the file names, or else what finds those of its list."""
    listed = config.streams
    if listed is None:
        # By name alone, which is what all workers read: whose account it is need not be asked.
        return stream_to_read(config.stream, region, None), None
    return None, configured_names(kinesis, listed, clock, rng)


async def take_snapshot(
    reader: FleetReader, config: Config, *, fresh: bool = True
) -> FleetSnapshot:
    """Read the fleet once.

    Raises:
        ResourceMissing: there is no lease table.
        AwsError: it can't be read.
    """
    try:
        return await reader.look(fresh=fresh)
    except NotFound:
        raise table_missing(config) from None


def table_region(config: Config) -> str:
    """The region of the lease table; where nothing names it, the daemon takes that of Kinesis."""
    aws = config.aws
    return resolve_region(aws.dynamodb_region or config.stream.region or aws.kinesis_region)


def table_missing(config: Config) -> ResourceMissing:
    """The error of a command that finds no lease table; often the region is wrong."""
    return ResourceMissing(
        f"the lease table {config.leases.table_name} does not exist in {table_region(config)}; it is created when "
        "the application starts for the first time: if it has run, correct applicationName, "
        "regionName or the credentials"
    )


async def pause_with_progress(pause_s: float, leases: int, left_s: float) -> None:
    """Wait; on a terminal show how long still."""
    if not sys.stderr.isatty():
        await asyncio.sleep(pause_s)
        return
    while pause_s > 0:
        text = f"{leases} leases; looking again, to see what moves: {left_s:.0f} s left "
        click.echo(f"\r{text}", err=True, nl=False)
        step_s = min(1.0, pause_s)
        await asyncio.sleep(step_s)
        pause_s, left_s = pause_s - step_s, left_s - step_s
    click.echo(f"\r{' ' * 79}\r", err=True, nl=False)


def observe(
    config: Config,
    *,
    once: bool = False,
    finished: bool = False,
    tip: bool = False,
    urls: tuple[str, ...] = (),
) -> tuple[list[FleetSnapshot], Explanation]:
    """Read the fleet until every owner was seen to live, or for the failover time; what that shows.

    Args:
        config: of the application.
        once: one snapshot is enough.
        finished: the owners of finished leases have to be seen too, as those rows will be written.
        tip: also where the shards end.
        urls: of workers to ask.
    """
    snapshots = asyncio.run(_snapshots(config, once=once, finished=finished, tip=tip, urls=urls))
    return snapshots, explained(snapshots, rules_of(config))


async def _snapshots(
    config: Config, *, once: bool, finished: bool, tip: bool, urls: tuple[str, ...]
) -> list[FleetSnapshot]:
    failover_s = config.leases.failover_s
    loop = asyncio.get_running_loop()
    with open_fleet(config, tips=tip, urls=urls) as reader:
        snapshots = [await take_snapshot(reader, config)]
        ends_at = snapshots[0].at + failover_s
        still = {
            key: lease.lease_counter
            for key, lease in snapshots[0].leases.items()
            if lease.actual_owner is not None and (finished or not lease.is_finished)
        }
        # Reading may take long; the last one has to begin when the time is over.
        while not once and still and snapshots[-1].began_at < ends_at:
            left_s = max(0.0, ends_at - loop.time())
            await pause_with_progress(
                min(left_s, failover_s / LOOKS), len(snapshots[-1].leases), left_s
            )
            snapshots.append(await take_snapshot(reader, config, fresh=False))
            now = snapshots[-1].leases
            still = {
                key: count
                for key, count in still.items()
                if key in now and now[key].lease_counter == count
            }
        return snapshots
