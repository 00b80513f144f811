"""Rows that say until when a shard was read, and what was lost, beside other workers."""

from __future__ import annotations

import json
import time

import pytest

from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.leases.model.reading import LOSS, READ_UNTIL, LossNote, ReadNote
from kcl_mld.signals.model.metrics import PassCause
from tests.peer.fleet import COMPATIBLE, NATIVE
from tests.peer.test_leaving import STARTERS, fetch


def ours_alone() -> dict[str, dict[str, str]]:
    """The attributes of a row, as ours writes them after a loss."""
    now_s = time.time()
    loss = LossNote(is_certain=True, cause=PassCause.EXPIRED, at_s=now_s, first="TRIM_HORIZON")
    return {
        READ_UNTIL: {"S": ReadNote(now_s, TRIM_HORIZON).text()},
        LOSS: {"S": loss.text()},
    }


def is_about_rows(line: str) -> bool:
    """An error; Java 2.5.4 logs one of its prefetching, too, whenever it loses a lease."""
    return " ERROR " in line and "PrefetchRecordsPublisher" not in line


@pytest.mark.peer
@pytest.mark.parametrize(
    ("kind", "client_version"),
    [("java-2.5.4", COMPATIBLE), ("java-3.1.3", NATIVE), ("older", NATIVE), ("older", COMPATIBLE)],
)
def test_notes_of_losses_are_kept(new_fleet, kind, client_version):
    fetch(kind)
    fleet = new_fleet({"orders": 4}, client_version)
    theirs = STARTERS[kind](fleet, "theirs-1")
    fleet.until_it_holds(theirs, 4)
    ours = fleet.ours("ours-1")
    fleet.until_it_holds(ours, 1)
    for key in fleet.rows():
        found = ours_alone()
        fleet.dynamodb.update_item(
            TableName=fleet.application,
            Key={"leaseKey": {"S": key}},
            UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in found),
            ExpressionAttributeValues={f":{name}": value for name, value in found.items()},
        )
    fleet.note("all rows have notes")
    fleet.until_all_is_read()
    newer = STARTERS[kind](fleet, "theirs-2")
    fleet.until_it_holds(newer, 1)
    ours.leave()
    fleet.until_all_is_owned_by(theirs, newer)
    again = fleet.ours("ours-2")
    fleet.until_it_holds(again, 1)
    fleet.until_all_is_read()
    verdict = fleet.verdict()
    for row in fleet.rows().values():
        assert json.loads(row[LOSS]["S"])["cause"] == "expired"
        assert READ_UNTIL in row
    for worker in (theirs, newer):
        assert [line for line in worker.output.splitlines() if "kclMld" in line] == []
        assert [line for line in worker.output.splitlines() if is_about_rows(line)] == []
    assert verdict.faults == []
