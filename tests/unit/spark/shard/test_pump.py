"""The moves of one shard, on a clock that only waits move: what is waited for, and for how long."""

from __future__ import annotations

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position, Row, ShardKey
from kcl_mld.spark.shard.batcher import FlushReason, Limits
from kcl_mld.spark.shard.resume import Resume
from kcl_mld.spark.shard.session import Pump
from kcl_mld.spark.shard.work import ShardWork
from tests.unit.spark.shard_kit import HandClock


class Engine:
    """Cuts at once what is due, and keeps the futures."""

    def __init__(self):
        self.futures = []
        self.is_full = False

    def admit(self, work, expected_bytes):
        return not self.is_full

    def arrived(self, work):
        pass

    def join(self, work):
        pass

    def ask(self, work):
        while (offer := work.offer()) is not None:
            _, future = work.cut(offer.most_bytes)
            self.futures.append(future)

    def abandon(self, shard, hold):
        pass


class Storage:
    """Takes checkpoints until the lease is lost."""

    def __init__(self):
        self.stored = []
        self.is_lost = False

    def checkpoint(self, name, position):
        if not self.is_lost:
            self.stored.append(position)
        return not self.is_lost


class Scene:
    """A pump whose waits take their whole time, unless ``after`` says what happens then."""

    def __init__(self, max_records=1, keep_alive_s=5.0):
        self.clock = HandClock()
        self.engine = Engine()
        self.storage = Storage()
        self.waits = []
        self.signs_of_life = []
        self.is_over = False
        self.after = {}
        limits = Limits(max_records, 1 << 20, 60.0)
        work = ShardWork(
            ShardKey("app", "stream", "shardId-0"),
            Resume(None, None),
            None,
            limits,
            self.engine,
            lambda: None,
        )
        self.pump = Pump(
            "shardId-0",
            work,
            self.storage,
            clock=self.clock,
            keep_alive=lambda: self.signs_of_life.append(self.clock.now),
            wake=self,
            is_over=lambda: self.is_over,
            keep_alive_s=keep_alive_s,
        )

    def wait(self, seconds):
        """In the place of an event."""
        self.waits.append(seconds)
        assert len(self.waits) < 100
        happens = self.after.get(len(self.waits))
        if happens is None:
            self.clock.now += seconds
            return False
        happens()
        return True

    def clear(self):
        """In the place of an event."""

    def accept(self, *sequences):
        self.pump.accept([Row(Position(n), "key", b"x", None) for n in sequences], 0)

    def finish(self, *numbers):
        for number in numbers:
            self.engine.futures[number].set_result(None)


def test_a_delivery_for_which_there_is_room_waits_for_nothing():
    scene = Scene()
    scene.accept(1, 2)
    assert (len(scene.engine.futures), scene.waits) == (2, [])
    scene.finish(0)
    scene.accept()
    assert scene.storage.stored == [Position(1)]


def test_a_delivery_too_much_waits_for_room_with_signs_of_life_as_often_as_asked():
    scene = Scene(keep_alive_s=0.5)
    scene.after = {3: lambda: scene.finish(0)}
    scene.accept(1, 2, 3)
    assert scene.signs_of_life == [0.5, 1.0]
    assert len(scene.engine.futures) == 3
    assert scene.storage.stored == [Position(1)]


def test_nobody_waits_for_room_when_nobody_listens():
    scene = Scene()
    scene.after = {2: lambda: setattr(scene, "is_over", True)}
    scene.accept(1, 2, 3)
    assert (len(scene.waits), scene.storage.stored) == (2, [])
    assert scene.signs_of_life == [5.0]


def test_while_the_host_has_no_room_the_next_delivery_waits_with_signs_of_life_as_often_as_asked():
    scene = Scene(max_records=10, keep_alive_s=1.0)
    scene.engine.is_full = True
    scene.after = {6: lambda: setattr(scene.engine, "is_full", False)}
    scene.accept(1)
    assert scene.waits == [0.5] * 6
    assert scene.signs_of_life == [1.0, 2.0]


def test_a_shard_that_is_lost_while_it_waits_for_room_waits_no_longer():
    scene = Scene(max_records=10)
    scene.engine.is_full = True
    scene.after = {2: scene.pump.work.close}
    scene.accept(1)
    assert len(scene.waits) == 2


def test_a_batch_that_is_over_is_checkpointed_while_the_shard_waits_for_room():
    scene = Scene(max_records=1)
    scene.engine.is_full = True
    scene.after = {1: lambda: scene.finish(0), 2: lambda: setattr(scene.engine, "is_full", False)}
    scene.accept(1)
    assert scene.storage.stored == [Position(1)]


def test_a_drain_ends_when_everything_is_checkpointed():
    scene = Scene(max_records=10)
    scene.accept(1, 2)
    assert scene.engine.futures == []
    scene.after = {1: lambda: scene.finish(0)}
    assert scene.pump.drain(FlushReason.SHARD_ENDED)
    assert scene.storage.stored == [Position(2)]


def test_a_drain_gives_up_when_its_time_is_over():
    scene = Scene()
    scene.accept(1)
    assert not scene.pump.drain(FlushReason.STOPPING, 12.0)
    assert scene.waits == [5.0, 5.0, 2.0]
    assert scene.storage.stored == []
    assert scene.pump.work.is_open


def test_a_checkpoint_that_is_refused_for_good_ends_the_hold():
    scene = Scene()
    scene.accept(1, 2)
    scene.storage.is_lost = True
    scene.finish(0)
    assert scene.pump.drain(FlushReason.STOPPING, 12.0)
    assert not scene.pump.work.is_open
    scene.accept(3)
    assert len(scene.engine.futures) == 2


def test_what_is_durable_is_checkpointed_before_the_failure_of_the_next_batch_is_told():
    """Both ended between two looks; who writes by himself would get the first one again."""
    scene = Scene()
    scene.accept(1, 2)
    scene.finish(0)
    scene.engine.futures[1].set_exception(BatchFailed("no"))
    with pytest.raises(BatchFailed, match=r"^no$"):
        scene.accept()
    assert scene.storage.stored == [Position(1)]
    assert len(scene.engine.futures) == 2
