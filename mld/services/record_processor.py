"""One child process and the conversation with it.

Each action is one exchange: the line is written while stdout is read already, checkpoint requests
are answered, and the exchange ends with the status of that very action or fails the child. The
pipes are bytes here; what may be said when is decided by ``protocol``.

Ending a child never waits for ever: EOF, a grace, SIGTERM to its group, a grace, SIGKILL.

Source: MultiLangProtocol.java:154-298, MultiLangShardRecordProcessor.java (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.errors import ChildFailed, ChildTimedOut
from mld.services.child_end import end_child
from mld.services.child_log import ChildLog
from protocol import (
    Action,
    CheckpointRequest,
    CheckpointRequested,
    CheckpointResult,
    DaemonConnection,
    IgnoredMessage,
    Initialize,
    JunkLine,
    LeaseLost,
    RemoteProtocolError,
    ShardEnded,
    ShutdownRequested,
    State,
    StatusReceived,
)
from protocol.errors import INVALID_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mld.model.config import ChildConfig
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.ports.children import Child, ChildLauncher
    from mld.ports.clock import Clock
    from mld.services.checkpointer import Checkpointer

log = logging.getLogger(__name__)

#: How long a child whose stdout ended or whose stdin broke may take to end, so that its exit
#: status can be told.
_EXIT_STATUS_S = 0.5
#: A time-out that is noticed so much too late tells of us, not of the child.
_FROZEN_S = 1.0
#: Actions whose checkpoint requests can be served, as in Java.
_CARRY_CHECKPOINTER = frozenset(
    {Action.PROCESS_RECORDS, Action.SHARD_ENDED, Action.SHUTDOWN_REQUESTED}
)


@dataclass(slots=True)
class OutgoingLine:
    """A large line that is let go of as soon as it is written.

    Attributes:
        line: the bytes; None once taken.
        on_written: called when the pipe has taken all of it, or never will.
    """

    line: bytes | None
    on_written: Callable[[], None]

    def take(self) -> bytes:
        """The line, once.

        Raises:
            ValueError: it was taken before.
        """
        taken, self.line = self.line, None
        if taken is None:
            raise ValueError("the line was taken before")
        return taken


class RecordProcessor:
    """A shard's child; every method that talks to it raises ChildFailed when it misbehaves."""

    def __init__(
        self,
        shard_id: str,
        config: ChildConfig,
        launcher: ChildLauncher,
        checkpointer: Checkpointer,
        clock: Clock,
        env: Mapping[str, str],
    ) -> None:
        """Nothing is started before :meth:`initialize`.

        Args:
            shard_id: bare shard id, told to the child.
            config: command, time-outs and graces.
            launcher: starts it.
            checkpointer: answers its requests.
            clock: for the log's rate limit and warnings.
            env: added to the child's environment.
        """
        self._shard_id = shard_id
        self._config = config
        self._launcher = launcher
        self._checkpointer = checkpointer
        self._clock = clock
        self._env = env
        self._connection = DaemonConnection(shard_id)
        self._log = ChildLog(shard_id, clock)
        self._child: Child | None = None
        self._exit_status: int | None = None
        self._write_error: OSError | None = None
        self._answer_limit: asyncio.Timeout | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the child while it runs."""
        return self._child.pid if self._child is not None and self._exit_status is None else None

    @property
    def may_talk(self) -> bool:
        """True while the child waits for its next message."""
        return self._connection.state is State.IDLE

    @property
    def is_unreachable(self) -> bool:
        """True when it runs but closed a pipe to us, so that it can never answer again."""
        is_cut_off = self._connection.stream_ended or self._write_error is not None
        return self._exit_status is None and is_cut_off

    # -- actions -------------------------------------------------------------------------------

    async def initialize(self, position: ExtendedSequenceNumber) -> None:
        """Start the child and tell it shard and position."""
        try:
            self._child = await self._launcher.start(self._config.argv, self._env, self._log.stderr)
        except OSError as error:
            command = " ".join(self._config.argv)
            raise self._failure(Action.INITIALIZE, f"cannot start {command!r}: {error}") from error
        self._log.pid = self._child.pid
        log.info(
            "%s: started child %d at %s",
            self._shard_id,
            self._child.pid,
            position,
            extra={"shard_id": self._shard_id},
        )
        message = Initialize(
            self._shard_id, str(position.sequence_number), position.sub_sequence_number
        )
        await self._exchange(Action.INITIALIZE, self._connection.send(message))

    async def process(self, outgoing: OutgoingLine) -> None:
        """Deliver a batch: a whole ``processRecords`` line."""
        line = self._connection.send_encoded(Action.PROCESS_RECORDS, outgoing.take())
        box = [line]
        del line
        await self._exchange(Action.PROCESS_RECORDS, None, box, outgoing.on_written)

    async def lease_lost(self) -> None:
        """Tell it that the shard belongs to another worker now."""
        await self._exchange(Action.LEASE_LOST, self._connection.send(LeaseLost()))

    async def shard_ended(self) -> None:
        """Tell it that the shard is read to its end; it must checkpoint before it answers."""
        await self._exchange(Action.SHARD_ENDED, self._connection.send(ShardEnded()))

    async def shutdown_requested(self) -> bool:
        """Tell it that the worker stops; False when it failed, which is logged and survived."""
        try:
            await self._exchange(
                Action.SHUTDOWN_REQUESTED, self._connection.send(ShutdownRequested())
            )
        except ChildTimedOut:
            raise
        except ChildFailed as error:
            log.error("%s; the shutdown goes on", error, extra={"shard_id": self._shard_id})  # noqa: TRY400
            return False
        return True

    # -- one exchange --------------------------------------------------------------------------

    async def _exchange(
        self,
        action: Action,
        line: bytes | None,
        box: list[bytes] | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Write a line, answer checkpoint requests, and wait for the status."""
        contents = [line] if line is not None else box or []
        failure: ChildFailed | None = None
        self._write_error = self._answer_limit = None
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(contents, on_written))
            warning = group.create_task(self._warn(action))
            try:
                await self._await_status(action)
                await self._await_written(action, writing)
            except ChildFailed as error:
                failure = error
            finally:
                writing.cancel()
                warning.cancel()
        if failure is not None:
            raise failure

    async def _write(
        self, contents: list[bytes], on_written: Callable[[], None] | None
    ) -> OSError | None:
        """Write what the list holds; the list is emptied so that nobody keeps the bytes."""
        try:
            await self._running().write(contents.pop())
        except OSError as error:
            # An answer to what it never read to its end would be worth nothing. Its end, if it
            # comes now, tells more; but a child that lives on without its stdin never answers.
            self._write_error = error
            limit = self._answer_limit
            if limit is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + _EXIT_STATUS_S)
            return error
        finally:
            if on_written is not None:
                on_written()
        return None

    async def _await_written(self, action: Action, writing: asyncio.Task[OSError | None]) -> None:
        """A correct status does not make up for a line that was not read to its end."""
        try:
            async with asyncio.timeout(self._config.answer_timeout_s):
                error = await asyncio.shield(writing)
        except TimeoutError:
            raise self._timed_out(action) from None
        if error is not None:
            raise self._unwritable(action, error)

    async def _await_status(self, action: Action) -> None:
        while True:
            limit_s = _EXIT_STATUS_S if self._write_error else self._config.answer_timeout_s
            limit = self._answer_limit = asyncio.timeout(limit_s)
            try:
                async with limit:
                    event = await self._next_message()
            except TimeoutError:
                if self._write_error is not None:
                    raise self._unwritable(action, self._write_error) from None
                late_s = asyncio.get_running_loop().time() - (limit.when() or 0.0)
                if late_s > _FROZEN_S:
                    log.warning("%s: this process stood still for %.0f s", self._shard_id, late_s)
                    continue  # the answer may be there, only nobody has read it
                raise self._timed_out(action) from None
            except RemoteProtocolError as error:
                raise await self._broken(action, error) from error
            finally:
                self._answer_limit = None
            match event:
                case StatusReceived():
                    return
                case CheckpointRequested(request=request):
                    await self._answer(action, request)
                case IgnoredMessage(action=ignored):
                    log.debug("%s: ignored a %s message of the child", self._shard_id, ignored)

    async def _next_message(self) -> StatusReceived | CheckpointRequested | IgnoredMessage:
        """The next line that is a message; everything else goes to the log."""
        while True:
            match self._connection.next_event():
                case JunkLine(line=line, reason=reason):
                    self._log.stdout(line, reason)
                case StatusReceived() | CheckpointRequested() | IgnoredMessage() as message:
                    return message
                case _:
                    await self._read_more()

    async def _read_more(self) -> None:
        self._connection.receive_data(await self._running().read())
        # A child that floods its stdout has always something to read: let the others live, too.
        await asyncio.sleep(0)

    async def _answer(self, action: Action, request: CheckpointRequest) -> None:
        """Perform a checkpoint request and write its result, echoing what was asked."""
        if action in _CARRY_CHECKPOINTER:
            error = await self._checkpointer.checkpoint(
                request.sequence_number, request.sub_sequence_number
            )
        else:
            log.error(
                "%s: the child asked for a checkpoint at %s during %s, which has none",
                self._shard_id,
                request.sequence_number,
                action,
            )
            error = INVALID_STATE
        result = CheckpointResult(request.sequence_number, request.sub_sequence_number, error)
        try:
            await self._running().write(self._connection.send(result))
        except OSError as why:
            raise self._failure(action, f"the checkpoint result cannot be written: {why}") from why

    async def _warn(self, action: Action) -> None:
        """Say again and again that the child takes long, where that is configured."""
        period_s = self._config.warn_after_s
        if period_s is None:
            return
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(period_s)
            log.warning(
                "%s: the child (pid %s) has been busy with %s for %.1f s",
                self._shard_id,
                self.pid,
                action,
                self._clock.monotonic() - began,
                extra={"shard_id": self._shard_id},
            )

    # -- failures ------------------------------------------------------------------------------

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("the child was not started")
        return self._child

    def _failure(self, action: Action, why: str) -> ChildFailed:
        return ChildFailed(self._shard_id, str(action), why, self._exit_status)

    def _unwritable(self, action: Action, error: OSError) -> ChildFailed:
        return self._failure(action, f"its stdin cannot be written: {error}")

    def _timed_out(self, action: Action) -> ChildTimedOut:
        why = f"no answer within {self._config.answer_timeout_s} s"
        return ChildTimedOut(self._shard_id, str(action), why)

    async def _broken(self, action: Action, error: RemoteProtocolError) -> ChildFailed:
        """The failure with the exit status, if the child ended."""
        if self._connection.stream_ended:
            try:
                async with asyncio.timeout(_EXIT_STATUS_S):
                    self._exit_status = await self._running().wait()
            except TimeoutError:
                pass
        return self._failure(action, str(error))

    # -- the end -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Close stdin, read the rest of stdout, and see that the child ends.

        Cancellation: the child is killed.
        """
        child = self._child
        if child is None:
            return
        try:
            self._exit_status = await end_child(child, self._connection, self._log, self._config)
        except BaseException:
            child.kill()
            raise
        finally:
            self._log.close()

    def terminate(self) -> None:
        """SIGTERM, for a child that hangs; :meth:`stop` must follow."""
        if self._child is not None:
            self._child.terminate()

    def kill(self) -> None:
        """End it now, without a word."""
        if self._child is not None:
            self._child.kill()
