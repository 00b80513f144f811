"""A Java 3.x leader's plan, by the source and the examples of its own rules."""

import heapq
import random
from collections import Counter

import pytest

from kcl_mld.leases.model.lease import Lease
from kcl_mld.simulate.java_worker import JavaLoad, JavaQueue, LeaderMemory, MoveKind, plan


def lease(number, owner=None, kbps=None, counter=1, checkpoint_owner=None):
    return Lease(
        lease_key=f"shard-{number}",
        shard_id=f"shard-{number}",
        lease_owner=owner,
        checkpoint_owner=checkpoint_owner,
        lease_counter=counter,
        throughput_kbps=kbps,
    )


def run(leases, workers, memory=None, now=100.0, max_leases=1000):
    memory = LeaderMemory() if memory is None else memory
    return plan(leases, workers, now, memory, 10.0, max_leases, random.Random(1))


def targets(moves):
    return Counter(move.to for move in moves)


@pytest.mark.parametrize("workers", range(3, 9))
def test_alike_workers_without_throughput_two_of_them_get_everything(workers):
    moves = run([lease(n) for n in range(100)], [f"w{n}" for n in range(workers)])
    assert sorted(targets(moves).values()) == [50, 50]
    assert {move.kind for move in moves} == {MoveKind.ASSIGN}


def test_with_throughput_free_leases_go_where_room_is():
    held = [lease(n, "w1", 100.0) for n in range(4)]
    moves = run([*held, *[lease(n, None, 100.0) for n in range(4, 8)]], ["w1", "w2"])
    assert targets(moves) == {"w2": 4}


def test_nobody_reports_so_nothing_is_given():
    assert run([lease(0), lease(1, "w", 5.0)], []) == []


def test_a_lease_is_expired_when_its_counter_stands_still_for_the_failover_time():
    memory, leases = LeaderMemory(), [lease(0, "dead", 5.0), lease(1, "w", 5.0)]
    assert run(leases, ["w"], memory, 100.0) == []
    moved = [leases[0], lease(1, "w", 5.0, counter=2)]
    assert run(moved, ["w"], memory, 110.0) == []
    (move,) = run([leases[0], lease(1, "w", 5.0, counter=3)], ["w"], memory, 110.5)
    assert (move.lease, move.to, move.kind) == (leases[0], "w", MoveKind.ASSIGN)


def test_balance_moves_60_percent_of_what_is_too_much_and_not_in_each_run():
    leases = [lease(n, "w1", 50.0) for n in range(20)]
    memory = LeaderMemory()
    # 1000 of 1000: half of it is too much, 60 % of that are 300, strictly less than 300 are moved.
    moves = run(leases, ["w1", "w2"], memory)
    assert targets(moves) == {"w2": 5}
    assert {move.kind for move in moves} == {MoveKind.HAND_OFF}
    assert run(leases, ["w1", "w2"], memory) == []
    assert run(leases, ["w1", "w2"], memory) == []
    assert len(run(leases, ["w1", "w2"], memory)) == 5


def test_a_lease_too_large_for_the_take_is_moved_nevertheless_if_it_is_the_smallest():
    leases = [*[lease(n, "w1", 200.0) for n in range(3)], lease(3, "w1", 150.0)]
    moves = run([*leases, lease(4, "w2", 430.0)], ["w1", "w2"])
    assert [move.lease.throughput_kbps for move in moves] == [150.0]


def test_a_move_that_would_lift_the_other_above_the_mean_is_not_made():
    leases = [lease(n, f"w{n % 2}", 100.0) for n in range(5)]
    assert run(leases, ["w0", "w1"]) == []


def test_one_lease_is_moved_from_who_has_leases_without_throughput():
    leases = [lease(n, "w1", 0.0) for n in range(4)] + [lease(9, "w2", 10.0)]
    assert all(move.lease.lease_owner == "w2" for move in run(leases, ["w1", "w2"]))


@pytest.mark.parametrize("left", [[], [("light", 0.0)]])
def test_what_a_worker_has_lost_in_a_run_still_counts_as_its_load(left):
    """So it gets nothing of what is taken from the worker that now has too much."""
    memory = LeaderMemory()

    def leases(counter):
        return [
            lease(0, "w1", 300.0),
            lease(1, "w2", 100.0, counter),
            *[lease(name, "w1", kbps, counter) for name, kbps in left],
        ]

    run(leases(1), ["w1", "w2"], memory, 100.0)
    memory.runs = 3
    (move,) = run(leases(2), ["w1", "w2"], memory, 120.0)
    assert (move.lease.lease_key, move.to, move.kind) == ("shard-0", "w2", MoveKind.ASSIGN)


def test_nothing_is_moved_where_everybody_has_as_many_as_allowed():
    leases = [lease(0, "w1", 100.0), lease(1, "w1", 100.0), lease(2, "w2", 10.0)]
    assert run(leases, ["w1", "w2"], max_leases=1) == []


def test_an_even_fleet_is_left_alone():
    leases = [lease(n, f"w{n % 4}", 100.0) for n in range(16)]
    assert run(leases, [f"w{n}" for n in range(4)]) == []


def test_leases_above_the_limit_of_a_worker_stay_free():
    assert targets(run([lease(n) for n in range(3)], ["w"], max_leases=2)) == {"w": 2}


def test_a_lease_in_hand_off_is_left_alone_until_its_time_is_over():
    def leases(counter):
        return [
            *[lease(n, "w2", 50.0, counter, checkpoint_owner="w1") for n in range(20)],
            lease(99, "w2", 50.0, counter),
        ]

    memory = LeaderMemory()
    for number in range(3):
        assert run(leases(number), ["w1", "w2"], memory, 100.0 + number * 10) == []
    assert memory.deadlines["shard-0"][2] == 140.0
    moves = run(leases(3), ["w1", "w2"], memory, 140.5)
    assert moves
    assert {move.kind for move in moves} == {MoveKind.ASSIGN}


def test_an_expired_hand_off_is_assigned_even_to_the_worker_that_has_it():
    stuck = lease(0, "gone", 5.0, checkpoint_owner="w")
    memory = LeaderMemory()
    run([stuck], ["w"], memory, 100.0)
    (move,) = run([stuck], ["w"], memory, 120.0)
    assert (move.to, move.kind) == ("w", MoveKind.ASSIGN)


def test_an_expired_lease_stays_with_its_owner_where_that_has_most_room():
    memory, leases = LeaderMemory(), [lease(0, "w", 5.0)]
    run(leases, ["w"], memory, 100.0)
    assert run(leases, ["w"], memory, 120.0) == []


def test_the_queue_gives_the_largest_first_and_nan_before_all():
    rng = random.Random(5)
    for size in range(40):
        rooms = [rng.randrange(10) / 2 for _ in range(size)]
        queue = JavaQueue(lambda load: load.value)
        for number, room in enumerate(rooms):
            queue.add(JavaLoad(str(number), room))
        polled = []
        while (load := queue.poll()) is not None:
            polled.append(load.value)
        assert polled == heapq.nlargest(size, rooms)
    queue.add(JavaLoad("a", 3.0))
    queue.add(JavaLoad("b", float("nan")))
    assert queue.poll().worker == "b"
