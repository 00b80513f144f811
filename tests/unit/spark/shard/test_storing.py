"""What a shard has the daemon store, and that its pauses look like waiting, not like death."""

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position
from kcl_mld.spark.shard.storing import LeaseStorage
from kcl_mld_protocol.errors import SHUTDOWN, THROTTLING


class Wire:
    """A daemon that answers from a list."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = 0
        self.keep_alives = 0

    def ask(self, request):
        self.asked += 1
        return self.errors.pop(0)

    def keep_alive(self):
        self.keep_alives += 1


class Storage:
    """A storage that does not really wait."""

    def __init__(self, *errors, keep_alive_s=2.0, over_after=99):
        self.wire = Wire(*errors)
        self.waited = []
        self.storage = LeaseStorage(
            self.wire,
            0.5,
            lambda: len(self.waited) >= over_after,
            keep_alive_s=keep_alive_s,
            sleep=self.waited.append,
        )

    def checkpoint(self):
        return self.storage.checkpoint("shard", Position(7))


def test_a_pause_before_a_refused_checkpoint_is_sent_again_has_signs_of_life():
    s = Storage(*[THROTTLING] * 5, None, keep_alive_s=2.0)
    assert s.checkpoint()
    assert s.waited == [0.5, 1.0, 2.0, *[2.0] * 2, *[2.0] * 4]
    assert s.wire.keep_alives == 4
    assert s.wire.asked == 6


def test_pauses_add_up_to_what_they_were_where_signs_are_rare():
    s = Storage(*[THROTTLING] * 5, None, keep_alive_s=5.0)
    assert s.checkpoint()
    assert s.waited == [0.5, 1.0, 2.0, 4.0, 5.0, 3.0]
    assert s.wire.keep_alives == 1


def test_a_pause_ends_where_nobody_listens_any_more():
    s = Storage(*[THROTTLING] * 6, keep_alive_s=0.1, over_after=2)
    with pytest.raises(BatchFailed, match=r"the checkpoint 7\.0 was refused: ThrottlingException"):
        s.checkpoint()
    assert s.waited == [0.1, 0.1]
    assert s.wire.keep_alives == 1
    assert s.wire.asked == 1


def test_a_lease_that_is_gone_is_told_at_once():
    s = Storage(SHUTDOWN)
    assert not s.checkpoint()
    assert s.waited == []
