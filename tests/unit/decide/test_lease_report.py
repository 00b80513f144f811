"""The lease table for people."""

import pytest

from mld.decide.lease_report import Grouping, cluster_of, group_leases
from tests.fakes.lease_world import lease


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
