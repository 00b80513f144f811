"""Framed records on their way to a child: looked up, unframed, counted, and never held up for long."""

from __future__ import annotations

import asyncio
import base64
import logging

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.retrieval.adapters.schema_decoders import Decoders
from kcl_mld.retrieval.rules import schema_frame
from kcl_mld.retrieval.schema_registry import CALL_S, SchemaRegistry
from tests.fakes.children import ScriptedChildren, polite
from tests.fakes.schema_frames import ORDER, ORDER_AVRO, ORDER_ID, FakeFiles, FakeGlue, avro, frame
from tests.sim.loop import run
from tests.unit.children.consumer_world import FIRST, World

NOBODY = "00000000-0000-0000-0000-000000000001"
VALUE = {"id": 7, "customer": None, "lines": ["a"]}
PAYLOAD = avro(ORDER_AVRO, VALUE)


class Registry:
    """A fake registry, and a world that uses it."""

    def __init__(self, *, decode=False):
        self.glue = FakeGlue(ORDER)
        self.files = FakeFiles()
        self._decoders = Decoders() if decode else None

    def world(self):
        return World(children=ScriptedChildren(polite), schemas=self._made)

    def _made(self, runtime):
        return SchemaRegistry(self.glue, self.files, self._decoders, runtime)


def consumed(registry, *payloads, seconds=30.0):
    """What a child got of these records; the world."""
    kept = []

    async def main():
        world = registry.world()
        await world.open()
        held = await world.hold()
        world.put(*payloads)
        async with world.consuming(held):
            await asyncio.sleep(seconds)
        assert world.budget.used_bytes == 0
        kept.append(world)

    run(main())
    (world,) = kept
    return world


def records(world):
    return [
        record
        for message in world.children.children[0].heard
        if message["action"] == "processRecords"
        for record in message["records"]
    ]


def test_a_child_gets_payload_keys_and_the_folder_of_definitions():
    registry = Registry()
    world = consumed(registry, frame(ORDER_ID, PAYLOAD), b"plain")
    first, second = records(world)
    assert base64.b64decode(first["data"]) == PAYLOAD
    assert (first["schemaVersionId"], first["schemaName"]) == (ORDER_ID, "orders")
    assert first["dataFormat"] == "AVRO"
    assert all(not isinstance(value, dict | list) for value in first.values())
    assert base64.b64decode(second["data"]) == b"plain"
    assert "dataFormat" not in second
    assert world.children.envs[0]["KCL_MLD_SCHEMAS"] == registry.files.folder
    assert registry.files.written.keys() == {ORDER_ID}
    assert world.metrics.values["GetSchemaVersion", "Success"] == [1.0]
    assert ("ProcessTask", "SchemaFailures") not in world.metrics.values


def test_without_a_registry_a_child_gets_the_frame_and_no_folder():
    async def main():
        world = World(children=ScriptedChildren(polite))
        await world.open()
        held = await world.hold()
        world.put(frame(ORDER_ID, PAYLOAD))
        async with world.consuming(held):
            await asyncio.sleep(10)
        (record,) = records(world)
        assert base64.b64decode(record["data"]) == frame(ORDER_ID, PAYLOAD)
        assert "schemaVersionId" not in record
        assert "KCL_MLD_SCHEMAS" not in world.children.envs[0]

    run(main())


def test_decoding_makes_json_text():
    world = consumed(Registry(decode=True), frame(ORDER_ID, PAYLOAD, compressed=True))
    (record,) = records(world)
    assert base64.b64decode(record["data"]) == b'{"id":7,"customer":null,"lines":["a"]}'


def test_failures_are_counted_per_record_and_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    corrupt = frame(ORDER_ID, b"x", compressed=True)[:-2]
    false_positive = frame(NOBODY, b"binary")
    sent = [corrupt, false_positive, false_positive, frame(ORDER_ID, PAYLOAD)]
    world = consumed(Registry(), *sent)
    assert [base64.b64decode(one["data"]) for one in records(world)] == [*sent[:3], PAYLOAD]
    assert sum(world.metrics.values["ProcessTask", "SchemaFailures"]) == 3
    told = [one.getMessage() for one in caplog.records if "schema version" in one.getMessage()]
    assert len(told) == 2
    assert any(NOBODY in one and "no such version" in one for one in told)
    assert any(ORDER_ID in one and "zlib" in one for one in told)


def test_a_dead_registry_holds_records_up_for_one_time_out():
    registry = Registry()
    registry.glue.before = lambda: asyncio.sleep(3600)
    arrived = []

    async def noting(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                arrived.append(asyncio.get_running_loop().time())
                await child.checkpoint()
            await child.answer(message)
        return 0

    async def main():
        world = World(children=ScriptedChildren(noting), schemas=registry._made)
        await world.open()
        held = await world.hold()
        began = asyncio.get_running_loop().time()
        world.put(frame(ORDER_ID, PAYLOAD))
        async with world.consuming(held):
            await asyncio.sleep(10)
        assert CALL_S <= arrived[0] - began < CALL_S + 2

    run(main())


def test_batches_are_converted_elsewhere_because_small_ones_may_grow():
    world = consumed(Registry(), frame(ORDER_ID, b"small"))
    assert world.offload.count == 2  # once without the schema, once with it


def test_a_batch_that_grows_reaches_the_child_in_several_lines(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 1500)
    sent = [bytes([n]) * 1000 for n in range(7)]
    world = consumed(Registry(), *(frame(ORDER_ID, one, compressed=True) for one in sent))
    assert [base64.b64decode(one["data"]) for one in records(world)] == sent
    heard = world.children.children[0].heard
    sizes = [len(one["records"]) for one in heard if one["action"] == "processRecords"]
    assert sizes == [2, 2, 2, 1]
    assert sum(world.metrics.values["ProcessTask", "RecordsProcessed"]) == 7
    assert sum(world.metrics.values["ProcessTask", "DataBytesProcessed"]) == 7000


def test_a_lease_that_is_lost_between_two_lines_ends_the_batch(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 1500)
    registry = Registry()
    worlds, tokens = [], []

    async def loser(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                await worlds[0].renewer.drop(FIRST, tokens[0])
            await child.answer(message)
        return 0

    async def main():
        world = World(children=ScriptedChildren(loser), schemas=registry._made)
        worlds.append(world)
        await world.open()
        held = await world.hold()
        tokens.append(held.token)
        world.put(*(frame(ORDER_ID, bytes(1000), compressed=True) for _ in range(7)))
        assert await world.consumer(held).run() is ShutdownReason.LEASE_LOST
        assert world.budget.used_bytes == 0
        assert len(records(world)) == 2

    run(main())
