"""Child processes as coroutines: the real protocol at their end, manners drawn by the nemesis."""

from __future__ import annotations

import asyncio
import contextvars
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld_protocol import ChildConnection, EndOfStream, capabilities
from kcl_mld_protocol.connection import NEED_DATA
from kcl_mld_protocol.errors import RemoteProtocolError
from kcl_mld_protocol.messages import (
    Action,
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
)
from tests.sim.loop import OWNER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld_protocol import ChildMessage
    from tests.sim.gate import Gate
    from tests.sim.judges import Judges

_PIPE_BYTES = 65_536
_SIGTERM = -15
_SIGKILL = -9


@dataclass(frozen=True)
class Manners:
    """How a child behaves; probabilities per message.

    Attributes:
        work_s: shortest and longest time for one message.
        checkpoints: ``batch`` = after each, ``record`` = at a record in its middle and after it,
            ``rarely`` = after every fifth, ``late`` = only when asked to end, ``cheeky`` = after
            each, and at positions and times at which it may not, ``timed`` = as kclpy's sample, at
            its last number when :data:`TIMER_S` have passed, ``each`` = at the record that is the
            :data:`EACH`-th since the last, ``own`` = after each, at its last number if it has
            one, ``never`` = not even at the end.
        crash: it exits in the middle of a message.
        mute: it never answers again.
        garbage: it prints a line that is no message.
        wrong: it answers another action than it was told.
        leaves_at_end: it exits before it is told that the shard has ended.
        forgets_end: it answers shardEnded without a checkpoint.
        deaf_to_term: only SIGKILL ends it.
        tick_s: it asks for ticks of that period; 0 = it does not.
        stalls: it takes :data:`STALL_S` for a message with records.
        poison: it crashes at one of so many records, always the same ones; 0 = at none.
    """

    work_s: tuple[float, float] = (0.0, 0.05)
    checkpoints: str = "batch"
    crash: float = 0.0
    mute: float = 0.0
    garbage: float = 0.0
    wrong: float = 0.0
    leaves_at_end: float = 0.0
    forgets_end: float = 0.0
    deaf_to_term: bool = False
    tick_s: float = 0.0
    poison: int = 0
    stalls: float = 0.0


#: Between two checkpoints of kclpy's sample.
TIMER_S = 30.0
#: How long a child that stalls takes, in s.
STALL_S = (10.0, 90.0)
#: Records between two checkpoints of a child that counts them.
EACH = 7


class _Pipe:
    """Bytes in one direction."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self.closed = False
        self.broken = False

    def close(self) -> None:
        """No more will be written."""
        self.closed = True
        self._changed.set()

    def break_off(self) -> None:
        """The reader is gone."""
        self.broken = True
        self._changed.set()

    async def write(self, data: bytes) -> None:
        if self.broken or self.closed:
            raise BrokenPipeError("the reader is gone")
        self._buffer += data
        self._changed.set()
        while len(self._buffer) > _PIPE_BYTES and not self.broken:
            self._changed.clear()
            await self._changed.wait()
        if self.broken:
            raise BrokenPipeError("the reader is gone")

    async def read(self) -> bytes:
        while not self._buffer and not self.closed:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer)
        self._buffer.clear()
        self._changed.set()
        return data


class SimChild:
    """One process: :class:`kcl_mld.children.ports.Child` for the daemon, a coroutine inside.

    Attributes:
        shard_id: known from initialize on; of one of many streams the lease key.
        began_at: position told in initialize.
        index: which of the children of its shard it is.
        siblings: how many children the shard has, this one among them.
    """

    def __init__(
        self,
        pid: int,
        worker: str,
        manners: Callable[[], Manners],
        rng: random.Random,
        judges: Judges,
        announced: frozenset[str],
        index: int = 0,
        siblings: int = 1,
    ) -> None:
        self._pid = pid
        self.worker = worker
        self._manners = manners
        self.index = index
        self.siblings = siblings
        self.shard_id = ""
        self.began_at: tuple[str, int] = ("", 0)
        #: Index in the shard's truth of the next record that must come; None before the first.
        self.next_index: int | None = None
        #: Indices of the records that it was given, and how many of them it has confirmed.
        self.given: list[int] = []
        self.confirmed = 0
        #: How many of these its worker knows of.
        self.acknowledged = 0
        #: It was told that the shard has ended.
        self.knows_end = False
        #: When it was told what it has not answered; None while it waits.
        self.busy_since_s: float | None = None
        #: When it gave its last answer, but for those to batches without records.
        self.idle_since_s = 0.0
        #: It has answered leaseLost or shardEnded.
        self.has_last_word = False
        #: How it behaves, whatever the others do.
        self.own_manners: Manners | None = None
        self._batches = 0
        self._last_own: Any = None
        self._checkpointed_s = float("-inf")
        self._uncounted = 0
        #: It has asked for ticks.
        self.asked_for_ticks = False
        self.exit_code: int | None = None
        self._rng = rng
        self._judges = judges
        self._stdin = _Pipe()
        self._stdout = _Pipe()
        self._ended = asyncio.Event()
        self._connection = ChildConnection(announced=announced)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Let it run, outside of the worker's own tasks."""
        context = contextvars.copy_context()
        context.run(OWNER.set, None)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._live(), context=context)

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self.exit_code is None

    @property
    def owes(self) -> bool:
        """Whether it was given a record that it has not confirmed."""
        return self.confirmed < len(self.given)

    def gets(self, key: str) -> bool:
        """Whether a record of this key is its own."""
        return self.siblings == 1 or zlib.crc32(key.encode()) % self.siblings == self.index

    @property
    def manners(self) -> Manners:
        """How it behaves just now."""
        return self.own_manners or self._manners()

    # -- what the daemon sees ------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._pid

    async def write(self, data: bytes) -> None:
        await self._stdin.write(data)

    async def read(self) -> bytes:
        return await self._stdout.read()

    async def close_stdin(self) -> None:
        self._stdin.close()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.exit_code is not None
        return self.exit_code

    def read_stderr(self) -> None:
        pass  # it never writes there

    def terminate(self) -> None:
        if not self.manners.deaf_to_term:
            self._exit(_SIGTERM)

    def kill(self) -> None:
        self._exit(_SIGKILL)

    # -- the process ---------------------------------------------------------------------------

    def _exit(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self._stdin.break_off()
            self._stdout.close()
            self._ended.set()
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()
            self._judges.children.child_ended(self, code)

    async def _live(self) -> None:
        try:
            while not isinstance(message := await self._next(), EndOfStream):
                await self._handle(message)
        except RemoteProtocolError as error:
            if not self._stdin.closed:  # else: dismissed in the middle of a checkpoint
                self._judges.children.illegal_message(self, error)
            self._exit(1)
        except (BrokenPipeError, _Crashed):
            self._exit(1)
        else:
            self._exit(0)

    async def _next(self) -> Any:
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(await self._stdin.read())
        return event

    async def _say(self, message: ChildMessage) -> None:
        await self._stdout.write(self._connection.send(message))

    def _lucky(self, probability: float) -> bool:
        return bool(probability) and self._rng.random() < probability

    async def _handle(self, message: Any) -> None:
        manners = self.manners
        if isinstance(message, Initialize):
            self.shard_id = str(message.extras.get("leaseKey", message.shard_id or ""))
            self.began_at = (message.sequence_number or "", message.sub_sequence_number or 0)
        self._judges.children.message(self, message)
        await asyncio.sleep(self._rng.uniform(*manners.work_s))
        await self._misbehave(manners)
        match message:
            case ProcessRecords():
                await self._process(message)
            case ShardEnded():
                if self._lucky(manners.leaves_at_end):
                    raise _Crashed
                if not self._lucky(manners.forgets_end):
                    await self._checkpoint_at_end()
            case ShutdownRequested():
                await self._checkpoint_at_end()
            case Initialize() if manners.tick_s:
                await self._say(Tick(manners.tick_s))
                self.asked_for_ticks = True
            case LeaseLost() | Initialize():
                pass
        if self._lucky(manners.wrong) and message.action is not Action.INITIALIZE:
            await self._stdout.write(b'{"action":"status","responseFor":"initialize"}\n')
            await asyncio.get_running_loop().create_future()
        self._judges.children.answered(self, message)
        await self._say(Status(message.action))

    async def _misbehave(self, manners: Manners) -> None:
        if manners.checkpoints == "cheeky" and self._lucky(0.3):
            await self._ask_for_too_much()
        if self._lucky(manners.garbage):
            await self._stdout.write(b"Traceback: not a message {\n")
        if self._lucky(manners.crash):
            raise _Crashed
        if self._lucky(manners.mute):
            await asyncio.get_running_loop().create_future()

    async def _process(self, message: ProcessRecords) -> None:
        records = message.records
        self._batches += 1
        if records:
            self._last_own = records[-1]
            if self._lucky(self.manners.stalls):
                await asyncio.sleep(self._rng.uniform(*STALL_S))
        style, poison = self.manners.checkpoints, self.manners.poison
        if poison and any(zlib.crc32(record.binary_data) % poison == 0 for record in records):
            raise _Crashed
        if style == "record" and len(records) > 1:
            middle = len(records) // 2
            self._judges.children.processed(self, records[: middle + 1])
            await self._checkpoint(records[middle])
            self._judges.children.processed(self, records[middle + 1 :])
            await self._checkpoint(records[-1])
            return
        if style == "each":
            await self._process_each(records)
            return
        self._judges.children.processed(self, records)
        if records and (
            style in {"batch", "cheeky"} or (style == "rarely" and self._batches % 5 == 0)
        ):
            await self._checkpoint(None)
        if style == "own" and self._last_own is not None:
            await self._checkpoint(self._last_own)
        now_s = asyncio.get_running_loop().time()
        if style == "timed" and now_s - self._checkpointed_s > TIMER_S:
            self._checkpointed_s = now_s
            await self._checkpoint(self._last_own)

    async def _process_each(self, records: Sequence[Any]) -> None:
        """Work on each record, with a checkpoint at every so many."""
        for record in records:
            self._judges.children.processed(self, [record])
            self._uncounted += 1
            if self._uncounted == EACH:
                self._uncounted = 0
                await self._checkpoint(record)

    async def _checkpoint_at_end(self) -> None:
        """Of the shard, or before the worker stops."""
        style = self.manners.checkpoints
        if style == "never":
            return
        if style != "own":
            await self._checkpoint(None)
        elif self._last_own is not None or self.siblings == 1:
            await self._checkpoint(self._last_own)

    async def _ask_for_too_much(self) -> None:
        """Ask once for a position that was never handed out, or for one of long ago."""
        position = self._rng.choice(
            [str(10**60), "SHARD_END", "LATEST", "TRIM_HORIZON", "4x", "", "-1"]
        )
        request = CheckpointRequest(position, self._rng.choice([None, 0, 7]))
        self._judges.children.requested(self, request)
        await self._say(request)
        result = await self._next()
        if not isinstance(result, CheckpointResult):
            raise BrokenPipeError
        self._judges.children.checkpoint_answered(self, result)

    async def _checkpoint(self, record: Any) -> None:
        """Ask, and ask again while told that the table is too busy (as kclpy's samples do)."""
        for _attempt in range(5):
            request = (
                CheckpointRequest()
                if record is None
                else CheckpointRequest(record.sequence_number, record.sub_sequence_number)
            )
            self._judges.children.requested(self, request)
            await self._say(request)
            result = await self._next()
            if not isinstance(result, CheckpointResult):
                raise BrokenPipeError
            self._judges.children.checkpoint_answered(self, result)
            if result.error is None or result.error in {
                "ShutdownException",
                "InvalidStateException",
            }:
                return
            await asyncio.sleep(1.0)


class _Crashed(Exception):
    """The program dies here."""


class SimChildren:
    """:class:`kcl_mld.children.ports.ChildLauncher` of one worker.

    Args:
        manners: asked at every message, so that the nemesis may change its mind.
    """

    def __init__(
        self,
        worker: str,
        gate: Gate,
        rng: random.Random,
        manners: Callable[[], Manners],
        judges: Judges,
    ) -> None:
        self._worker = worker
        self._gate = gate
        self._rng = rng
        self._manners = manners
        self._judges = judges
        self.children: list[SimChild] = []

    async def start(
        self, argv: Sequence[str], env: Mapping[str, str], on_stderr: Callable[[bytes], None]
    ) -> _GatedChild:
        await self._gate.passable()
        await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        await self._gate.passable()
        child = SimChild(
            len(self.children) + 1,
            self._worker,
            self._manners,
            self._rng,
            self._judges,
            capabilities(env),
            int(env.get("KCL_MLD_CHILD", 0)),
            int(env.get("KCL_MLD_CHILDREN", 1)),
        )
        self.children.append(child)
        child.begin()
        on_stderr(b"child is up")
        return _GatedChild(child, self._gate, self._judges)

    def running(self) -> list[SimChild]:
        """Processes that exist."""
        return [child for child in self.children if child.running]

    def kill_all(self) -> None:
        """What the guardian does when the daemon is gone."""
        for child in self.running():
            child.kill()


class _GatedChild:
    """A child seen from a worker that may be dead."""

    def __init__(self, child: SimChild, gate: Gate, judges: Judges) -> None:
        self._child = child
        self._gate = gate
        self._judges = judges

    @property
    def pid(self) -> int:
        return self._child.pid

    async def write(self, data: bytes) -> None:
        await self._gate.passable()
        self._judges.beliefs.said(self._child, data)
        await self._child.write(data)

    async def read(self) -> bytes:
        data = await self._child.read()
        await self._gate.passable()
        return data

    async def close_stdin(self) -> None:
        await self._child.close_stdin()

    async def wait(self) -> int:
        return await self._child.wait()

    def read_stderr(self) -> None:
        self._child.read_stderr()

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        self._child.kill()
