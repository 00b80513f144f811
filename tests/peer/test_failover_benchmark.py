"""Java's fleets in the benchmark of failovers: they start, read and are judged as ours are."""

from __future__ import annotations

import signal
import time

import pytest

from benchmarks.failover import JAVA, OURS, SHARDS, Fleet, StandInAws, records_coming
from tests.peer import fetched


@pytest.mark.peer
@pytest.mark.parametrize("kind", [*JAVA, OURS[1]], ids=lambda kind: kind.name)
def test_a_fleet_reads_every_shard(kind, tmp_path):
    try:
        fetched.stand_in()
        fetched.multilang(kind.java or JAVA[0].java)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    with StandInAws() as aws:
        fleet = Fleet(aws, tmp_path, "failover-smoke", kind)
        try:
            with records_coming(fleet):
                fleet.start("a")
                assert fleet.settle() is not None
                assert fleet.leader() == "a"
                assert fleet.longest_silence(time.monotonic()) < 10
            assert len(fleet.stamps()) == SHARDS
        finally:
            for worker in tuple(fleet.workers):
                fleet.end(worker, signal.SIGTERM)
