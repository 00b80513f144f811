"""``python -m kcl_mld.local``: the embedded AWS as a process; prints its endpoints as one JSON line.

It ends when its standard input ends, so it cannot outlive the process that started it, and on
SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import socket
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

import uvicorn

from kcl_mld.kernel.model.masking import brief
from kcl_mld.local.dynamodb_streams import TableStreams, TableStreamSettings
from kcl_mld.local.faultplan import FaultPlan
from kcl_mld.local.kinesis import KinesisSettings
from kcl_mld.local.server import AbortableProtocol, AdvancingClock, KinesisApp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.local.motoserver import MotoServer

_LOOPBACK = "127.0.0.1"
#: The arguments are to blame; argparse's own.
USAGE_EXIT = 2
#: Ten years.
_MAX_SECONDS = 3.2e8
_LEAST_SHARD_S = 0.1


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main(
    argv: list[str] | None = None,
    *,
    stdin: BinaryIO | None = None,
    announce: Callable[[str], object] = _print_line,
) -> int:
    """Serve until it is stopped; returns the exit code, or exits with 2: the arguments are wrong.

    Args:
        argv: arguments without the program's name; None = those of the process.
        stdin: ends when the server shall; None = standard input.
        announce: gets the endpoints as one line of JSON, once connections are accepted.
    """
    options = _parse(argv)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    rng = random.Random(options.seed)
    plan = FaultPlan(rng)
    listener = _listener_or_exit("Kinesis", options.host, options.kinesis_port)
    endpoints = {"kinesis": f"http://{options.host}:{listener.getsockname()[1]}"}
    clock = AdvancingClock()
    streams = TableStreams(clock, TableStreamSettings(shard_s=options.table_shard_s))
    moto = None if options.no_moto else _moto(options, plan, streams)
    if moto is not None:
        endpoints["moto"] = f"http://{options.host}:{moto.port}"
    server = _server(KinesisApp(_settings(options), rng, plan, clock, streams))
    try:
        announce(json.dumps(endpoints))
    except BrokenPipeError:  # the starting process has been stopped meanwhile
        listener.close()
        return 1
    if not options.keep:
        source = sys.stdin.buffer if stdin is None else stdin
        threading.Thread(target=_stop_at_eof, args=(server, source), daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))
    if moto is not None:
        moto.stop()
    return 0


def _settings(options: argparse.Namespace) -> KinesisSettings:
    return KinesisSettings(
        account_id=options.account_id,
        region=options.region,
        create_s=options.create_s,
        reshard_s=options.reshard_s,
        consumer_create_s=options.create_s,
        limits=options.limits,
    )


def _listener_or_exit(what: str, host: str, port: int) -> socket.socket:
    try:
        return _listener(host, port)
    except OSError as error:
        why = f"{what} cannot listen on {host}:{port}: {error.strerror}; choose another port"
        sys.stderr.write(f"{why}\n")
        sys.exit(USAGE_EXIT)


def _listener(host: str, port: int) -> socket.socket:
    # The protocol is named because asyncio sets TCP_NODELAY only where it sees it; without that
    # every small answer waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    return listener


def _moto(options: argparse.Namespace, plan: FaultPlan, streams: TableStreams) -> MotoServer:
    if options.moto_port:  # before its start takes half a second, and in our words
        _listener_or_exit("moto", options.host, options.moto_port).close()
    os.environ["MOTO_ACCOUNT_ID"] = options.account_id
    os.environ["MOTO_ALLOW_NONEXISTENT_REGION"] = "true"  # newer ones, and those of samples
    from kcl_mld.local.motoserver import MotoServer  # noqa: PLC0415 (0.4 s, not always wanted)

    moto = MotoServer(options.host, options.moto_port, plan, streams)
    moto.start()
    return moto


class _Server(uvicorn.Server):
    """uvicorn's server, which would wait for the end of requests and then complain."""

    def __init__(self, config: uvicorn.Config, app: KinesisApp) -> None:
        super().__init__(config)
        self._kinesis = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop at once; open requests end with their connections."""
        self._kinesis.stop()
        for connection in self.server_state.connections:
            connection.transport.abort()
        await super().shutdown(sockets)


def _server(app: KinesisApp) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            http=AbortableProtocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_level="error",
            server_header=False,
            date_header=False,
            timeout_keep_alive=300,
            timeout_graceful_shutdown=1,
        ),
        app,
    )


def _port(text: str) -> int:
    """The number of a port, or 0; argparse reports any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{brief(text)!r} is not a port from 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    """Seconds, as far as a clock goes."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_SECONDS:  # nan is neither
        raise argparse.ArgumentTypeError(
            f"{brief(text)!r} is not a number of seconds from 0 to {_MAX_SECONDS:g}"
        )
    return seconds


def _shard_seconds(text: str) -> float:
    """Seconds, but not so few that shards are all there is."""
    seconds = _seconds(text)
    if seconds < _LEAST_SHARD_S:
        raise argparse.ArgumentTypeError(f"{brief(text)!r} is less than {_LEAST_SHARD_S:g} s")
    return seconds


def _seed(text: str) -> int:
    """Any whole number that Python reads."""
    try:
        return int(text)
    except ValueError:
        why = f"{brief(text)!r} is not a whole number"
        raise argparse.ArgumentTypeError(why) from None


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kcl_mld.local", description=__doc__)
    add = parser.add_argument
    add("--host", default=_LOOPBACK, help="address to listen on (loopback only)")
    add("--anywhere", action="store_true", help="allow a --host that is not loopback")
    add("--kinesis-port", type=_port, default=0, metavar="PORT", help="0 = any free port")
    add("--moto-port", type=_port, default=0, metavar="PORT", help="0 = any free port")
    add("--no-moto", action="store_true", help="serve Kinesis alone")
    add("--region", default="us-east-1")
    add("--account-id", default="123456789012", metavar="DIGITS")
    add("--limits", action="store_true", help="apply the rate limits of Kinesis")
    add(
        "--create-s",
        type=_seconds,
        default=0.0,
        metavar="S",
        help="time of a new stream's CREATING",
    )
    add("--reshard-s", type=_seconds, default=0.0, metavar="S", help="time of a reshard's UPDATING")
    add(
        "--table-shard-s",
        type=_shard_seconds,
        default=TableStreamSettings().shard_s,
        metavar="S",
        help="age at which a shard of a table's stream is replaced",
    )
    add("--seed", type=_seed, default=0, help="of everything that is left to chance")
    add("--keep", action="store_true", help="go on when standard input ends")
    options = parser.parse_args(argv)
    if not options.anywhere and not _is_loopback(options.host):
        parser.error(f"{options.host} is not a loopback address: nothing here checks signatures")
    return options


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None)
    except socket.gaierror:
        return False
    return all(str(entry[4][0]).startswith("127.") or entry[4][0] == "::1" for entry in found)


def _stop_at_eof(server: uvicorn.Server, source: BinaryIO) -> None:
    while source.read(4096):
        pass
    server.should_exit = True


if __name__ == "__main__":
    # Loaded objects stay, so later collections examine only objects of requests.
    gc.freeze()
    code = main()
    # Taking the modules of moto apart takes longer than everything else; there is nothing to save.
    os._exit(code)
