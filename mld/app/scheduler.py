"""The worker's main loop: start, keep one consumer per held lease, stop in order.

The Scheduler decides nothing about leases or records. It compares held leases with running
consumers, starts and informs consumers, and owns every task of the process: all of them live in one
TaskGroup, so that nothing outlives :meth:`Scheduler.run`.

Source of the order at start and stop: Scheduler.java (KCL 3.5.1). Leases are released as soon as
their child has ended (Java lets them expire), and Java's pauses without a purpose are left out.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kcl_mld.app.worker_start import WorkerStart
from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.errors import ChildFailed, LeaseLost, MldError
from kcl_mld.fleet.rules.assignment.leaving import notice_s
from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.rules.pausing import is_paused
from kcl_mld.leases.rules.requests import due_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kcl_mld.app.worker_streams import Loop, WorkerStreams
    from kcl_mld.children.consuming.shard_consumer import ShardConsumer
    from kcl_mld.config.config import Config
    from kcl_mld.fleet.lease_coordinator import LeaseCoordinator
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import HeldLease
    from kcl_mld.shards.lease_cleanup import LeaseCleanup
    from kcl_mld.signals.model.conditions import Conditions
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.app")

#: Upper bound between two comparisons of held leases and consumers; every change wakes it earlier.
RECONCILE_S = 1.0
#: Share of a stop's grace period within which the next owners have to be named.
NAMING_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """How the worker ended.

    Attributes:
        complete: every child was notified and every lease released within the grace period.
        leases_left: leases whose rows still name this worker.
        expired: leases that had not been renewed in time, and were not released.
        released: leases whose rows were left without an owner.
        handed_over: leases whose rows were left with another worker as the owner.
    """

    complete: bool
    leases_left: int = 0
    expired: int = 0
    released: int = 0
    handed_over: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerParts:
    """What a Scheduler runs; built by ``kcl_mld.app``.

    Attributes:
        loops: name and coroutine function of every further service loop.
        new_consumer: makes the consumer of a lease that was just gained.
        on_started: called when the start has succeeded.
    """

    coordinator: LeaseCoordinator
    streams: WorkerStreams
    cleanup: LeaseCleanup
    new_consumer: Callable[[HeldLease], ShardConsumer]
    conditions: Conditions
    on_started: Callable[[], None]
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class _Consuming:
    """A consumer that is running, and the task that runs it."""

    held: HeldLease
    consumer: ShardConsumer
    task: asyncio.Task[None]


class Scheduler:
    """One worker. Use: ``outcome = await scheduler.run()``; stop it with :meth:`stop`."""

    def __init__(
        self, config: Config, parts: SchedulerParts, clock: Clock, metrics: Metrics
    ) -> None:
        self._config = config
        self._parts = parts
        self._clock = clock
        self._metrics = metrics
        self._consuming: dict[str, _Consuming] = {}
        #: Tasks by lease key, for leases without a consumer: a release, or an operator's request.
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._finished: dict[str, str] = {}
        self._stop_requested = asyncio.Event()
        self._stop_now = False
        self._grace: asyncio.Timeout | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: BaseException | None = None
        #: The error that ends it without a request to stop, and the lease whose child failed.
        self._failed_itself = False
        self._failed_key: str | None = None
        self._state = "starting"

    # -- what others may ask -------------------------------------------------------------------

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``stopping`` or ``stopped``."""
        return self._state

    def consumers(self) -> tuple[ShardConsumer, ...]:
        """Running consumers in the order of their lease keys."""
        return tuple(self._consuming[key].consumer for key in sorted(self._consuming))

    # -- stopping ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Request a graceful stop.

        :meth:`run` returns when it is complete or its grace period is over.
        """
        self._stop_requested.set()

    def stop_now(self) -> None:
        """Stop; the children only get end of file."""
        self._stop_now = True
        self._stop_requested.set()
        if self._grace is not None and not self._grace.expired():
            self._grace.reschedule(asyncio.get_running_loop().time())
        for consuming in self._consuming.values():
            consuming.task.cancel()

    def _fail(self, error: BaseException, lease_key: str | None = None) -> None:
        """Remember the first error that ends the worker, and drain."""
        if self._failure is None:
            self._failure, self._failed_key = error, lease_key
            self._failed_itself = not self._stop_requested.is_set()
        self.stop()

    # -- running -------------------------------------------------------------------------------

    async def run(self, *watching: Loop) -> StopOutcome:
        """Run until stopped.

        Args:
            watching: loops that report on this worker.

        Returns:
            How complete the stop was.

        Raises:
            ChildFailed: a child failed under ``childFailurePolicy=exit``; the others were drained.
            UnservableFleet: the lease table is, or became, one that this version can't serve.
            ResourceMissing: stream or table do not exist after all attempts to start.
            MldError: initialization failed for another reason.
        """
        start = WorkerStart(
            self._config,
            self._parts.coordinator,
            self._parts.streams,
            self._metrics,
            self._parts.conditions,
        )
        if not await start.run_unless(self._stop_requested):
            # Rows that named us from the start on are released like any other.
            held = self._parts.coordinator.renewer.held()
            outcome = await self._drain() if held else StopOutcome(complete=True)
            self._state = "stopped"
            return outcome
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._guarded(name, loop), name=name)
                for name, loop in (
                    ("coordinator", self._parts.coordinator.run),
                    ("lease-cleanup", self._parts.cleanup.run),
                    *self._parts.streams.loops(),
                    *self._parts.loops,
                    *watching,
                )
            ]
            reconcile = partial(self._reconcile_loop, group)
            loops.append(group.create_task(self._guarded("reconcile", reconcile), name="reconcile"))
            self._state = "running"
            self._parts.on_started()
            await self._stop_requested.wait()
            self._state = "stopping"
            outcome = await self._drain()
            for task in (*loops, *self._writing.values()):
                task.cancel()
        self._state = "stopped"
        if self._failure is not None:
            raise self._failure
        return outcome

    async def _guarded(self, name: str, loop: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a service loop; its failure drains the worker instead of ending it at once."""
        try:
            await loop()
        except asyncio.CancelledError:
            raise
        except MldError as error:
            log.error("The worker stops (%s): %s", name, error)  # noqa: TRY400 - the text says it all
            self._fail(error)
        except Exception as error:
            log.exception("The worker stops: an unexpected error in %s", name)
            self._fail(error)

    # -- one consumer per held lease -----------------------------------------------------------

    async def _reconcile_loop(self, group: asyncio.TaskGroup) -> None:
        changed = self._parts.coordinator.renewer.changed
        while True:
            await self._reconcile(group)
            await changed.wait(RECONCILE_S)

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        """Inform consumers of lost leases, start new ones, drop what is no longer read."""
        held = {one.lease.lease_key: one for one in self._parts.coordinator.renewer.held()}
        for key in sorted(self._consuming):
            consuming = self._consuming[key]
            current = held.get(key)
            if current is None or current.token != consuming.held.token:
                consuming.consumer.lease_lost()
        self._finished = {
            key: token
            for key, token in self._finished.items()
            if key in held and held[key].token == token
        }
        if self._stop_requested.is_set():
            return
        for key in sorted(held.keys() - self._writing.keys()):
            if not self._parts.streams.is_read(held[key].lease):
                self._give_up(group, held[key])
            elif held[key].lease.is_handed_over:
                self._hand_over(group, held[key])
            elif key not in self._finished:
                await self._consume_or_steer(group, held[key])

    async def _consume_or_steer(self, group: asyncio.TaskGroup, held: HeldLease) -> None:
        """Carry out an operator's request for a lease; else start a missing consumer."""
        key, now_s = held.lease.lease_key, self._clock.corrected()
        consuming, request = self._consuming.get(key), due_request(held.lease, now_s)
        if consuming is not None:
            if request is not None and consuming.held.token == held.token:
                consuming.consumer.request_steer(request)
        elif request is not None:
            carry_out = self._parts.coordinator.renewer.carry_out
            self._write(group, key, partial(carry_out, key, held.token, request, now_s))
        elif not is_paused(held.lease, now_s):
            await self._start_consumer(group, held)

    def _give_up(self, group: asyncio.TaskGroup, held: HeldLease) -> None:
        """The lease's stream is no longer read: notify the child, release the lease."""
        key = held.lease.lease_key
        if key in self._consuming:
            self._consuming[key].consumer.request_shutdown()
        else:
            self._release(group, held)

    def _hand_over(self, group: asyncio.TaskGroup, held: HeldLease) -> None:
        """A leader gave the lease to another worker.

        End its consumer, if any, then hand it over.
        """
        consuming = self._consuming.get(held.lease.lease_key)
        if consuming is None:
            self._release(group, held)
        elif consuming.held.token == held.token:
            consuming.consumer.request_hand_over()

    def _release(self, group: asyncio.TaskGroup, held: HeldLease) -> None:
        key, release = held.lease.lease_key, self._parts.coordinator.renewer.release
        self._write(group, key, partial(release, key, held.token))

    def _write(
        self, group: asyncio.TaskGroup, key: str, write: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        """Write to a lease in a separate task, so that a slow table does not delay other leases."""
        task = group.create_task(self._written(key, write))
        self._writing[key] = task
        task.add_done_callback(lambda _: self._writing_ended(key))

    async def _written(self, key: str, write: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            await write()
        except Exception:
            text = "%s: writing to its lease failed unexpectedly; the worker continues without it"
            log.exception(text, key)

    async def _start_consumer(self, group: asyncio.TaskGroup, held: HeldLease) -> None:
        key = held.lease.lease_key
        try:
            consumer = self._parts.new_consumer(held)
        except LeaseLost as error:
            log.error("Cannot read %s: %s; dropping its lease", key, error)  # noqa: TRY400
            await self._parts.coordinator.renewer.drop(key, held.token)
            return
        task = group.create_task(self._consume(held, consumer), name=f"shard {key}")
        # Not a `finally` in the coroutine: a task that is cancelled before its first step has none.
        task.add_done_callback(lambda _: self._consumer_ended(key))
        self._consuming[key] = _Consuming(held, consumer, task)
        self._idle.clear()

    def _writing_ended(self, key: str) -> None:
        del self._writing[key]
        self._parts.coordinator.renewer.changed.wake()

    def _consumer_ended(self, key: str) -> None:
        del self._consuming[key]
        if not self._consuming:
            self._idle.set()
        self._parts.coordinator.renewer.changed.wake()

    async def _consume(self, held: HeldLease, consumer: ShardConsumer) -> None:
        """Run one consumer to its end and handle the result."""
        renewer = self._parts.coordinator.renewer
        key, token = held.lease.lease_key, held.token
        try:
            reason = await consumer.run()
            if reason is ShutdownReason.SHARD_END:
                self._finished[key] = token
                if (
                    not held.lease.is_finished
                ):  # else the leases of its children existed before we had it
                    self._children_may_start()
            elif (now_held := renewer.get(key)) is not None and now_held.token == token:
                await renewer.drop(key, token)
        except asyncio.CancelledError:
            if not self._stop_now:
                raise
        except ChildFailed as error:
            # The consumer logs at once why it failed.
            shard_id = error.shard_id
            text = "%s: its child failed, so the worker stops"
            log.warning(text, shard_id, extra={"shard_id": shard_id})
            self._fail(error, key)
        except Exception as error:
            log.exception("The consumer of %s ended unexpectedly; the worker stops", key)
            self._fail(error, key)

    def _children_may_start(self) -> None:
        """A parent has finished: take its children's leases now, and wake waiting ones."""
        self._parts.coordinator.leases_created()
        for consumer in self.consumers():
            consumer.parents_changed()

    # -- draining ------------------------------------------------------------------------------

    async def _drain(self) -> StopOutcome:
        """Stop taking, notify and end every child, release every lease, within the grace period."""
        coordinator = self._parts.coordinator
        coordinator.stop_taking(self._failure if self._failed_itself else None, self._failed_key)
        if not self._stop_now and self._config.shutdown_grace_s > 0:
            log.info(
                "Stopping: %s %.0f s to finish",
                counted(len(self._consuming), "shard has", "shards have"),
                self._config.shutdown_grace_s,
            )
            try:
                async with asyncio.timeout(self._config.shutdown_grace_s) as self._grace:
                    await self._end_consumers()
                    await self._idle.wait()
                    await coordinator.settled()
                    await self._release_held()
                    await coordinator.last_look()
            except TimeoutError:
                unfinished = counted(len(self._consuming), "shard", "shards")
                log.warning("Grace period expired; %s unfinished", unfinished)
            finally:
                self._grace = None
        renewer = coordinator.renewer
        left = len(renewer.held()) + renewer.unreleased
        complete = not self._consuming and left == 0 and not self._stop_now
        if self._consuming:
            self.stop_now()
            await self._idle.wait()
        return StopOutcome(
            complete=complete,
            leases_left=left,
            expired=renewer.expired,
            released=renewer.releases.released,
            handed_over=renewer.releases.handed_over,
        )

    async def _end_consumers(self) -> None:
        """Request all to finish.

        A lease with a next owner is read until that one is likely to know it.
        """
        grace_s, named = self._config.shutdown_grace_s, frozenset[str]()
        try:
            async with asyncio.timeout(grace_s * NAMING_SHARE):
                named = await self._parts.coordinator.start_hand_offs()
        except TimeoutError:
            log.warning("The lease table is too slow to name the next owners of all leases")
        if named:
            await asyncio.sleep(notice_s(self._config.leases.failover_s, grace_s))
        for consumer in self.consumers():
            if consumer.lease_key in named:
                consumer.request_hand_over()
            else:
                consumer.request_shutdown()

    async def _release_held(self) -> None:
        """Release leases that no longer have a consumer, e.g. of finished shards."""
        renewer = self._parts.coordinator.renewer
        async with asyncio.TaskGroup() as group:
            for held in renewer.held():
                group.create_task(renewer.release(held.lease.lease_key, held.token))
