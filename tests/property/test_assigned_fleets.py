"""Fleets that a leader of ours balances: always level, never restless."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from kcl_mld.fleet.rules.assignment.planning import MoveKind
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


# -- fleets whose workers have metrics ------------------------------------------------------------


def busy_fleet(groups, leases, *, speed, kbps, mean=35.0, noise=2.0, seed=0):
    """Workers whose CPU is what their leases carry, by the speed of their machines, and chance."""
    names = [name for group in groups for name in ids(group, 20)]
    rate = {row(number).lease_key: kbps(number) for number in range(leases)}
    fleet = AssignedFleet(
        [
            row(number, names[number % (len(names) // 2)], throughput_kbps=kbps(number))
            for number in range(leases)
        ],
        seed=seed,
    )
    fair = sum(rate.values()) / len(names) or 1.0

    def measure(worker):
        carried = sum(rate[lease.lease_key] for lease in fleet.of(worker))
        return min(
            100.0, max(0.0, mean * carried / fair / speed(worker) + fleet.rng.gauss(0, noise))
        )

    fleet.measure = measure
    fleet.join(*names)
    for name in names:
        fleet._report(name)
    return fleet


def minutes(fleet, count):
    """Moves of each minute."""
    made = []
    for _ in range(count):
        before = len(fleet.moves)
        for _ in range(12):
            fleet.look(seconds=5)
        made.append(len(fleet.moves) - before)
    return made


def test_busy_workers_of_two_groups_become_level_and_noise_moves_next_to_nothing():
    fleet = busy_fleet("ab", 500, speed=lambda worker: 1.0, kbps=lambda number: 100.0)
    made = minutes(fleet, 20)
    assert fleet.by_prefix() == {"a": 250, "b": 250}
    assert spread(fleet.by_worker()) <= 1
    assert sum(made[10:]) <= 5


def test_idle_workers_are_level_whatever_their_cpu_says():
    fleet = busy_fleet(
        "ab", 500, speed=lambda worker: 1.0, kbps=lambda number: 0.0, mean=0, noise=2
    )
    made = minutes(fleet, 5)
    assert fleet.by_prefix() == {"a": 250, "b": 250}
    assert spread(fleet.by_worker()) <= 1
    assert made[1:] == [0] * 4


def test_a_group_of_faster_machines_gets_more_and_leases_do_not_go_to_and_fro():
    fast = {"a": 2.0, "b": 1.0}
    fleet = busy_fleet("ab", 500, speed=lambda worker: fast[worker[0]], kbps=lambda number: 100.0)
    made = minutes(fleet, 30)
    assert 300 <= fleet.by_prefix()["a"] <= 335
    assert sum(made[20:]) <= 25


def test_a_worker_with_a_busy_neighbour_has_fewer_leases():
    fleet = busy_fleet(
        "ab", 200, speed=lambda worker: 0.5 if worker == "a-0" else 1.0, kbps=lambda number: 100.0
    )
    made = minutes(fleet, 20)
    counts = fleet.by_worker()
    assert counts["a-0"] < 5
    assert sum(made[10:]) <= 5


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_few_leases_carry_most_and_no_worker_has_more_than_it_must(noise):
    """Without metrics: throughput by Zipf's law, which jumps by a third from look to look."""
    rates = {row(number).lease_key: 5000 / (number + 1) for number in range(500)}
    names = [*ids("a", 20), *ids("b", 20)]
    fleet = AssignedFleet([row(number, names[number % 20]) for number in range(500)], names)
    fair = sum(rates.values()) / len(names)
    made = []
    for _ in range(20):
        before = len(fleet.moves)
        for _ in range(12):
            for key, lease in fleet.leases.items():
                kbps = max(0.0, rates[key] * fleet.rng.gauss(1, noise))
                fleet.leases[key] = replace(lease, throughput_kbps=kbps)
            fleet.look(seconds=5)
        made.append(len(fleet.moves) - before)
    for name in names:
        carried = [rates[lease.lease_key] for lease in fleet.of(name)]
        assert sum(carried) <= max(1.2 * fair, max(carried) * 1.02)
    assert sum(made[10:]) <= (80 if noise else 0)
