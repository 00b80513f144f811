"""The scripted leader: Java's numbers, and holes that it fills."""

import pytest

from tests.sim.java_leader import first_hole, leader_of, to_create

LAST = 2**128 - 1


@pytest.mark.parametrize(
    ("count", "index"),
    [(1, 0), (2, 0), (3, 2), (4, 3), (5, 4), (6, 2), (9, 3), (16, 11), (100, 95), (200, 70)],
)
def test_the_leader_is_the_one_that_a_jvm_elects(count, index):
    names = [f"w{number:03}" for number in range(count)]
    assert leader_of(reversed(names)) == names[index]


def test_without_an_owner_everybody_leads():
    assert leader_of([]) is None


def lease(start, end, checkpoint="TRIM_HORIZON"):
    return {
        "startingHashKey": {"S": str(start)},
        "endingHashKey": {"S": str(end)},
        "checkpoint": {"S": checkpoint},
    }


@pytest.mark.parametrize(
    "leases",
    [
        [(0, 499), (500, LAST)],
        [(0, LAST), (0, 499), (500, LAST)],
        [(0, 499), (499, LAST)],
        [(500, LAST), (0, 499)],
    ],
)
def test_a_covered_stream_has_no_hole(leases):
    assert first_hole(lease(*span) for span in leases) is None


@pytest.mark.parametrize(
    "leases",
    [
        [],
        [(0, 499), (501, LAST)],
        [(0, 499, "SHARD_END"), (500, LAST)],
        [(1, LAST)],
        [(0, LAST - 1)],
    ],
)
def test_a_gap_is_a_hole(leases):
    assert first_hole(lease(*span) for span in leases) is not None


def shard(number, *parents, closed=False):
    span = {"StartingSequenceNumber": str(number)}
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        "ShardId": str(number),
        "SequenceNumberRange": span | ({"EndingSequenceNumber": "999"} if closed else {}),
        **{name: str(parent) for name, parent in zip(names, parents, strict=False)},
    }


@pytest.mark.parametrize(
    ("leased", "created"),
    [
        ({"4", "5", "7"}, ["0", "1"]),
        ({"3", "4", "5"}, ["0", "1", "2"]),
        (set(), ["0", "1", "2", "3", "4", "5"]),
        ({"4", "8", "9", "10"}, []),
    ],
)
def test_the_oldest_listed_ancestors_get_leases(leased, created):
    shards = [
        *(shard(number, closed=True) for number in (0, 1, 2, 3, 5)),
        shard(4),
        shard(6, 0, 1, closed=True),
        shard(7, 2, 3, closed=True),
        shard(8, 6, 7),
        shard(9, 5),
        shard(10, 5),
    ]
    assert [found["ShardId"] for found in to_create(shards, leased)] == created
