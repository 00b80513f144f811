"""Fleets that a leader of ours balances: always level, never restless."""

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from mld.decide.assignment.planning import MoveKind
from tests.fakes.assigned_fleet import AssignedFleet, row


def ids(group: str, count: int) -> list[str]:
    return [f"{group}-{number}" for number in range(count)]


def spread(counts: dict[str, int]) -> int:
    return max(counts.values()) - min(counts.values())


def assert_quiet(fleet: AssignedFleet) -> None:
    """Nothing moves any more, though a balance is due three times."""
    before = len(fleet.moves)
    for _ in range(40):
        fleet.look(seconds=5)
    assert len(fleet.moves) == before


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_500_leases_of_which_one_group_has_too_many(groups):
    """Java rests where each worker of the one group has three, each of the other two."""
    names = [name for group in range(groups) for name in ids(f"g{group}", 200 // groups)]
    total = 500 if groups != 3 else 495
    leases = []
    for number in range(total):
        favourites = (
            names[: len(names) // 2] if number < total * 3 // 5 else names[len(names) // 2 :]
        )
        leases.append(row(number, favourites[number % len(favourites)]))
    fleet = AssignedFleet(leases, names)
    fleet.run(10)
    by_group = fleet.by_prefix()
    assert set(by_group.values()) <= {total // groups, -(-total // groups)}
    assert set(fleet.by_worker().values()) <= {2, 3}
    moved = Counter(move.lease.lease_key for _at, move in fleet.moves)
    assert max(moved.values()) == 1
    assert {move.kind for _at, move in fleet.moves} == {MoveKind.HAND_OFF}
    assert_quiet(fleet)


def test_two_groups_of_100_workers_are_at_250_each():
    leases = [row(number, f"a-{number % 100}") for number in range(300)]
    leases += [row(number, f"b-{number % 100}") for number in range(300, 500)]
    fleet = AssignedFleet(leases, [*ids("a", 100), *ids("b", 100)])
    fleet.look()
    assert fleet.by_prefix() == {"a": 250, "b": 250}
    assert len(fleet.moves) == 50
    assert_quiet(fleet)


EVENT = st.tuples(
    st.sampled_from(["join", "kill", "leave", "pause"]),
    st.sampled_from("abcde"),
    st.integers(1, 4),
)


@settings(deadline=None, max_examples=50)
@given(
    leases=st.integers(1, 40),
    start=st.integers(1, 4),
    events=st.lists(EVENT, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_groups_come_and_go(leases, start, events, seed):
    """Whoever comes and goes: soon all leases are read, level by worker and by group, and stay."""
    fleet = AssignedFleet([row(n) for n in range(leases)], ids("a", start), seed=seed)
    fleet.run(2)
    born = Counter()
    for event, group, count in events:
        if event == "join":
            fleet.join(*(f"{group}-{born[group] + number}x" for number in range(count)))
            born[group] += count
        elif event != "pause" and len(fleet.alive) > count:
            victims = fleet.rng.sample(sorted(fleet.alive), count)
            (fleet.kill if event == "kill" else fleet.leave)(*victims)
        fleet.run(count * 5)
        in_flight = [lease for lease in fleet.leases.values() if lease.checkpoint_owner]
        assert all(lease.lease_owner != lease.checkpoint_owner for lease in in_flight)
    fleet.run(130)
    assert {lease.actual_owner for lease in fleet.leases.values()} <= fleet.alive
    counts = fleet.by_worker()
    assert spread(counts) <= 1
    groups = Counter(worker.partition("-")[0] for worker in counts)
    if 2 <= len(groups) < len(counts):
        mean = leases / len(counts)
        excess = {name: count - mean * groups[name] for name, count in fleet.by_prefix().items()}
        assert max(excess.values()) - min(excess.values()) <= 1 + 1e-6
    assert_quiet(fleet)
