"""The leader by Java's shuffle."""

import random

import pytest

from kcl_mld.fleet.rules.leader_election import JavaRandom, leader_of

#: Index of the leader in the sorted list, by number of owners; run on a JVM.
LEADERS = {
    1: 0, 2: 0, 3: 2, 4: 3, 5: 4, 6: 2, 7: 2, 8: 2, 9: 3, 10: 8, 11: 6, 12: 9,
    16: 11, 20: 14, 50: 47, 100: 95, 200: 70,
}  # fmt: skip


@pytest.mark.parametrize(("count", "index"), LEADERS.items())
def test_the_leader_is_the_one_that_java_workers_elect(count, index):
    owners = [f"worker-{number:04d}" for number in range(count)]
    random.Random(count).shuffle(owners)
    assert leader_of([*owners, None, *owners]) == f"worker-{index:04d}"


def test_of_ten_letters_the_ninth_leads():
    assert leader_of("abcdefghij") == "i"


def test_without_owners_there_is_no_leader():
    assert leader_of([]) is None
    assert leader_of([None, None]) is None


def test_owners_are_ordered_by_utf16_code_unit_as_in_java():
    # U+10000 is D800 DC00 in UTF-16, so it comes before U+FFFF; Python orders them otherwise.
    assert leader_of(["\uffff", "\U00010000"]) == "\U00010000"
    assert leader_of(["\ud800", "a"]) == "a"


def test_the_numbers_are_those_of_java_util_random():
    # new Random(42): nextInt(10) and nextInt(16), as printed by a JVM.
    chance = JavaRandom(42)
    assert [chance.next_int(10) for _ in range(10)] == [0, 3, 8, 4, 0, 5, 5, 8, 9, 3]


def test_a_draw_that_overflows_an_int_is_repeated():
    bound = 2**30 + 1
    chance = JavaRandom(1947)
    raw = JavaRandom(1947)
    expected = []
    for _ in range(20):
        drawn = raw._next_31()
        if drawn < bound:  # everything above would wrap in Java's int and is drawn again
            expected.append(drawn)
    assert len(expected) < 20
    assert [chance.next_int(bound) for _ in expected] == expected
