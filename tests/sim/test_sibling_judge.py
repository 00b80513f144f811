"""The judge of children that share a shard convicts: one planted fault per rule, and a sound life."""

import random
from types import SimpleNamespace
from zlib import crc32

import pytest

from kcl_mld_protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
)
from tests.fakes.dynamodb_model import Write
from tests.sim.children import Manners, SimChild
from tests.sim.fleet import TABLE, Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan
from tests.sim.sibling_judge import MARK_MOVES_S, WAITS_S

KEY = "shardId-000000000000"
KEYS = ["a", "d", "a", "d", "a"]
NUMBERS = [100, 101, 102, 103, 104]


class Life:
    """One shard with five records, the first of which are those of two children in turn."""

    def __init__(self, *, answers_confirm=False):
        self.fleet = Fleet(Plan(seed=1, workers=0, shards=1, answers_confirm=answers_confirm))
        self.court, self.judge = self.fleet.court, self.fleet.judges.children
        self.siblings = self.fleet.judges.siblings
        self.now_s = 0.0
        self.court.now = lambda: self.now_s
        self.truth = self.fleet.stream.find(KEY)
        for number, key in zip(NUMBERS, KEYS, strict=True):
            self.truth.add((number, 0), f"r{number}", key)
        self.item = None
        self.write("w1", "TRIM_HORIZON")

    def write(self, owner, checkpoint, by="w1", sub=0):
        """The row as it is from now on."""
        counter = 0 if self.item is None else int(self.item["leaseCounter"]["N"])
        after = {
            "leaseKey": {"S": KEY},
            "leaseOwner": {"S": owner},
            "leaseCounter": {"N": str(counter + 1)},
            "checkpoint": {"S": checkpoint},
            "checkpointSubSequenceNumber": {"N": str(sub)},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
        before, self.item, self.court.actor = self.item, after, by
        self.fleet.judges.table.wrote(Write(self.now_s, "UpdateItem", TABLE, before, after, {}))

    def child(self, index, begins="TRIM_HORIZON", worker="w1", siblings=2):
        """A process that was told where to begin."""
        child = SimChild(
            1,
            worker,
            Manners,
            random.Random(1),
            self.fleet.judges,
            frozenset(),
            index,
            siblings,
        )
        child.shard_id, child.began_at = KEY, (begins, 0)
        self.tell(child, Initialize(KEY, begins, 0))
        return child

    def tell(self, child, message):
        self.judge.message(child, message)
        self.judge.answered(child, message)

    def give(self, child, *numbers):
        """The child gets these records, and does their work."""
        records = tuple(
            SimpleNamespace(
                sequence_number=str(number),
                sub_sequence_number=0,
                binary_data=f"r{number}".encode(),
            )
            for number in numbers
        )
        self.judge.message(child, message := ProcessRecords(records, 0))
        self.judge.processed(child, records)
        self.judge.answered(child, message)

    def confirm(self, child, number=None):
        text = None if number is None else str(number)
        self.judge.requested(child, CheckpointRequest(text, 0))

    def close(self):
        """The shard takes no records any more."""
        (shard,) = self.fleet.stream.open_shards
        middle = str(shard.end_key // 2)
        self.fleet.stream.model.call(
            "SplitShard",
            {
                "StreamName": self.fleet.stream.name,
                "ShardToSplit": KEY,
                "NewStartingHashKey": middle,
            },
        )
        self.fleet.stream.refresh()


A, B = (crc32(key.encode()) % 2 for key in "ad")


def convicted(play, **how):
    """The rules that a play breaks."""

    async def main():
        life = Life(**how)
        play(life)
        return {violation.rule for violation in life.court.violations}

    return run(main())


def test_the_two_keys_have_two_children():
    assert {A, B} == {0, 1}


def test_a_sound_life_of_two_children_is_acquitted():
    def play(life):
        a, b = life.child(A), life.child(B)
        life.give(a, 100, 102)
        life.give(b, 101)
        life.confirm(a, 100)
        life.write("w1", "100")
        life.confirm(b)
        life.write("w1", "101")
        life.confirm(a)
        life.write("w1", "102")
        life.give(b, 103)
        life.tell(b, ProcessRecords((), 0))  # it owes a confirmation
        life.judge.child_ended(b, 1)
        b = life.child(B, "102")
        life.give(b, 103)
        life.give(a, 104)
        life.close()
        for child in (a, b):
            life.tell(child, ShardEnded())
            life.confirm(child)
        life.write("w1", "SHARD_END")

    assert convicted(play) == set()


def test_a_record_of_a_siblings_key_is_noticed():
    def play(life):
        life.give(life.child(A), 100, 101)

    assert "S20" in convicted(play)


def test_a_record_of_its_own_that_is_left_out_is_noticed():
    def play(life):
        life.give(life.child(A), 100, 104)

    assert "S1" in convicted(play)


@pytest.mark.parametrize("siblings", [2, 3])
def test_a_second_process_for_the_same_keys_is_noticed(siblings):
    def play(life):
        life.child(A)
        life.child(A, siblings=siblings)

    assert "S21" in convicted(play)


def test_a_process_after_the_end_of_the_first_and_one_beside_it_are_no_second_ones():
    def play(life):
        child = life.child(A)
        life.tell(child, LeaseLost())
        life.child(A)
        life.child(B)
        life.child(A, worker="w2", siblings=3)

    assert convicted(play) == set()


@pytest.mark.parametrize(
    ("confirmed", "mark", "rules"),
    [
        ({"a": 102, "b": 101}, "102", set()),
        ({"a": 102, "b": 101}, "103", {"S22"}),
        ({"a": 102}, "100", set()),
        ({"a": 102}, "102", {"S22"}),
        ({"a": 100, "b": None}, "101", set()),
        ({"a": 100, "b": None}, "102", {"S22"}),
        ({"a": 10**60, "b": None}, "100", {"S22"}),  # refused: it was not given that
    ],
)
def test_a_mark_past_what_its_child_has_not_confirmed_is_noticed(confirmed, mark, rules):
    def play(life):
        a, b = life.child(A), life.child(B)
        life.give(a, 100, 102)
        life.give(b, 101, 103)
        for child, name in ((a, "a"), (b, "b")):
            if name in confirmed:
                life.confirm(child, confirmed[name])
        life.write("w1", mark)

    assert convicted(play) == rules


def test_a_mark_that_is_no_record_is_noticed():
    def play(life):
        a = life.child(A)
        life.give(a, 100)
        life.confirm(a)
        life.write("w1", "100", sub=3)

    assert convicted(play) == {"S22"}


@pytest.mark.parametrize(("answers_confirm", "rules"), [(True, set()), (False, {"S22"})])
def test_an_answer_confirms_where_it_is_configured(*, answers_confirm, rules):
    def play(life):
        life.give(life.child(A), 100)
        life.write("w1", "100")

    assert convicted(play, answers_confirm=answers_confirm) == rules


def test_a_new_holder_has_to_have_confirmations_of_its_own():
    def play(life):
        a = life.child(A)
        life.give(a, 100)
        life.confirm(a)
        life.write("w2", "TRIM_HORIZON", by="w2")
        life.give(life.child(A, worker="w2"), 100)
        life.write("w2", "100", by="w2")

    assert convicted(play) == {"S22"}


def test_an_empty_batch_for_a_child_that_owes_nothing_is_noticed():
    def play(life):
        a = life.child(A)
        life.give(a, 100)
        life.confirm(a)
        life.tell(a, ProcessRecords((), 0))

    assert convicted(play) == {"S8"}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_replaced_child_that_gets_again_what_it_confirmed_is_noticed(*, is_known):
    def play(life):
        a, _b = life.child(A), life.child(B)
        life.give(a, 100, 102)
        life.confirm(a, 102)
        if is_known:
            life.judge.checkpoint_answered(a, CheckpointResult("102", 0))
        life.now_s += 1
        life.judge.child_ended(a, 1)
        life.child(A)

    assert convicted(play) == ({"S23"} if is_known else set())


def test_a_child_that_begins_before_the_mark_is_noticed():
    def play(life):
        a = life.child(A)
        life.give(a, 100)
        life.confirm(a)
        life.write("w1", "100")
        life.judge.child_ended(a, 1)
        life.child(A)

    assert convicted(play) == {"S23"}


def test_a_child_that_begins_behind_what_nobody_had_is_noticed():
    def play(life):
        life.child(B, "100")
        life.child(A, "100")

    assert convicted(play) == {"S1"}


def test_at_latest_all_children_begin_at_the_first_record_of_one():
    def play(life, *numbers):
        a, b = (life.child(index, "LATEST") for index in (A, B))
        life.give(a, 102)
        if numbers:
            life.give(b, *numbers)

    assert convicted(lambda life: play(life, 103)) == set()
    assert convicted(lambda life: play(life, 101, 103)) == set()
    assert convicted(play) == set()

    def skips(life):
        a, b = (life.child(index, "LATEST") for index in (A, B))
        life.give(a, 100)
        life.give(b, 103)

    assert convicted(skips) == {"S1", "S25"}


def test_an_end_before_all_children_know_of_it_and_records_after_it_are_noticed():
    def finished(life):
        a, b = life.child(A), life.child(B)
        life.give(a, 100, 102, 104)
        life.give(b, 101, 103)
        life.confirm(b)
        life.close()
        life.tell(a, ShardEnded())
        life.confirm(a)
        life.write("w1", "SHARD_END")

    assert convicted(finished) == {"S24"}

    def late(life):
        finished(life)
        life.court.violations.clear()
        life.give(life.child(B, siblings=1, worker="w1"), 100)

    assert "S24" in convicted(late)


def test_records_of_a_key_out_of_order_are_noticed():
    def play(life):
        life.give(life.child(A, "100", worker="w2"), 102)

    assert "S25" in convicted(play)


def test_records_that_were_processed_and_not_covered_when_all_stopped_are_noticed():
    def play(life):
        life.give(life.child(A), 100)
        life.siblings.check_stopped()

    assert convicted(play) == {"S26"}


def test_a_mark_that_stands_while_others_go_on_is_noticed():
    def play(life, *, confirms):
        life.court.polite_s = 0.0
        a, b = life.child(A), life.child(B)
        life.give(a, 100, 102, 104)
        life.give(b, 101)
        if confirms:
            life.confirm(a)
            life.write("w1", "100")
            life.confirm(b)
            life.write("w1", "102")
        life.now_s = MARK_MOVES_S - 1
        life.siblings.tick()
        life.give(b, 103)
        assert not life.court.violations
        life.now_s = MARK_MOVES_S + 2
        life.siblings.tick()

    assert convicted(lambda life: play(life, confirms=False)) == {"L9"}
    assert convicted(lambda life: play(life, confirms=True)) == set()


def test_a_child_that_waits_while_its_records_do_is_noticed():
    def play(life, *, busy):
        life.court.polite_s = 0.0
        a, b = life.child(A), life.child(B)
        life.now_s = 5.0
        life.siblings.tick()
        life.give(a, 100, 102, 104)
        if busy:
            b.busy_since_s = life.now_s
        life.now_s = 5.0 + WAITS_S + 1
        life.siblings.tick()

    assert convicted(lambda life: play(life, busy=False)) == {"L10"}
    assert convicted(lambda life: play(life, busy=True)) == set()
