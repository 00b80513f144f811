"""Which workers are one group."""

import random
from uuid import UUID

import pytest

from kcl_mld.fleet.rules.assignment.fleet import groups_of


def test_the_part_before_the_first_dash_is_the_group():
    ids = ["blue-7-a", "blue-8", "green-1"]
    assert groups_of(ids, {}) == {"blue-7-a": "blue", "blue-8": "blue", "green-1": "green"}


@pytest.mark.parametrize(
    "ids",
    [
        ["ip-10-0-0-1", "ip-10-0-0-2"],  # one group
        ["web1-x", "web2-y", "web3-z"],  # each is its own
        ["blue-1", "blue-2", "green-1", "plain"],  # one has none
        ["blue-1", "blue-2", "-1"],  # an empty one
        ["blue-1", "blue-2", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"],
        ["deadbeef01-1", "deadbeef01-2", "blue-1"],  # hexadecimal
        [],
    ],
)
def test_there_are_no_groups(ids):
    assert groups_of(ids, {}) == dict.fromkeys(ids, "")


def test_random_uuids_are_never_groups_not_even_when_their_first_blocks_are_equal():
    rng = random.Random(7)
    ids = [str(UUID(int=rng.getrandbits(128), version=4)) for _ in range(200)]
    ids += [f"{ids[0][:8]}{other[8:]}" for other in ids[:50]]
    assert set(groups_of(ids, {}).values()) == {""}


def test_workers_that_name_their_group_need_no_dash():
    ids = ["one", "two", "three", "four"]
    named = {"one": "a", "two": "a", "three": "b"}
    assert groups_of(ids, named) == {"one": "a", "two": "a", "three": "b", "four": ""}


def test_named_and_guessed_groups_of_one_name_are_one():
    assert groups_of(["a-1", "x", "b-1"], {"x": "a"}) == {"a-1": "a", "x": "a", "b-1": "b"}
