"""A Java worker has the id of a worker of ours: both go on, and ours says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.fleet import Fleet

ERROR = "has the id ours"


@pytest.mark.peer
@pytest.mark.parametrize(
    ("version", "client_version"), [("2.5.4", COMPATIBLE), ("3.1.3", NATIVE)], ids=["2x", "3x"]
)
def test_ours_reports_a_java_worker_with_its_id(
    new_fleet: Callable[..., Fleet], version: str, client_version: str
) -> None:
    try:
        fetched.multilang(version)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 4}, client_version)
    # Of a new application of ours, Java 3.0 to 3.4 would not find the fleet: it has other tables.
    java_begins = client_version == NATIVE
    if java_begins:
        twin = fleet.multilang("twin", version, workerId="ours")
        fleet.until(lambda: any(one.seen for one in fleet.holds(twin)), "the twin reads")
        ours = fleet.ours("ours")
    else:
        ours = fleet.ours("ours")
        fleet.until_it_holds(ours, 4)
        assert ERROR not in ours.output
        twin = fleet.multilang("twin", version, workerId="ours")
    fleet.until(lambda: ERROR in ours.output, "ours reports its twin")
    twin.leave()
    fleet.until(lambda: "any more" in ours.output.rpartition(ERROR)[2], "the twin is gone")
    fleet.until_it_holds(ours, 4)
    fleet.until_all_is_read()
    ours.leave()
