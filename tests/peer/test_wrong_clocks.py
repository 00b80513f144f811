"""Workers whose clocks are wrong, under a Java leader."""

from __future__ import annotations

import pytest

from tests.peer import fetched
from tests.peer.fleet import NATIVE

#: A Java leader sees a worker within its report and two of its looks.
LEADER_S = 400.0


@pytest.mark.peer
def test_a_java_leader_gives_leases_to_workers_that_are_five_minutes_off(new_fleet):
    """It takes metrics that are a minute old by its own clock for those of a dead worker."""
    try:
        fetched.multilang("3.1.3")
    except fetched.Unavailable as error:
        pytest.skip(f"Java MultiLangDaemon 3.1.3: {error}")
    fleet = new_fleet({"orders": 6}, NATIVE)
    theirs = fleet.multilang("theirs-1", "3.1.3")
    fleet.until(lambda: fleet.leader == theirs.name, "theirs-1 leads", LEADER_S)
    slow = fleet.ours("ours-slow", ahead_s=-300.0)
    fast = fleet.ours("ours-fast", ahead_s=300.0)
    fleet.until_it_holds(slow, 1)
    fleet.until_it_holds(fast, 1)
    fleet.until_all_is_read()
    assert fleet.leader == theirs.name
    assert "The clock of this machine is" in slow.output
    verdict = fleet.verdict()
    assert verdict.faults == []
