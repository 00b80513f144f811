"""The mark of a shard that several children share."""

from __future__ import annotations

import random

import pytest

from kcl_mld.children.rules import mark as rule
from kcl_mld.children.rules.mark import ChildProgress, mark
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber


def at(number: int) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(str(number))


def children(number: int, start: ExtendedSequenceNumber = TRIM_HORIZON) -> list[ChildProgress]:
    return [ChildProgress.starting_at(start) for _ in range(number)]


def assign(group: list[ChildProgress], edge: int, **lasts: int) -> None:
    """A line up to ``edge``; ``c0=5``: the last record of child 0 in it."""
    for index, child in enumerate(group):
        last = lasts.get(f"c{index}")
        child.assign(None if last is None else at(last), at(edge))


def test_without_a_record_the_mark_is_where_reading_began():
    assert mark(children(3)) == TRIM_HORIZON
    assert mark(children(3, LATEST)) == LATEST


def test_the_mark_stays_before_the_first_record_that_is_not_confirmed():
    group = children(2, at(10))
    assign(group, 20, c0=19, c1=20)
    group[1].confirm(at(20))
    assert mark(group) == at(10)
    group[0].confirm(at(15))
    assert mark(group) == at(15), "what child 0 confirmed of its part counts"
    group[0].confirm(at(19))
    assert mark(group) == at(20), "nobody owes: the last record of the line"


def test_a_child_without_records_holds_nothing_up():
    group = children(2)
    assign(group, 20, c0=20)
    group[0].confirm(at(20))
    assert mark(group) == at(20)
    assert not group[1].owes


def test_a_child_that_is_two_lines_behind_holds_the_mark_before_its_first_part():
    group = children(2)
    assign(group, 20, c0=18, c1=20)
    assign(group, 30, c0=28)
    assign(group, 40, c0=35, c1=40)
    group[0].confirm(at(35))
    assert mark(group) == TRIM_HORIZON
    group[1].confirm(at(20))
    assert mark(group) == at(30), "child 1 had no record from 21 to 30"


def test_a_confirmation_of_an_earlier_position_changes_nothing():
    group = children(1)
    assign(group, 20, c0=20)
    group[0].confirm(at(15))
    group[0].confirm(at(12))
    assert (mark(group), group[0].owes) == (at(15), True)


def test_a_line_that_was_assigned_before_is_not_assigned_again():
    group = children(2)
    assign(group, 20, c0=18, c1=20)
    group[0].confirm(at(18))
    group[1].start_over()
    assign(group, 15, c0=14, c1=15)
    assert (group[0].owes, mark(group)) == (False, TRIM_HORIZON)
    assign(group, 20, c0=18, c1=20)
    group[1].confirm(at(20))
    assert mark(group) == at(20)


def test_a_child_that_starts_over_begins_behind_what_it_confirmed():
    group = children(2)
    assign(group, 20, c0=18, c1=20)
    assign(group, 30, c0=28, c1=30)
    group[1].confirm(at(30))
    group[0].confirm(at(18))
    group[0].start_over()
    assert (group[0].floor, group[0].owes, mark(group)) == (at(20), False, at(20))


def test_parts_that_were_not_sent_can_be_taken_back():
    group = children(2)
    assign(group, 20, c0=18, c1=20)
    assign(group, 30, c0=28, c1=30)
    group[1].confirm(at(30))
    group[0].take_back(at(20))
    assert (group[0].floor, len(group[0].parts)) == (at(20), 1)
    group[0].confirm(at(18))
    assert mark(group) == at(20), "what was taken back holds the mark"
    group[0].take_back(at(20))
    assert mark(group) == at(20)


def test_parts_of_a_child_that_confirms_nothing_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(rule, "MOST_PARTS", 3)
    group = children(1, at(0))
    for edge in range(10, 110, 10):
        assign(group, edge, c0=edge)
    assert len(group[0].parts) == 3
    group[0].confirm(at(80))
    assert mark(group) == at(80)
    group[0].confirm(at(90))
    assert (mark(group), len(group[0].parts)) == (at(90), 1)
    group[0].confirm(at(100))
    assert (mark(group), group[0].owes) == (at(100), False)


def test_positions_inside_an_aggregate_count():
    group = children(2, ExtendedSequenceNumber("7", 3))
    first, last = ExtendedSequenceNumber("7", 4), ExtendedSequenceNumber("7", 9)
    group[0].assign(first, last)
    group[1].assign(last, last)
    group[0].confirm(first)
    assert mark(group) == ExtendedSequenceNumber("7", 3)
    group[1].confirm(last)
    assert mark(group) == last


@pytest.mark.parametrize("seed", range(40))
def test_the_mark_never_passes_an_unconfirmed_record_and_never_goes_back(seed):
    """A model beside it that keeps every record: who has it, and whether it is confirmed."""
    rng = random.Random(seed)
    group = children(rng.randint(1, 4), at(0))
    owner: dict[int, int] = {}
    confirmed: set[int] = set()
    produced = read_to = 0
    last_mark = at(0)
    for _ in range(300):
        match rng.randrange(4):
            case 0 | 1:
                edge = read_to + rng.randint(1, 8)
                for number in range(produced + 1, edge + 1):
                    owner[number] = rng.randrange(len(group))
                produced = max(produced, edge)
                for index, child in enumerate(group):
                    floor = child.floor.key[1]
                    own = [n for n in range(read_to + 1, edge + 1) if owner[n] == index]
                    own = [number for number in own if number > floor]
                    child.assign(at(own[-1]) if own else None, at(edge))
                read_to = edge
            case 2:
                index = rng.randrange(len(group))
                child, floor = group[index], group[index].floor.key[1]
                own = [n for n in owner if owner[n] == index and n <= floor]
                if own:
                    position = rng.choice(own)
                    confirmed |= {number for number in own if number <= position}
                    child.confirm(at(position))
            case _:
                child = rng.choice(group)
                child.start_over()
                read_to = min(read_to, child.floor.key[1])
        now = mark(group)
        assert now >= last_mark
        last_mark = now
        unconfirmed = [number for number in owner if number not in confirmed]
        assert not unconfirmed or now.key[1] < min(unconfirmed)
        if not unconfirmed and owner:
            assert now.key[1] == min(child.floor.key[1] for child in group)
