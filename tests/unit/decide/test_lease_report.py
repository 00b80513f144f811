"""The lease table for people."""

import pytest

from mld.decide.lease_report import Grouping, LeaseState, cluster_of, group_leases, state_of
from mld.model.sequence import SHARD_END
from tests.fakes.lease_world import lease


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (lease(), LeaseState.FREE),
        (lease(lease_owner="w"), LeaseState.OWNED),
        (lease(lease_owner="next", checkpoint_owner="w"), LeaseState.HANDED_OVER),
        (lease(lease_owner="w", checkpoint=SHARD_END), LeaseState.FINISHED),
        (lease(checkpoint=SHARD_END), LeaseState.FINISHED),
    ],
)
def test_the_state_is_read_from_the_row(row, state):
    assert state_of(row) is state


def test_a_cluster_is_what_comes_before_the_first_dash():
    assert cluster_of("blue-host7-1") == "blue"
    assert cluster_of("host7") == "host7"
    assert cluster_of("-x") == ""


ROWS = [
    lease(0, lease_owner="blue-2"),
    lease(1),
    lease(2, lease_owner="amber-1"),
    lease(3, lease_owner="blue-1"),
    lease(4, lease_owner="blue-2"),
]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        (Grouping.WORKER, {"amber-1": [2], "blue-1": [3], "blue-2": [0, 4], "": [1]}),
        (Grouping.CLUSTER, {"amber": [2], "blue": [0, 3, 4], "": [1]}),
    ],
)
def test_rows_are_grouped_by_owner_with_those_of_nobody_last(by, groups):
    found = group_leases(ROWS, by)
    assert list(found) == list(groups)
    assert {name: [ROWS.index(row) for row in rows] for name, rows in found.items()} == groups
