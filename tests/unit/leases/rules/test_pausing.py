"""Who may have a lease that is paused."""

from dataclasses import replace

import pytest

from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.leases.rules.pausing import named, read_despite_pause
from kcl_mld.observe.model.fleet_snapshot import FleetItems
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.rules.steering import SteerWay, plan_step
from tests.fakes.fleet_looks import snapshot
from tests.fakes.lease_world import lease

NOW_S = 1010.0  # of a look after 10 s
OURS = WorkerMetrics("ours", 1000, honors_pause=True)
JAVA = WorkerMetrics("java", 1000)
NEVER_JAVA = ("java would read the shard", "java is not a kcl-mld worker")


MINE = lease(8, lease_owner="ours", holder="ours")


def beaten(row, number):
    return replace(row, lease_counter=number)


def judged(items, *, living=("ours",)):
    """Why a pause of a lease of ours is refused, and what it does not promise."""
    java = lease(9, lease_owner="java")
    looks = [
        snapshot(
            at_s,
            beaten(MINE, number),
            beaten(lease(7, lease_owner="ours", holder="ours"), number if "ours" in living else 0),
            beaten(java, number if "java" in living else 0),
            items=items,
        )
        for number, at_s in enumerate((0.0, 10.0))
    ]
    watch = Snapshots(tuple(looks))
    step = plan_step(watch, watch.last.leases[MINE.lease_key], SteerVerb.PAUSE, 30.0)
    assert (step.way is SteerWay.REFUSED) == (step.why != "")
    return step.why, "".join(step.notes)


def led_by(leader, *metrics):
    lock = LockItem(owner=leader, duration_s=2.0, record_version="v")
    return FleetItems(lock=lock, metrics=metrics)


def test_where_nobody_assigns_leases_there_is_no_promise():
    for items in (None, FleetItems(metrics=(OURS,))):
        why, note = judged(items)
        assert why == ""
        assert note.startswith("no promise: nobody assigns leases")
    why, _note = judged(None, living=("ours", "java"))
    assert why == "java is not a kcl-mld worker, and would read the shard if it got the lease"


@pytest.mark.parametrize(
    ("leader", "metrics", "how", "refused", "note"),
    [
        ("ours", (OURS,), {}, "", ""),
        ("ours", (OURS, JAVA), {}, "", "java would read the shard; ours leads"),
        (
            "ours",
            (OURS,),
            {"living": ("ours", "java")},
            "",
            "java would read the shard; ours leads",
        ),
        ("java", (OURS, JAVA), {}, "java leads, and may give the lease to java,", ""),
        ("java", (OURS, replace(JAVA, updated_at_s=949)), {}, "", ""),
        (
            "java",
            (OURS, replace(JAVA, updated_at_s=949)),
            {"living": ("ours", "java")},
            "java leads",
            "",
        ),
        # It died, or its id is another program's now.
        (
            "other",
            (replace(OURS, worker_id="other", updated_at_s=949), JAVA),
            {},
            "other leads, and may give the lease to java,",
            "",
        ),
        ("ours", (replace(OURS, updated_at_s=949), JAVA), {}, "", "java would read"),
        ("ours", (OURS, WorkerMetrics("ours", 1005)), {}, "ours leads, and may give", ""),
    ],
)
def test_who_leads_and_who_lives_decide(leader, metrics, how, refused, note):
    found = judged(led_by(leader, *metrics), **how)
    assert found[0].startswith(refused)
    assert found[1].startswith(note)
    assert (found[0] == "", found[1] == "") == (refused == "", note == "")


def test_who_reads_a_paused_lease_is_known_by_its_row_or_its_metrics():
    paused = {"paused_until_s": NOW_S + 1}
    rows = [
        lease(0, lease_owner="java", **paused),
        lease(1, lease_owner="java", holder="ours", **paused),
        lease(2, lease_owner="ours", **paused),  # its first write is to come
        lease(3, lease_owner="older", holder="older", **paused),
        lease(4, **paused),
        lease(5, lease_owner="java", paused_until_s=NOW_S),
        lease(6, lease_owner="java", checkpoint=SHARD_END, **paused),
        lease(7, lease_owner="java"),
    ]
    found = read_despite_pause(rows, {"ours"}, NOW_S)
    assert found == {rows[0].lease_key: "java", rows[1].lease_key: "java"}


def test_a_line_of_the_log_names_some():
    assert named([lease(1), lease(0)]) == (
        "2 paused leases (shardId-000000000000, shardId-000000000001)"
    )
    many = named(lease(number) for number in range(30))
    assert many.startswith("30 paused leases (")
    assert many.endswith("shardId-000000000019, …)")
