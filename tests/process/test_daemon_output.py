"""A daemon whose standard error nobody reads: it goes on, and tells afterwards what was dropped."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import CHECKPOINT, STATUS, shard_id, wait_until
from tests.process.test_daemon_watched import free_address, get

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

#: Becomes the daemon, with a full pipe as stderr (and stdout) that nobody reads.
STALLED = """
import os, sys
reading, writing = os.pipe()
os.set_blocking(writing, False)
try:
    while True:
        os.write(writing, b"." * 4096)
except BlockingIOError:
    pass
os.set_blocking(writing, True)
os.dup2(writing, 1)
os.dup2(writing, 2)
os.dup2(reading, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""
LAUNCHER = (sys.executable, "-c", STALLED)
#: What else a daemon does at its end, on a busy machine.
SPARE_S = 15.0


def counter(app: Application, shard: int = 0) -> int:
    return int(app.items()[shard_id(shard)]["leaseCounter"])


def read_pipe(run: Running, *expected: str) -> None:
    """Read what the daemon has written by now and what it writes meanwhile, until all is there."""
    text = ""
    reading = os.open(f"/proc/{run.pid}/fd/9", os.O_RDONLY | os.O_NONBLOCK)

    def is_there() -> bool:
        nonlocal text
        with contextlib.suppress(BlockingIOError):
            text += os.read(reading, 65536).decode("utf-8", "replace")
        return all(one in text for one in expected)

    try:
        wait_until(is_there, f"{expected} in what it wrote")
    finally:
        os.close(reading)


def start_stalled(app: Application, arguments: Sequence[str] = ()) -> tuple[Running, str]:
    address = free_address()
    chatter = [["stderr", "x" * 500]] * 20
    run = app.start(
        {"processRecords": [[*chatter, CHECKPOINT, STATUS]]},
        arguments=("--log-level", "DEBUG", "--http", address, *arguments),
        launcher=LAUNCHER,
        failoverTimeMillis="3000",
    )
    return run, address


def test_a_stalled_reader_of_stderr_stops_neither_leases_nor_probes_nor_signals(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run, address = start_stalled(app)
    run.wait_for_actions("checkpoint")
    before = counter(app)
    wait_until(lambda: counter(app) >= before + 3, "the lease is renewed")
    assert app.owners() == {shard_id(0): "w1"}
    app.put(5)
    run.wait_for_actions("checkpoint", 2)
    assert get(address, "/livez")[0] == 200
    assert get(address, "/readyz")[0] == 200
    began = time.monotonic()
    assert run.stop() == 0
    assert time.monotonic() - began < SPARE_S
    assert app.owners() == {shard_id(0): None}


def test_what_was_said_meanwhile_is_there_once_somebody_reads(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run, _ = start_stalled(app)
    run.wait_for_actions("checkpoint")
    read_pipe(run, "Initialized as worker w1", "x" * 500)
    assert run.stop() == 0


def test_a_stalled_reader_holds_up_no_exit_by_error(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)
    began = time.monotonic()
    run = app.start(launcher=LAUNCHER, streamName=None)
    assert run.ends() == 2
    assert time.monotonic() - began < SPARE_S
