"""One child process and the conversation with it.

Each action is one :mod:`exchange <kcl_mld.children.child_exchange>`, which ends with the status of the
same action or fails the child.

Ending a child takes bounded time: EOF, a grace period, SIGTERM to its group, a grace period,
SIGKILL. Java waits without limit at each of these steps, and so hangs with every child that ignores
the end of its input or leaves a process that holds its pipes.

Source: MultiLangShardRecordProcessor.java (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.children.child_exchange import ChildExchange
from kcl_mld.children.child_log import ChildLog
from kcl_mld.children.rules.child_environment import announced_to
from kcl_mld.errors import ChildFailed, ChildTimedOut
from kcl_mld_protocol import (
    Action,
    DaemonConnection,
    EndOfStream,
    Initialize,
    JunkLine,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    State,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from kcl_mld.children.model.child_name import ChildName
    from kcl_mld.children.ports import Checkpointer, Child, ChildLauncher
    from kcl_mld.config.config import ChildConfig
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.kernel.ports import Clock
    from kcl_mld_protocol.messages import Scalar

log = logging.getLogger("mld.children")

#: Seconds for which a dead child's stdout is read while a process that it started holds it open.
DRAIN_AFTER_EXIT_S = 1.0


@dataclass(slots=True)
class OutgoingLine:
    """A large line that is released as soon as it is written.

    Attributes:
        line: the bytes; None once taken.
        on_written: called when the pipe has taken all of it, or never will.
    """

    line: bytes | None
    on_written: Callable[[], None]

    def take(self) -> bytes:
        """The line; can be taken once.

        Raises:
            ValueError: it was taken before.
        """
        taken, self.line = self.line, None
        if taken is None:
            raise ValueError("the line was taken before")
        return taken


def _ignore(_action: Action, _exception: str) -> None:
    """Default: ignore exceptions."""


class RecordProcessor:
    """A shard's child; all its actions raise ChildFailed when it misbehaves.

    Args:
        name: its shard id is sent to the child.
        checkpointer: answers its requests; None for a child that gets no records.
        env: added to the child's environment.
        extras: further keys of ``initialize``.
        on_exception: called with the action and the child's text when its processor raised an
            exception and the child continues; an exception from it fails the action.
    """

    def __init__(
        self,
        name: ChildName,
        config: ChildConfig,
        launcher: ChildLauncher,
        checkpointer: Checkpointer | None,
        clock: Clock,
        env: Mapping[str, str],
        extras: Mapping[str, Scalar] | None = None,
        on_exception: Callable[[Action, str], None] = _ignore,
    ) -> None:
        self._name = name
        self._config = config
        self._launcher = launcher
        self._checkpointer = checkpointer
        self._clock = clock
        self._env = env
        self._extras = dict(extras or {})
        self._on_exception = on_exception
        self._connection = DaemonConnection(str(name), announced=announced_to(config))
        self._log = ChildLog(name, clock, config.log_format)
        self._child: Child | None = None
        self._exchanges: ChildExchange | None = None
        self._listening: asyncio.Task[None] | None = None
        self._has_ended = False

    @property
    def pid(self) -> int | None:
        """Process id of the child while it runs."""
        return None if self._child is None or self._is_over else self._child.pid

    @property
    def may_talk(self) -> bool:
        """True while the child waits for its next message."""
        return self._connection.state is State.IDLE

    @property
    def tick_due_at(self) -> float | None:
        """Reading of ``Clock.monotonic`` when an idle child wants an empty batch; None = never."""
        exchanges = self._exchanges
        if exchanges is None or exchanges.tick_s is None:
            return None
        return exchanges.idle_since + exchanges.tick_s

    @property
    def call_age_s(self) -> float | None:
        """Seconds since the message that is not answered; None while no answer is pending."""
        return None if self._exchanges is None else self._exchanges.call_age_s

    @property
    def silent_s(self) -> float | None:
        """Seconds without a message while an answer is pending; None while none is."""
        return None if self._exchanges is None else self._exchanges.silent_s

    @property
    def silence_cause(self) -> str | None:
        """Why it has been silent for long, if known."""
        return None if self._exchanges is None else self._exchanges.silence_cause

    @property
    def is_unreachable(self) -> bool:
        """True when it runs but closed a pipe to the daemon, so that it can never answer again."""
        return self._exchanges is not None and self._exchanges.is_cut_off and not self._is_over

    @property
    def _is_over(self) -> bool:
        exchanges = self._exchanges
        return self._has_ended or (exchanges is not None and exchanges.exit_status is not None)

    @property
    def was_hung_up(self) -> bool:
        """True when its input was closed before it had answered ``initialize``."""
        return self._exchanges is not None and self._exchanges.was_hung_up

    def keep_stderr(self) -> None:
        """Keep its last lines of stderr for :attr:`last_stderr`; call before it is started."""
        self._log.keep_lines()

    @property
    def last_stderr(self) -> str | None:
        """Its last lines of stderr; None = they were not kept."""
        return self._log.last_lines

    # -- actions -------------------------------------------------------------------------------

    async def initialize(
        self,
        group: asyncio.TaskGroup,
        position: ExtendedSequenceNumber,
        leaving: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start the child and send it shard and position.

        Args:
            group: its stdout is read in a task of this group, until :meth:`stop` or :meth:`kill`.
            leaving: returns once the shard is given up; a child that has not begun by then, and
                shows that it waits for something else, is ended and fails. None = never.
        """
        try:
            self._child = await self._launcher.start(self._config.argv, self._env, self._log.stderr)
        except OSError as error:
            command = " ".join(self._config.argv)
            why = f"cannot start {command!r}: {error}"
            raise ChildFailed(str(self._name), str(Action.INITIALIZE), why, None) from error
        self._log.pid = self._child.pid
        self._exchanges = ChildExchange(
            self._child,
            self._connection,
            self._config,
            self._checkpointer,
            self._log,
            self._clock,
            self._on_exception,
        )
        self._listening = group.create_task(
            self._exchanges.listen(), name=f"stdout of child {self._child.pid}"
        )
        log.info(
            "%s: started child %d at %s",
            self._name,
            self._child.pid,
            position,
            extra=self._name.facts,
        )
        message = Initialize(
            self._name.shard_id,
            str(position.sequence_number),
            position.sub_sequence_number,
            self._extras,
        )
        hanging_up = group.create_task(self._hang_up(leaving)) if leaving else None
        try:
            await self._exchange(Action.INITIALIZE, self._connection.send(message))
        finally:
            if hanging_up is not None:
                hanging_up.cancel()

    async def _hang_up(self, leaving: Callable[[], Awaitable[None]]) -> None:
        await leaving()
        await self._running().hang_up_once_it_waits()

    async def process(self, outgoing: OutgoingLine) -> None:
        """Deliver a batch: one whole ``processRecords`` line."""
        line = self._connection.send_encoded(Action.PROCESS_RECORDS, outgoing.take())
        box = [line]
        del line
        await self._running().run(Action.PROCESS_RECORDS, box, outgoing.on_written)

    async def tick(self, millis_behind_latest: int | None) -> None:
        """Deliver an empty batch to a child that asked for one after this long."""
        line = self._connection.send(ProcessRecords((), millis_behind_latest))
        await self._exchange(Action.PROCESS_RECORDS, line)

    @asynccontextmanager
    async def unless_it_ends(self) -> AsyncIterator[None]:
        """Wait inside while the child is idle; the wait ends when the child does.

        Raises:
            ChildFailed: it exited or closed its stdout.
        """
        async with self._running().unless_it_ends():
            yield

    async def lease_lost(self) -> None:
        """Notify it that the shard belongs to another worker now."""
        await self._exchange(Action.LEASE_LOST, self._connection.send(LeaseLost()))

    async def shard_ended(self) -> None:
        """Notify it that the shard is read to its end; it must checkpoint before it answers."""
        await self._exchange(Action.SHARD_ENDED, self._connection.send(ShardEnded()))

    async def shutdown_requested(self) -> bool:
        """Notify it that the worker stops; False when it failed, which is only logged."""
        try:
            await self._exchange(
                Action.SHUTDOWN_REQUESTED, self._connection.send(ShutdownRequested())
            )
        except ChildTimedOut:
            raise
        except ChildFailed as error:
            log.error("%s; the shutdown continues", error, extra=self._name.facts)  # noqa: TRY400
            return False
        return True

    async def _exchange(self, action: Action, line: bytes) -> None:
        await self._running().run(action, [line])

    def _running(self) -> ChildExchange:
        if self._exchanges is None:
            raise RuntimeError("the child was not started")
        return self._exchanges

    # -- the end -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Close stdin, read the rest of stdout, and make sure that the child ends.

        Cancellation: the child is killed.
        """
        child = self._child
        if child is None:
            return
        try:
            await self._stop_listening()
            await _end_child(child, self._connection, self._log, self._config)
            self._has_ended = True
        except BaseException:
            child.kill()
            raise
        finally:
            self._log.close()

    async def _stop_listening(self) -> None:
        """Stop reading stdout; the code that ends the child reads the rest."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def terminate(self, *, by_force: bool = False) -> None:
        """SIGTERM, or SIGKILL, for a child that hangs; :meth:`stop` must follow."""
        if self._child is not None:
            (self._child.kill if by_force else self._child.terminate)()

    def kill(self) -> None:
        """End it now, without a message."""
        if self._listening is not None:
            self._listening.cancel()
        if self._child is not None:
            self._child.kill()


async def _end_child(
    child: Child, connection: DaemonConnection, child_log: ChildLog, config: ChildConfig
) -> int:
    """Close its stdin, log the rest of its stdout, and make sure that it ends.

    Returns:
        Its exit status, negative = signal number.

    Cancellation: the child may still run; kill it.
    """
    name = connection.shard_id
    connection.close()
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(_drain(child, connection, child_log))
        await child.close_stdin()
        status = await _status_of(child, config, name)
        log.info("%s: child %d exited with status %d", name, child.pid, status)
        try:
            async with asyncio.timeout(DRAIN_AFTER_EXIT_S):
                await asyncio.shield(draining)
        except TimeoutError:
            log.warning(
                "%s: processes that child %d started still run; killing them", name, child.pid
            )
            child.kill()
        draining.cancel()
    return status


async def _status_of(child: Child, config: ChildConfig, name: str) -> int:
    status = await _ended_within(child, config.eof_grace_s)
    if status is None:
        text = "%s: child %d still runs %g s after the end of its input; sending SIGTERM"
        log.warning(text, name, child.pid, config.eof_grace_s)
        child.terminate()
        status = await _ended_within(child, config.term_grace_s)
    if status is None:
        text = "%s: child %d still runs %g s after SIGTERM; killing it"
        log.warning(text, name, child.pid, config.term_grace_s)
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
    """Log the rest of stdout, to its end."""
    while True:
        match connection.next_event():
            case JunkLine() as junk:
                child_log.stdout(junk)
            case EndOfStream():
                return
            case _:
                connection.receive_data(await child.read())
                # A child that floods its stdout always has something to read: let other tasks run.
                await asyncio.sleep(0)
