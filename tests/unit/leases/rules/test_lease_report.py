"""The lease table for people."""

import pytest

from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.rules.lease_report import (
    Grouping,
    cluster_of,
    group_leases,
    left_free,
    told_free,
)
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


@pytest.mark.parametrize(
    ("most", "workers", "free"),
    [
        (1, (), [1]),
        (1, ("amber-1",), [1]),
        (1, ("amber-1", "idle-1"), []),  # it takes one when it looks
        (2, (), []),
    ],
)
def test_leases_are_left_free_where_no_worker_may_hold_more(most, workers, free):
    assert left_free(ROWS, most, workers) == tuple(ROWS[n].lease_key for n in free)


def test_a_finished_lease_and_a_table_without_workers_are_not_left_free():
    assert left_free([lease(0), lease(1)], 1) == ()
    finished = lease(0, checkpoint=SHARD_END)
    assert left_free([finished, lease(1, lease_owner="a")], 1) == ()
    full = lease(0, lease_owner="a", checkpoint=SHARD_END)
    assert left_free([full, lease(1)], 1) == ()


def test_it_is_told_in_words():
    assert told_free(1, 3) == (
        "1 lease has no owner, because each worker holds maxLeasesForWorker = 3"
    )
    assert told_free(2, 3).startswith("2 leases have no owner")
