from __future__ import annotations

import pytest

from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from kcl_mld.leases.model.lease import Lease
from kcl_mld.shards.rules.shard_end import (
    CleanupOutcome,
    CleanupTimes,
    has_started,
    is_due,
    listed_children,
    obstacle,
)
from kcl_mld.streams.model.shard import HashRange, Shard


def lease(checkpoint):
    return Lease(lease_key="k", shard_id="k", checkpoint=checkpoint)


DONE = lease(SHARD_END)


@pytest.mark.parametrize(
    ("checkpoint", "started"),
    [
        (None, False),
        (TRIM_HORIZON, False),
        (AT_TIMESTAMP, False),
        (LATEST, True),
        (ExtendedSequenceNumber("5"), True),
        (SHARD_END, True),
    ],
)
def test_a_lease_has_started_when_its_checkpoint_moved(checkpoint, started):
    assert has_started(lease(checkpoint)) is started


@pytest.mark.parametrize(
    ("own", "children", "parents", "why"),
    [
        (DONE, {}, {}, None),
        (DONE, {"c": DONE}, {"p": None}, None),
        (lease(LATEST), {}, {}, "it is not at SHARD_END"),
        (DONE, {"c": DONE, "d": None}, {}, "child d has no lease"),
        (DONE, {"c": lease(TRIM_HORIZON)}, {}, "child c has not started"),
        (DONE, {"c": DONE}, {"p": None, "q": DONE}, "parent q still has a lease"),
    ],
)
def test_a_finished_lease_waits_for_its_family(own, children, parents, why):
    assert obstacle(own, children, parents) == why


def test_only_a_kind_that_deleted_something_starts_again():
    times = CleanupTimes(completed=1.0, garbage=2.0)
    assert times.after(CleanupOutcome(waiting=("a",)), 9.0) == times
    assert times.after(CleanupOutcome(completed=("a",)), 9.0) == CleanupTimes(9.0, 2.0)
    assert times.after(CleanupOutcome(garbage=("a",)), 9.0) == CleanupTimes(1.0, 9.0)


def test_an_interval_is_due_when_it_has_passed():
    assert not is_due(10.0, 5.0, 14.9)
    assert is_due(10.0, 5.0, 15.0)


def test_an_outcome_is_one_sentence():
    outcome = CleanupOutcome(("a",), (), ("b", "c"))
    assert str(outcome) == (
        "deleted 1 lease of finished shards and 0 of shards past retention, kept 2"
    )


def test_children_are_the_shards_that_name_the_parent_on_either_side():
    shards = [
        Shard("b", HashRange(0, 9), "1", parent_shard_id="x", adjacent_parent_shard_id="a"),
        Shard("a", HashRange(0, 9), "1"),
        Shard("aa", HashRange(0, 9), "1", parent_shard_id="a"),
    ]
    assert listed_children("a", shards) == ("aa", "b")
