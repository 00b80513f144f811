"""What is said of paused leases in the log."""

import logging

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.pause_watch import PauseWatch
from kcl_mld.fleet.rules.assignment.looks import FleetView
from tests.fakes.lease_world import lease

OURS = WorkerMetrics("me", 1000, honors_pause=True)
JAVA = WorkerMetrics("java", 1000)
PAUSED = {"paused_until_s": 1060.0}
KEY = lease(0).lease_key


def view(*leases, metrics=(OURS, JAVA), epoch_s=1010.0):
    return FleetView(leases=leases, metrics=metrics, leader="me", now=0.0, epoch_s=epoch_s)


def test_each_reader_of_a_paused_lease_is_named_once(caplog):
    watch = PauseWatch()
    for _ in range(2):
        watch.looked(view(lease(0, lease_owner="java", **PAUSED)))
    watch.looked(view(lease(0, lease_owner="java", **PAUSED), metrics=None))
    assert caplog.messages == [
        (
            f"Lease {KEY} is paused, but java has it, which is not known to honor that and may read it: "
            "stop that worker, or end the pause with kcl-mld leases resume"
        )
    ]
    watch.looked(view(lease(0, lease_owner="me", **PAUSED)))
    watch.looked(view(lease(0, lease_owner="java", **PAUSED)))
    assert len(caplog.records) == 2


def test_what_nobody_may_have_is_named_once(caplog):
    watch, look = PauseWatch(), view(lease(0, **PAUSED), lease(1, **PAUSED))
    watch.left(look, [])
    watch.left(look, [KEY])
    watch.left(look, [KEY])
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message.startswith(f"No owner for 1 paused lease ({KEY}) before the pause")


def test_what_is_released_without_a_next_owner_is_an_error_where_another_could_read_it(caplog):
    mine = lease(0, lease_owner="me", **PAUSED)
    others = [
        lease(1, lease_owner="me"),
        lease(2, lease_owner="you", **PAUSED),
        lease(3, lease_owner="me", paused_until_s=1010.0),
    ]
    watch = PauseWatch()
    watch.leaving(view(mine, *others), "me", {KEY})
    watch.leaving(view(mine, *others, metrics=(OURS,)), "me", ())
    assert not caplog.records
    watch.leaving(view(mine, *others), "me", ())
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == (
        "Released without a next owner, as no worker that is known to honor a pause can have more: "
        f"1 paused lease ({KEY}); they may be read by java"
    )
