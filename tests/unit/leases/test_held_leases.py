"""What is held, and what a row says of how much its lease carries."""

import asyncio

import pytest

from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.held_leases import ThroughputWindow
from tests.fakes.lease_world import World, lease
from tests.sim.loop import run

KEY = "shardId-000000000000"
POSITION = ExtendedSequenceNumber("12", 3)
MIB = 2**20


def test_a_burst_and_silence_after_it_are_java_s_numbers():
    window = ThroughputWindow(None, 0.0)
    assert window.measure(3.308, 3.308) is None  # nothing was ever received
    window.received(MIB)
    said = []
    for count in range(1, 4):
        measured = window.measure(count * 3.308, 3.3)
        window.stored(measured)
        said.append(measured.kbps)
    assert said == pytest.approx([309.5526, 154.7763, 77.38815])


def test_what_comes_while_a_write_is_on_its_way_counts_in_the_next_window():
    window = ThroughputWindow(None, 0.0)
    window.received(1024)
    measured = window.measure(1.0, 0.5)
    window.received(2048)
    window.stored(measured)
    assert window.measure(1.4, 0.5) is None
    assert window.measure(2.0, 0.5).received_bytes == 2048


def test_a_write_without_an_answer_loses_nothing():
    window = ThroughputWindow(None, 0.0)
    window.received(1024)
    window.measure(1.0, 0.5)
    assert window.measure(2.0, 0.5).kbps == pytest.approx(0.5)


@pytest.mark.parametrize("write", ["renewal", "checkpoint"])
def test_whichever_write_keeps_a_lease_says_its_throughput_where_a_leader_asks_for_it(write):
    async def test():
        world = World()
        world.create_table()
        renewer = world.worker("me").renewer
        world.put(lease(lease_owner="me"))
        await renewer.adopt_own()
        (held,) = renewer.held()

        async def write_now():
            if write == "renewal":
                await renewer.heartbeat.renew_once()
            else:
                await renewer.checkpoint(KEY, held.token, POSITION)
            return world.row(KEY).get("throughputKBps")

        renewer.received(KEY, held.token, MIB)
        renewer.received(KEY, "an old token", 9 * MIB)
        await asyncio.sleep(5)
        assert await write_now() is None
        renewer.write_throughput(is_written=True)
        assert float((await write_now())["N"]) == pytest.approx(1024 / 5, rel=1e-4)
        await asyncio.sleep(5)
        assert float((await write_now())["N"]) < 1024 / 5 / 2

    run(test())
