"""Fleets to simulate in tests."""

import random
from itertools import pairwise

from kcl_mld.simulate.fleet import SimulatedFleet, outcome_of
from kcl_mld.simulate.profile import ProfileName
from kcl_mld.simulate.scenario import ChangeKind, Scenario, check, parse_change


def change(text):
    """``kill 3@8m`` and its like."""
    kind, what = text.split()
    return parse_change(ChangeKind(kind), what, key="")


def fleet_after(profile, *changes, seed=1, **options):
    """A fleet when its time is over."""
    given = {"workers": 4, "groups": ("groupA",), "shards": 16, "duration_s": 900.0} | options
    scenario = Scenario(changes=tuple(map(change, changes)), **given)
    check(scenario)
    fleet = SimulatedFleet(scenario, ProfileName(profile), random.Random(seed))
    fleet.run(scenario.duration_s)
    fleet.finish()
    check_books(fleet)
    return fleet


def outcome(profile, *changes, **options):
    """The figures of such a fleet."""
    return outcome_of(fleet_after(profile, *changes, **options), 0.125, 0.625)


def check_books(fleet):
    """No lease is lost or counted twice, and time goes forward."""
    shards = fleet.scenario.shards
    for sample in fleet.samples:
        assert sum(sample.leases.values()) + sample.free == shards
    for moment in fleet.moments:
        assert sum(moment.leases.values()) + moment.free == shards
    for one, other in pairwise(fleet.moments):
        assert one.at_s <= other.at_s
        assert one.moves <= other.moves
    for shard in fleet.readings.shards.values():
        assert (shard.unread_since is None) == bool(shard.readings)
