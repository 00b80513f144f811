"""``kcl-mld --properties FILE``: start the worker, translate signals and its end into exit codes.

Exit codes: 0 a clean stop; 1 a child or the runtime failed; 2 usage or configuration; 3 no
credentials; 4 stream or table missing; 5 the lease table belongs to a fleet that this version
cannot serve; 128 + the first signal when a stop was cut short: 129, 130 or 143.

SIGTERM, SIGINT and SIGHUP stop it gracefully; a second SIGTERM or SIGINT stops it now. A second
SIGHUP does not: a terminal that closes and systemd's ``SendSIGHUP`` send one on top of what was
sent before. SIGQUIT logs the stacks of tasks and threads, as in a JVM. SIGUSR1 and SIGUSR2 would
end a process that doesn't know them, so they are received and mean nothing. Once the outcome is
known all of them are ignored until the process has ended.

Tasks are looked at in the loop. Threads are dumped by ``faulthandler`` inside the signal's handler,
so that it works while the loop hangs; it writes into a pipe that never blocks, and a thread passes
the text on.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import math
import os
import select
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld.children.adapters.pipes import enlarge_pipe
from kcl_mld.errors import AwsError, ChildFailed, MldError, ThreadRefused
from kcl_mld.signals.log_facts import CHILD_LOGGER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from kcl_mld.app import RealWorld, Worker
    from kcl_mld.cli.run_options import RunOptions
    from kcl_mld.config.config import Config
    from kcl_mld.config.overrides import Overrides
    from kcl_mld.config.properties import Entry
    from kcl_mld.config.stream import Stream
    from kcl_mld.config.stream_list import StreamList
    from kcl_mld.kernel.adapters.systemd import SystemdNotify
    from kcl_mld.observe.adapters.http_status import Query

#: Number of tasks with the same stack whose names are shown.
_NAMES = 8
#: The handler writes a dump in small pieces; after this long without another one it is complete.
_QUIET_S = 0.2
_ROOT = str(Path(__file__).absolute().parents[2]) + os.sep
_FORCING = (signal.SIGTERM, signal.SIGINT)
_MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2)
log = logging.getLogger("mld.cli")
#: Time limit of the last metrics after the drain.
_METRICS_S = 2.0


def run(options: RunOptions) -> int:
    """Run the daemon until it is stopped; the exit code, with which the process is to end now."""
    from kcl_mld.signals.adapters.output.background_output import background_output

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
    """While modules and clients are loaded there is no garbage, so collections would only cost time.

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
        starting: closed when the clients are made, before the loop begins.
    """
    from kcl_mld.cli.loading import load_config, start_logging
    from kcl_mld.kernel.adapters.system import RandomIds

    start_logging(options)
    config = load_config(
        options.properties_file, worker_id=RandomIds().new_id(), shown_as=options.shown_as
    )
    if config.child.log_level is not None:
        logging.getLogger(CHILD_LOGGER).setLevel(config.child.log_level)
    return _serve(config, options, starting)


def _serve(config: Config, options: RunOptions, starting: contextlib.ExitStack) -> int:
    """Make the real world and run a worker in it."""
    from kcl_mld.app import real_ports
    from kcl_mld.children.adapters.child_process import raise_descriptor_limit
    from kcl_mld.cli.overrides import given_overrides
    from kcl_mld.kernel.adapters.allocator import keep_large_blocks
    from kcl_mld.kernel.adapters.systemd import SystemdNotify

    systemd = SystemdNotify(os.environ, os.getpid())
    keep_large_blocks()
    raise_descriptor_limit()
    read = partial(_read_entries, Path(options.properties_file), given_overrides())
    with real_ports(config, read) as world:
        starting.close()
        return asyncio.run(_main(config, options, world, systemd))


def _read_entries(path: Path, overrides: Overrides) -> tuple[Entry, ...]:
    """The properties as the file has them now."""
    return overrides.entries(path.read_bytes(), str(path))


async def _main(
    config: Config, options: RunOptions, world: RealWorld, systemd: SystemdNotify
) -> int:
    from kcl_mld.app import build
    from kcl_mld.config.stream import DYNAMODB_STREAMS

    if options.replaces_1x is not None:
        await _refuse_beside_1x(config, world, options.replaces_1x)
    stream = await _stream(config, world)
    worker = build(
        world.effective(config), world.ports, stream, keeps_metrics=options.http is not None
    )
    log.info(
        "Running %s to process %s with executable %s as worker %s",
        config.application_name,
        f"stream {stream.name}" if stream is not None else _shown(config.streams),
        config.child.shown,
        config.worker_id,
    )
    if config.traits is DYNAMODB_STREAMS:
        log.warning("DynamoDB Streams are a preview: they were run with DynamoDB Local, not on AWS")
    with handled_signals(worker) as received:
        async with asyncio.TaskGroup() as group:
            notifying = group.create_task(
                systemd.run(lambda: worker.scheduler.state, worker.watchdog.is_alive)
            )
            try:
                return await _work(worker, options, received)
            finally:
                notifying.cancel()
                systemd.send("STOPPING=1")


async def _refuse_beside_1x(config: Config, world: RealWorld, main_class: str) -> None:
    """Start in place of a daemon of KCL 1.x only where none of its workers may be alive.

    Raises:
        UnservableFleet: the table is there, is not that of a 3.x fleet, and the file does not say
            that they are stopped.
        AwsError: the table can't be read.
    """
    from kcl_mld.config.reserved_keys import MIGRATION_KEY
    from kcl_mld.errors import NotFound, UnservableFleet
    from kcl_mld.leases.lease_rows import LeaseRows

    if config.leases.is_1x_stopped:
        return
    table = config.leases.table_name
    try:
        item = await LeaseRows(world.ports.dynamodb, table).item(MIGRATION_KEY, consistent=True)
    except NotFound:
        return
    if item is None:
        raise UnservableFleet(
            f"{main_class} is of KCL 1.x, and workers of 1.x may still use the lease table {table}:"
            " stop all of them, then write kcl1xWorkersStopped = true;"
            " docs/migrating.md#in-place-of-kcl-1x"
        )


async def _work(worker: Worker, options: RunOptions, received: Sequence[int]) -> int:
    """Run the worker to its end, and log how it ended; returns the exit code."""
    from kcl_mld.kernel.model.text import counted

    try:
        async with _status_server(worker, options):
            outcome = await worker.run()
    except MldError as error:
        # The last line has it all; the ERROR of a failed child has been logged when it happened.
        level = logging.WARNING if isinstance(error, ChildFailed) else logging.ERROR
        log.log(level, "Exiting with code %d: %s", error.exit_code, error)
        return error.exit_code
    finally:
        await worker.close_metrics(_METRICS_S)
    if outcome.complete and outcome.expired:
        text = (
            "Stopped: all children were notified, but %d leases had expired and were not released"
        )
        log.warning(text, outcome.expired)
        return 0
    if outcome.complete:
        log.info(
            "Stopped: all children were notified; %s released, %d handed over",
            counted(outcome.released, "lease", "leases"),
            outcome.handed_over,
        )
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
    from kcl_mld.streams.rules.stream_identity import check_regions, stream_to_read

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
        BadQuery: it is not a number of seconds, or is repeated.
    """
    from kcl_mld.observe.adapters.http_status import BadQuery

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


def _metrics_page(worker: Worker) -> Callable[[], Awaitable[tuple[int, str, bytes]]]:
    """The renderer of ``/metrics``; without prometheus_client, its page names the extra to install."""
    try:
        from kcl_mld.observe.adapters.prometheus import MetricsPage
    except ImportError:
        text = "/metrics needs prometheus_client: pip install 'kcl-mld[prometheus]'"
        log.info("%s", text)

        async def missing() -> tuple[int, str, bytes]:
            return 501, "text/plain; charset=utf-8", f"{text}\n".encode()

        return missing
    ports = worker.ports
    return MetricsPage(worker.readings, ports.offload, ports.clock).content


@contextlib.asynccontextmanager
async def _status_server(worker: Worker, options: RunOptions) -> AsyncIterator[None]:
    """Serve health at the address of ``--http``; without it, do nothing.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if options.http is None:
        yield
        return
    from kcl_mld.observe.adapters.http_status import HttpStatus

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
        {"/metrics": _metrics_page(worker)},
    )
    await server.start()
    log.info("Serving /livez, /readyz, /leases and /metrics on %s:%d", host, server.port)
    try:
        yield
    finally:
        await server.close()


def task_stacks(tasks: set[asyncio.Task[Any]]) -> str:
    """Where tasks wait, the innermost call last; tasks that wait at one place are listed together."""
    places: dict[tuple[str, ...], list[str]] = {}
    for task in tasks:
        places.setdefault(tuple(_awaited(task.get_coro())), []).append(task.get_name())
    text = [f"{len(tasks)} tasks"]
    for place, names in sorted(places.items(), key=lambda item: sorted(item[1])):
        shown = ", ".join(sorted(names)[:_NAMES])
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        text += [f"task {shown}{more}:", *(f"  {call}" for call in place)]
    return "\n".join(text)


def _awaited(awaitable: Any) -> Iterator[str]:
    """The calls from a coroutine down to the one that it waits for."""
    while awaitable is not None:
        frame = next(
            (f for name in ("cr", "gi", "ag") if (f := getattr(awaitable, f"{name}_frame", None))),
            None,
        )
        if frame is None:
            return
        code = frame.f_code
        yield f"{code.co_filename.removeprefix(_ROOT)}:{frame.f_lineno} {code.co_qualname}"
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)


@contextlib.contextmanager
def thread_stacks_on(number: int, report: Callable[[str], None]) -> Iterator[None]:
    """Inside the block a signal reports the stacks of all threads; its handler is called as well.

    Args:
        number: of the signal; a handler of the loop must be there already.
        report: called in a thread with the text.

    Raises:
        ThreadRefused: there can be no such thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    enlarge_pipe(writing)
    thread = threading.Thread(target=_read_dumps, args=(reading, report), name="dump", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        os.close(reading)
        os.close(writing)
        raise ThreadRefused(thread.name) from error
    faulthandler.register(number, file=writing, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(number)
        os.close(writing)
        thread.join()


def _read_dumps(reading: int, report: Callable[[str], None]) -> None:
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while text := pipe.read(2**16):
            while select.select([pipe], [], [], _QUIET_S)[0] and (more := pipe.read(2**16)):
                text += more
            report(_with_names(text.decode("utf-8", "replace").rstrip()))


def _with_names(text: str) -> str:
    """The dump has numbers; people know names."""
    for thread in threading.enumerate():
        text = text.replace(f"hread 0x{thread.ident or 0:016x}", f"hread {thread.name}")
    return text.replace(_ROOT, "")


@contextlib.contextmanager
def handled_signals(worker: Worker) -> Iterator[list[int]]:
    """Handle signals in the running loop inside the block, and ignore them after it.

    Yields:
        The numbers of the signals that asked for a stop, filled as they come.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []
    handlers = {
        **{number: partial(_stop, worker, received, number) for number in _stopping()},
        **{number: partial(_ignore, number) for number in _MEANINGLESS},
        signal.SIGQUIT: partial(_dump, worker),
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        with thread_stacks_on(signal.SIGQUIT, partial(log.info, "Threads at SIGQUIT:\n%s")):
            yield received
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            # A second Ctrl-C would else end the interpreter's end, with another exit code.
            signal.signal(number, signal.SIG_IGN)


def _stopping() -> Iterator[signal.Signals]:
    yield from _FORCING
    # nohup starts programs with SIGHUP ignored, and means it.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield signal.SIGHUP


def _stop(worker: Worker, received: list[int], number: signal.Signals) -> None:
    is_urgent = number in _FORCING and any(before in _FORCING for before in received)
    received.append(number)
    if is_urgent:
        log.warning("%s received again, stopping now", number.name)
        worker.scheduler.stop_now()
    elif len(received) == 1:
        log.info("%s received, stopping", number.name)
        worker.scheduler.stop()
    else:
        log.info("%s received, the worker is already stopping", number.name)


def _ignore(number: signal.Signals) -> None:
    log.info("%s received and ignored; SIGQUIT logs the state of the worker", number.name)


def _dump(worker: Worker) -> None:
    state = worker.status() | {"readiness": worker.readiness().as_dict()}
    log.info("State at SIGQUIT:\n%s", json.dumps(state, indent=1, default=str))
    log.info("Tasks at SIGQUIT:\n%s", task_stacks(asyncio.all_tasks()))
