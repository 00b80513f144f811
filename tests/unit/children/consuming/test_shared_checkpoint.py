"""Writes of a mark: one at a time, the newest wins, and who waits for them."""

from __future__ import annotations

import asyncio

from kcl_mld.children.consuming.shared_checkpoint import ChildCheckpointer, SharedCheckpoint
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from tests.sim.loop import run


def at(number: int) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(str(number))


class Row:
    """A hold of a lease: the checkpointer that writes its row, each write when a test lets it."""

    def __init__(self) -> None:
        self.last = at(0)
        self.begun: list[ExtendedSequenceNumber] = []
        self.answers: asyncio.Queue[str | None] = asyncio.Queue()
        self.checkpointer = self
        self.is_held = True
        self.child_shard_ids: tuple[str, ...] | None = None

    def current(self) -> object:
        return self if self.is_held else None

    def end_shard(self, child_shard_ids: tuple[str, ...]) -> None:
        self.child_shard_ids = child_shard_ids

    async def pass_over(self, position: ExtendedSequenceNumber) -> str | None:
        self.begun.append(position)
        error = await self.answers.get()
        if error is None:
            self.last = position
        return error


class Group:
    """Children that were each given one record of their own: child n has 10, 20, … n * 10 + 10."""

    def __init__(self, children: int) -> None:
        self.row = Row()
        self.shared = SharedCheckpoint(self.row)  # type: ignore[arg-type] - all that it asks for
        self.children = [
            ChildCheckpointer(self.shared, str(index), at(0), lambda: None)
            for index in range(children)
        ]
        for index, child in enumerate(self.children):
            self.shared.add(child)
            child.begin()
            for other in range(children):
                last = at(10 * other + 10) if other == index else None
                child.progress.assign(last, at(10 * other + 10))
            child.delivered(at(10 * index + 10))

    def ask(self, index: int) -> asyncio.Task[str | None]:
        return asyncio.create_task(self.children[index].checkpoint(None, None))


def test_what_moves_nothing_waits_for_no_write_and_the_newest_mark_wins():
    async def test():
        group = Group(4)
        first = group.ask(0)
        await asyncio.sleep(0)
        assert group.row.begun == [at(10)]
        second = group.ask(1)
        third = group.ask(2)
        await asyncio.sleep(1)
        assert [one.done() for one in (first, second, third)] == [False] * 3
        assert await group.children[0].checkpoint(None, None) is None, "repeated: moves nothing"
        group.row.answers.put_nowait(None)
        await asyncio.sleep(1)
        assert first.result() is None
        assert group.row.begun == [at(10), at(30)], "one write for both"
        group.row.answers.put_nowait(None)
        assert [await second, await third] == [None, None]
        assert group.row.last == at(30)

    run(test())


def test_a_confirmation_stays_where_its_write_failed_and_a_repetition_writes_again():
    async def test():
        group = Group(2)
        group.row.answers.put_nowait("ThrottlingException")
        assert await group.ask(0) == "ThrottlingException"
        group.row.answers.put_nowait(None)
        assert await group.ask(0) is None
        assert (group.row.begun, group.row.last) == ([at(10), at(10)], at(10))

    run(test())


def test_a_child_that_ends_while_it_waits_for_a_write_leaves_it_to_the_next():
    async def test():
        group = Group(3)
        first, second = group.ask(0), group.ask(1)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        group.row.answers.put_nowait(None)
        assert await first is None
        group.row.answers.put_nowait(None)
        assert await group.children[1].checkpoint(None, None) is None
        assert group.row.last == at(20)

    run(test())


def test_nothing_is_confirmed_once_the_lease_is_lost():
    async def test():
        group = Group(2)
        group.row.is_held = False
        assert await group.ask(1) == "ShutdownException"
        assert group.row.begun == []

    run(test())


def test_the_end_is_stored_once_every_child_is_done_with_the_shard():
    async def test():
        group = Group(2)
        group.shared.child_shard_ids = ("a", "b")
        for child in group.children:
            child.end_shard()
        group.row.answers.put_nowait(None)
        assert await group.ask(0) is None
        assert group.row.last == at(10)
        group.row.answers.put_nowait(None)
        assert await group.ask(1) is None
        assert (group.row.last, group.row.child_shard_ids) == (SHARD_END, ("a", "b"))

    run(test())


def test_an_answer_confirms_without_waiting():
    async def test():
        group = Group(2)
        group.children[0].confirm(at(10))
        assert group.shared.position == at(10)
        assert await group.shared.moved.wait(0)
        group.children[0].confirm(at(5))
        assert group.shared.position == at(10)

    run(test())
