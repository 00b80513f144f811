"""One child's exchanges: a line to the child, its requests and their answers, and its status.

The line is written while stdout is already being read. The exchange ends with the status of the
same action, or fails the child. This module handles the bytes of the pipes; ``protocol`` defines
which message is valid when.

Programs of amazon_kclpy also answer when their processor raised: stderr written before the status
is read before the status counts.

Stdout is read all the time, so that the end of a child is noticed at once. What an idle child
prints is kept, unread, for its next message, as in Java, which notices the end of an idle child
only then.

Source: MultiLangProtocol.java:154-298 (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from kcl_mld.children.model.consumer_status import CHILD_SILENT_S
from kcl_mld.config.child_command import spark_command
from kcl_mld.errors import ChildFailed, ChildReported, ChildTimedOut
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.text import lasted
from kcl_mld_protocol import (
    NEED_DATA,
    Action,
    CheckpointRequest,
    CheckpointRequested,
    CheckpointResult,
    DaemonConnection,
    DaemonEvent,
    IgnoredMessage,
    JunkLine,
    RemoteProtocolError,
    Status,
    StatusReceived,
    TickRequested,
)
from kcl_mld_protocol.additions import TICK_RANGE_S, is_tick
from kcl_mld_protocol.errors import INVALID_STATE, advice_on_1x

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kcl_mld.children.child_log import ChildLog
    from kcl_mld.children.ports import Checkpointer, Child
    from kcl_mld.config.config import ChildConfig
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.children")

#: Time for a child to exit after its stdout ended or its stdin broke, so that its exit status is
#: known.
_EXIT_STATUS_S = 0.5
#: Bytes of stdout that are buffered while no answer is awaited; the rest stays in the pipe.
_UNASKED_BYTES = 65_536
#: If configured, a status that follows other output on a line is accepted after this time without
#: another message.
_GLUED_S = 5.0
#: A time-out that is noticed this much too late was caused by the daemon, not by the child.
_FROZEN_S = 1.0
#: Actions during which checkpoint requests can be served, as in Java.
_CARRY_CHECKPOINTER = frozenset(
    {Action.PROCESS_RECORDS, Action.SHARD_ENDED, Action.SHUTDOWN_REQUESTED}
)
#: As :meth:`kcl_mld_protocol.ChildConnection.keep_alive` writes it.
_KEEP_ALIVE = IgnoredMessage(Action.LEASE_LOST)


_T = TypeVar("_T")


class ChildExchange:
    """The conversation with one running child, one exchange at a time.

    Args:
        connection: its protocol state; its ``shard_id`` names the child in errors.
        checkpointer: answers its requests; None = none is possible.
        child_log: gets its lines that are no messages.
        on_exception: called with the action and the child's text when its processor raised an
            exception and the child continues; an exception from it fails the action.
    """

    def __init__(
        self,
        child: Child,
        connection: DaemonConnection,
        config: ChildConfig,
        checkpointer: Checkpointer | None,
        child_log: ChildLog,
        clock: Clock,
        on_exception: Callable[[Action, str], None],
    ) -> None:
        self._child = child
        self._connection = connection
        self._name = connection.shard_id
        self._config = config
        self._checkpointer = checkpointer
        self._log = child_log
        self._clock = clock
        self._on_exception = on_exception
        self._awaited: Action | None = None
        self._heard_at = clock.monotonic()
        self._has_warned = False
        self._glued_at = 0.0
        self._ignored: str | None = None
        self._write_error: OSError | None = None
        self._answer_limit: asyncio.Timeout | None = None
        self._has_complained = False
        self._arrived = asyncio.Event()
        self._is_ending = asyncio.Event()
        self._is_wanted = asyncio.Event()
        self._idle_limit: asyncio.Timeout | None = None
        self._idle_failure: ChildFailed | None = None
        #: Set when the child shows, before it answers ``initialize``, that it waits for others.
        self.waits_elsewhere = asyncio.Event()
        self.was_hung_up = False
        #: How often the child wants a message while there are no records; None = never.
        self.tick_s: float | None = None
        #: Reading of ``Clock.monotonic`` at the end of the last exchange.
        self.idle_since = clock.monotonic()
        #: Of a child that ended before it was told to.
        self.exit_status: int | None = None

    @property
    def is_cut_off(self) -> bool:
        """True when it closed a pipe to the daemon, so that it can never answer again."""
        return self._connection.stream_ended or self._write_error is not None

    @property
    def call_age_s(self) -> float | None:
        """Seconds since the message whose status is pending; None while none is."""
        return None if self._awaited is None else self._clock.monotonic() - self._called_at

    @property
    def silent_s(self) -> float | None:
        """Seconds without a message while a status is pending; None while none is."""
        return None if self._awaited is None else self._clock.monotonic() - self._heard_at

    @property
    def silence_cause(self) -> str | None:
        """Why it may have been silent for so long, if known."""
        silent_s = self.silent_s
        return None if silent_s is None or silent_s < CHILD_SILENT_S else self._ignored

    # -- reading -------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read its stdout until it ends; must run as a task of its own.

        Cancellation: what was read stays; the code that ends the child reads the rest.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._notice_exit())
            watching = group.create_task(self._watch_silence())
            await self._is_ending.wait()
            watching.cancel()
            await self._learn_exit_status()
            has_exited = self.exit_status is not None
            why = "it exited unexpectedly" if has_exited else "it closed its stdout"
            self._idle_failure = self._failure(None, self._with_stderr(why))
            if self._idle_limit is not None and not self._idle_limit.expired():
                self._idle_limit.reschedule(asyncio.get_running_loop().time())

    async def _read(self) -> None:
        while not self._connection.stream_ended:
            if self._connection.buffered_bytes >= _UNASKED_BYTES:
                await self._is_wanted.wait()
            self._connection.receive_data(await self._child.read())
            self._arrived.set()
            # A child that floods its stdout always has something to read: let other tasks run.
            await asyncio.sleep(0)
        self._is_ending.set()

    async def _notice_exit(self) -> None:
        await self._child.wait()
        self._is_ending.set()

    async def _watch_silence(self) -> None:
        """Warn once for each message that is not answered."""
        while True:
            silent_s = self.silent_s or 0.0
            if silent_s >= CHILD_SILENT_S and not self._has_warned:
                self._has_warned = True
                log.warning(
                    "%s: the child (pid %d) has not answered %s for %s%s",
                    self._name,
                    self._child.pid,
                    self._awaited,
                    lasted(silent_s),
                    f"; {self._ignored}" if self._ignored else "",
                    extra=self._log.facts,
                )
            left_s = CHILD_SILENT_S - silent_s
            await asyncio.sleep(left_s if left_s > 0 else CHILD_SILENT_S)

    async def _learn_exit_status(self) -> None:
        """Wait for the exit status, which may take a moment longer than the end of the pipes."""
        try:
            async with asyncio.timeout(_EXIT_STATUS_S):
                self.exit_status = await self._child.wait()
        except TimeoutError:
            pass

    @asynccontextmanager
    async def unless_it_ends(self) -> AsyncIterator[None]:
        """Interrupt the code inside when the idle child ends.

        Raises:
            ChildFailed: it exited or closed its stdout.
        """
        if self._idle_failure is not None:
            raise self._idle_failure
        self._idle_limit = limit = asyncio.timeout(None)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired() and self._idle_failure is not None:
                raise self._idle_failure from None
            raise
        finally:
            self._idle_limit = None

    # -- exchanges -----------------------------------------------------------------------------

    async def run(
        self,
        action: Action,
        contents: list[bytes],
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Write a line, answer requests, and wait for the status.

        Args:
            contents: the line; the list is emptied so that the bytes can be freed.
            on_written: called when the pipe has taken all of it, or never will.

        Raises:
            ChildFailed: it broke the protocol or ended; ChildTimedOut: it was silent for too long.
        """
        failure: ChildFailed | None = None
        self._write_error = self._answer_limit = self._ignored = None
        self._awaited, self._has_warned = action, False
        self._called_at = self._heard_at = self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(contents, on_written))
            warning = group.create_task(self._log.say_busy(action, self._config.warn_after_s))
            try:
                await self._await_status(action)
                await self._await_written(action, writing)
                self._notice_exception(action)
            except ChildFailed as error:
                failure = error
            finally:
                writing.cancel()
                warning.cancel()
                self._awaited = None
                self.idle_since = self._clock.monotonic()
        if failure is not None:
            raise failure

    async def _write(
        self, contents: list[bytes], on_written: Callable[[], None] | None
    ) -> OSError | None:
        """Write and remove the content of the list."""
        try:
            await self._child.write(contents.pop())
        except OSError as error:
            # An answer to a line that the child did not read completely is worthless. If its exit
            # follows now, that explains more; but a child that runs without its stdin never
            # answers.
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
        """Wait for the write: a correct status does not replace reading the whole line."""
        error = await self._in_time(action, asyncio.shield(writing))
        if error is not None:
            raise self._unwritable(action, error)

    async def _in_time(self, action: Action, reading: Awaitable[_T]) -> _T:
        """The result of reading, within the time for an answer."""
        try:
            async with asyncio.timeout(self._config.answer_timeout_s):
                return await reading
        except TimeoutError:
            why = f"it has not read its input for {self._config.answer_timeout_s} s"
            raise ChildTimedOut(self._name, str(action), why) from None

    def _notice_exception(self, action: Action) -> None:
        """Report the processor's exception if the child wrote it to stderr before its status."""
        self._child.read_stderr()
        if (exception := self._log.take_exception()) is not None:
            self._on_exception(action, exception)

    async def _await_status(self, action: Action) -> None:
        while True:
            limit_s = _EXIT_STATUS_S if self._write_error else self._config.answer_timeout_s
            limit = self._answer_limit = asyncio.timeout(limit_s)
            try:
                async with limit:
                    try:
                        event = await self._next_message()
                    finally:
                        self._answer_limit = None  # once it is over, no timer may move it
            except TimeoutError:
                if self._write_error is not None:
                    raise self._unwritable(action, self._write_error) from None
                late_s = asyncio.get_running_loop().time() - (limit.when() or 0.0)
                if late_s > _FROZEN_S:
                    log.warning(
                        "%s: this process was suspended for %.0f s; the child gets more time",
                        self._name,
                        late_s,
                    )
                    continue  # the answer may be there, but not yet read
                raise self._timed_out(action) from None
            except RemoteProtocolError as error:
                raise await self._broken(action, error) from error
            self._heard_at = self._clock.monotonic()
            if isinstance(event, StatusReceived):
                if event.failed is not None:
                    raise self._reported(action, event.failed)
                return
            await self._serve(action, event)

    async def _serve(self, action: Action, event: DaemonEvent) -> None:
        """Serve a child's request while a status is pending."""
        match event:
            case CheckpointRequested(request=request):
                await self._answer(action, request)
            case TickRequested(seconds=seconds):
                self._note_tick(seconds)
            case _:  # perhaps keep-alives: each has restarted the time-out
                if action is Action.INITIALIZE and event == _KEEP_ALIVE:
                    self.waits_elsewhere.set()
                log.debug("%s: ignored a message of the child: %s", self._name, event)

    async def _next_message(self) -> DaemonEvent:
        """The next line that is a message; other lines go to the log."""
        ignored = None  # beside the message, which does not make up for it
        while (event := self._connection.next_event()) is NEED_DATA or isinstance(event, JunkLine):
            if isinstance(event, JunkLine):
                ignored = self._log.stdout(event) or ignored
                self._ignored = ignored or self._ignored
                if event.is_glued:
                    self._glued_at = self._clock.monotonic()
            elif await self._next_data():
                ignored = None
            else:
                log.warning(
                    "%s: accepted a status that follows other output on its line", self._name
                )
                return self._connection.take_glued_status()
        self._ignored = ignored
        return event

    async def _next_data(self) -> bool:
        """Wait until :meth:`listen` has read new data.

        Returns:
            False when none arrived, and a status that follows other output is to be accepted.
        """
        self._arrived.clear()
        self._is_wanted.set()
        try:
            if not (self._config.recovers_glued and self._connection.has_glued_status):
                await self._arrived.wait()
                return True
            left_s = self._glued_at + _GLUED_S - self._clock.monotonic()
            async with asyncio.timeout(max(0.0, left_s)):
                await self._arrived.wait()
        except TimeoutError:
            return False
        finally:
            self._is_wanted.clear()
        return True

    async def _answer(self, action: Action, request: CheckpointRequest) -> None:
        """Perform a checkpoint request and write its result with the requested position."""
        if action in _CARRY_CHECKPOINTER and self._checkpointer is not None:
            error = await self._checkpointer.checkpoint(
                request.sequence_number, request.sub_sequence_number
            )
        else:
            log.error(
                "%s: the child asked for a checkpoint at %s during %s, where none is possible",
                self._name,
                printable(str(request.sequence_number)),
                action,
            )
            error = INVALID_STATE
        result = CheckpointResult(request.sequence_number, request.sub_sequence_number, error)
        await self._reply(action, result)

    async def _reply(self, action: Action, result: CheckpointResult) -> None:
        try:
            await self._in_time(action, self._child.write(self._connection.send(result)))
        except OSError as why:
            what = f"the {result.action} result cannot be written: {why}"
            raise self._failure(action, what) from why

    def _note_tick(self, seconds: float | None) -> None:
        if is_tick(seconds):
            self.tick_s = seconds
        elif not self._has_complained:
            self._has_complained = True
            log.error(
                "%s: the child asked for a tick every %s s, which is ignored: it must be %g to %g",
                self._name,
                seconds,
                *TICK_RANGE_S,
            )

    async def hang_up_once_it_waits(self) -> None:
        """Close stdin of a child that waits for something else before it has begun.

        A keep-alive before the answer to ``initialize`` shows that it waits: it has done nothing
        for its shard, and the end of its input ends it. A child without a keep-alive may be in the
        middle of its preparations and gets the usual sequence of messages.
        """
        await self.waits_elsewhere.wait()
        self.was_hung_up = True
        await self._child.close_stdin()
        await asyncio.sleep(self._config.eof_grace_s)
        self._child.terminate()

    # -- failures ------------------------------------------------------------------------------

    def _failure(self, action: Action | None, why: str, advice: str = "") -> ChildFailed:
        name = None if action is None else str(action)
        return ChildFailed(self._name, name, why, self.exit_status, advice=advice)

    def _reported(self, action: Action, status: Status) -> ChildReported:
        return ChildReported(
            self._name,
            str(action),
            f"it answered with a failure: {printable(status.failure or '')}",
            status.failed_sequence_number,
            status.failed_sub_sequence_number or 0,
        )

    def _unwritable(self, action: Action, error: OSError) -> ChildFailed:
        return self._failure(action, f"its stdin cannot be written: {error}")

    def _timed_out(self, action: Action) -> ChildTimedOut:
        why = f"no answer within {self._config.answer_timeout_s} s"
        return ChildTimedOut(self._name, str(action), why, advice=self._advice(action))

    def _advice(self, action: Action) -> str:
        """What may be wrong with a child that did not answer, unless a signal ended it."""
        is_killed = self.exit_status is not None and self.exit_status < 0
        is_ours = spark_command(self._config.argv) is not None
        return "" if is_killed or is_ours else advice_on_1x(action)

    async def _broken(self, action: Action, error: RemoteProtocolError) -> ChildFailed:
        """The failure, with exit status and last stderr output if the child ended."""
        why = str(error)
        if self._connection.stream_ended:
            await self._learn_exit_status()
            why = self._with_stderr(why)
            return self._failure(action, why, self._advice(action))
        return self._failure(action, why)

    def _with_stderr(self, why: str) -> str:
        """The reason, with the last stderr output of a child that ended with an error."""
        if (self.exit_status or 0) > 0 and (stderr := self._log.why_it_failed):
            return f"{why}; its stderr: {stderr}"
        return why
