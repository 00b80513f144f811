"""Seeing a child off: end of file, a grace, SIGTERM to its group, a grace, SIGKILL.

Java waits for ever at each of these steps, and so hangs with every child that ignores the end of
its input or leaves something behind that holds its pipes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from protocol import DaemonConnection, EndOfStream, JunkLine

if TYPE_CHECKING:
    from mld.model.config.config import ChildConfig
    from mld.ports.children import Child
    from mld.services.child.child_log import ChildLog

log = logging.getLogger(__name__)

#: A dead child's stdout may be held open by what it started; that is read no longer than this.
DRAIN_AFTER_EXIT_S = 1.0


async def end_child(
    child: Child, connection: DaemonConnection, child_log: ChildLog, config: ChildConfig
) -> int:
    """Close its stdin, log the rest of its stdout, and make sure that it ends.

    Returns:
        Its exit status, negative = signal number.

    Cancellation: the child may still run; kill it.
    """
    shard_id = connection.shard_id
    connection.close()
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(_drain(child, connection, child_log))
        await child.close_stdin()
        status = await _status_of(child, config, shard_id)
        log.info("%s: child %d exited with status %d", shard_id, child.pid, status)
        try:
            async with asyncio.timeout(DRAIN_AFTER_EXIT_S):
                await asyncio.shield(draining)
        except TimeoutError:
            log.warning(
                "%s: processes that child %d started still run; killing them", shard_id, child.pid
            )
            child.kill()
        draining.cancel()
    return status


async def _status_of(child: Child, config: ChildConfig, shard_id: str) -> int:
    status = await _ended_within(child, config.eof_grace_s)
    if status is None:
        text = "%s: child %d still runs %g s after the end of its input; sending SIGTERM"
        log.warning(text, shard_id, child.pid, config.eof_grace_s)
        child.terminate()
        status = await _ended_within(child, config.term_grace_s)
    if status is None:
        text = "%s: child %d still runs %g s after SIGTERM; killing it"
        log.warning(text, shard_id, child.pid, config.term_grace_s)
        child.kill()
        status = await child.wait()
    return status


async def _ended_within(child: Child, grace_s: float) -> int | None:
    try:
        async with asyncio.timeout(grace_s):
            return await child.wait()
    except TimeoutError:
        return None


async def _drain(child: Child, connection: DaemonConnection, child_log: ChildLog) -> None:
    """Log what stdout still has, to its end."""
    while True:
        match connection.next_event():
            case JunkLine() as junk:
                child_log.stdout(junk)
            case EndOfStream():
                return
            case _:
                connection.receive_data(await child.read())
                # A child that floods has always something to read: let the others live, too.
                await asyncio.sleep(0)
