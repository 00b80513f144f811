"""``kcl-mld --properties FILE``: start the worker, translate signals and its end into exit codes.

Exit codes: 0 a clean stop; 1 a child or the runtime failed; 2 usage or configuration; 3 no
credentials; 4 stream or table missing; 5 the lease table belongs to a fleet that this version
cannot serve; 128 + the first signal when a stop was cut short: 129, 130 or 143.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from mld.cli.protocol_package import check_protocol_package
from mld.errors import AwsError, ChildFailed, MldError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from mld.adapters.http_status import Query
    from mld.app import RealWorld, Worker
    from mld.cli.run_options import RunOptions
    from mld.model.config.config import Config
    from mld.model.streams.stream import Stream
    from mld.model.streams.stream_list import StreamList

log = logging.getLogger(__name__)

#: After the drain, so long may the last metrics take.
_METRICS_S = 2.0


def run(options: RunOptions) -> int:
    """Run the daemon until it is stopped; the exit code, with which the process is to end now.

    Args:
        options: the parsed command line.
    """
    from mld.adapters.output.background_output import background_output

    with background_output(), contextlib.ExitStack() as starting:
        starting.enter_context(_no_collections())
        try:
            return _run(options, starting)
        except MldError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        except Exception:
            log.exception("The worker ends because of an unexpected error")
            return 1


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """While modules and clients are loaded nothing becomes garbage: the collector would only look.

    It takes a tenth of the start's CPU otherwise.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(options: RunOptions, starting: contextlib.ExitStack) -> int:
    """Run the worker.

    Args:
        options: the parsed command line.
        starting: closed when the clients are made, before the loop begins.
    """
    from mld.adapters.system_clock import RandomIds
    from mld.cli.loading import load_config, start_logging

    check_protocol_package()
    start_logging(options)
    config = load_config(
        options.properties_file, worker_id=RandomIds().new_id(), shown_as=options.shown_as
    )
    return _serve(config, options, starting)


def _serve(config: Config, options: RunOptions, starting: contextlib.ExitStack) -> int:
    """Make the real world and run a worker in it."""
    from mld.adapters.allocator import keep_large_blocks
    from mld.adapters.children.child_process import raise_descriptor_limit
    from mld.app import real_ports

    keep_large_blocks()
    raise_descriptor_limit()
    with real_ports(config, pathlib.Path(options.properties_file).read_bytes) as world:
        starting.close()
        return asyncio.run(_main(config, options, world))


async def _main(config: Config, options: RunOptions, world: RealWorld) -> int:
    from mld.app import build
    from mld.cli.signals import handled_signals

    stream = await _stream(config, world)
    worker = build(world.effective(config), world.ports, stream)
    log.info(
        "Running %s to process %s with executable %s as worker %s",
        config.application_name,
        f"stream {stream.name}" if stream is not None else _shown(config.streams),
        " ".join(config.child.argv),
        config.worker_id,
    )
    with handled_signals(worker) as received:
        return await _work(worker, options, received)


async def _work(worker: Worker, options: RunOptions, received: Sequence[int]) -> int:
    """Run the worker to its end and say how it ended; the exit code."""
    from mld.decide.summary import counted

    try:
        async with _status_server(worker, options):
            outcome = await worker.scheduler.run()
    except MldError as error:
        # The last line says all; the ERROR of a failed child is in the log since it happened.
        level = logging.WARNING if isinstance(error, ChildFailed) else logging.ERROR
        log.log(level, "Exiting with code %d: %s", error.exit_code, error)
        return error.exit_code
    finally:
        if worker.metrics is not None:
            await worker.metrics.close(_METRICS_S)
    if outcome.complete and outcome.expired:
        text = (
            "Stopped: all children were notified, but %d leases had expired and were not released"
        )
        log.warning(text, outcome.expired)
        return 0
    if outcome.complete:
        log.info("Stopped: all children were notified and all leases released")
        return 0
    left = counted(outcome.leases_left, "lease", "leases")
    log.warning("The stop was cut short; %s will expire", left)
    return 128 + received[0] if received else 1


def _shown(streams: StreamList | None) -> str:
    assert streams is not None, "a worker without one stream has a list"
    listed = ", ".join(map(str, streams.streams))
    rule = "" if streams.selection is None else str(streams.selection)
    if not listed:
        return rule
    return f"{len(streams.streams)} streams ({listed})" + (f" and {rule}" if rule else "")


async def _stream(config: Config, world: RealWorld) -> Stream | None:
    """Resolve how the stream is named in requests; asks STS only for an ARN.

    Returns:
        None for a worker of many streams, which finds them when it starts.

    Raises:
        ConfigError: a stream is not one that the Kinesis client could read.
    """
    from mld.decide.streams.stream_identity import check_regions, stream_to_read

    if config.streams is not None:
        check_regions(config.streams.streams, world.region)
        return None
    account = None
    if config.stream.arn is not None and not config.stream.arn_addressing:
        try:
            account = await world.account()
        except AwsError as error:
            log.warning("Own account unknown, reading the ARN's stream by name: %s", error)
    return stream_to_read(config.stream, world.region, account)


#: The one parameter of a status page.
_MAX_AGE = "maxAge"


def _max_age_s(query: Query) -> float | None:
    """``maxAge`` of a request.

    Raises:
        BadQuery: it is not a number of seconds, or given twice.
    """
    from mld.adapters.http_status import BadQuery

    values = query.get(_MAX_AGE)
    if values is None:
        return None
    try:
        (text,) = values
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadQuery(f"{_MAX_AGE}={','.join(values)}: one positive number of seconds is needed")
    return seconds


@contextlib.asynccontextmanager
async def _status_server(worker: Worker, options: RunOptions) -> AsyncIterator[None]:
    """Serve health where ``--http`` says; nothing without it.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if options.http is None:
        yield
        return
    from mld.adapters.http_status import HttpStatus

    def live(_query: Query) -> tuple[bool, dict[str, Any]]:
        return worker.watchdog.is_alive(), {"state": worker.scheduler.state}

    def ready(query: Query) -> tuple[bool, dict[str, Any]]:
        answer = worker.readiness(_max_age_s(query))
        return answer.is_ready, answer.as_dict()

    host, port = options.http
    server = HttpStatus(
        host,
        port,
        {"/livez": live, "/readyz": ready, "/leases": lambda _: (True, worker.status())},
        {"/readyz": (_MAX_AGE,)},
    )
    await server.start()
    log.info("Serving /livez, /readyz and /leases on %s:%d", host, server.port)
    try:
        yield
    finally:
        await server.close()
