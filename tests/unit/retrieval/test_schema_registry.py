"""Versions of schemas: asked for once, in bounded time, and told of once."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import Counter

import pytest

from kcl_mld.errors import (
    AwsError,
    CredentialsRefused,
    Denied,
    ServiceError,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.retrieval import schema_registry
from kcl_mld.retrieval.model.schema import KnownSchema, SchemaFailure, SchemaVersion, Undecodable
from kcl_mld.retrieval.rules.schema_frame import FailureCount, FailureKey
from kcl_mld.retrieval.schema_registry import ABSENT_S, CALL_S, SchemaRegistry
from kcl_mld.signals.runtime import Runtime
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.schema_frames import ORDER, ORDER_ID, FakeFiles, FakeGlue
from tests.fakes.shard_world import simulated
from tests.unit.children.consumer_world import Inline, RecordedMetrics

ONE = {ORDER_ID: 1}


class World:
    def __init__(self, *versions, new_decoder=None):
        self.glue = FakeGlue(ORDER, *versions)
        self.files = FakeFiles()
        self.metrics = RecordedMetrics()
        self.clock = LoopClock()
        runtime = Runtime(
            clock=self.clock,
            rng=random.Random(1),
            ids=CountingIds("id"),
            metrics=self.metrics,
            offload=Inline(),
        )
        self.registry = SchemaRegistry(self.glue, self.files, new_decoder, runtime)

    async def find(self, version_id=ORDER_ID):
        return (await self.registry.look_up({version_id: 1}))[version_id]


def version(number, **more):
    return SchemaVersion(str(uuid.UUID(int=number)), f"schema-{number}", "AVRO", "{}", **more)


@simulated
async def test_a_version_is_asked_for_once_and_its_definition_is_there_before_its_records():
    world = World()
    assert await world.registry.look_up(ONE) == {ORDER_ID: KnownSchema(ORDER)}
    assert await world.registry.look_up(ONE) == {ORDER_ID: KnownSchema(ORDER)}
    assert world.glue.calls == [ORDER_ID]
    assert world.registry.known == {ORDER_ID: KnownSchema(ORDER)}
    assert world.files.written == {ORDER_ID: ORDER.definition}
    assert world.metrics.values["GetSchemaVersion", "Success"] == [1.0]
    assert world.metrics.values["GetSchemaVersion", "Time"] == [0.0]


@simulated
async def test_many_shards_that_need_a_version_make_one_call():
    world = World()
    world.glue.before = lambda: asyncio.sleep(1)
    found = await asyncio.gather(*(world.find() for _ in range(50)))
    assert found == [KnownSchema(ORDER)] * 50
    assert world.glue.calls == [ORDER_ID]


@simulated
async def test_a_shard_that_gives_up_does_not_take_the_answer_from_others():
    world = World()
    world.glue.before = lambda: asyncio.sleep(1)
    first = asyncio.create_task(world.find())
    await asyncio.sleep(0.5)
    second = asyncio.create_task(world.find())
    await asyncio.sleep(0.1)
    first.cancel()
    assert await second == KnownSchema(ORDER)
    with pytest.raises(asyncio.CancelledError):
        await first


@simulated
async def test_a_version_that_is_not_there_costs_one_call_a_minute():
    world = World()
    nobody = version(1).version_id
    for _ in range(10):
        assert await world.find(nobody) is SchemaFailure.NOT_FOUND
    assert len(world.glue.calls) == 1
    await asyncio.sleep(ABSENT_S - 1)
    assert await world.find(nobody) is SchemaFailure.NOT_FOUND
    assert len(world.glue.calls) == 1
    await asyncio.sleep(1)
    world.glue.versions[nobody] = version(1)
    assert await world.find(nobody) == KnownSchema(version(1))
    assert world.files.written.keys() == {nobody}


@simulated
async def test_a_flood_of_random_ids_is_bounded_and_the_frequent_are_asked_for_first():
    real = [version(n) for n in range(1, 6)]
    world = World(*real)
    random_ids = [str(uuid.UUID(int=n)) for n in range(1000, 4000)]
    began = world.clock.monotonic()
    wanted = Counter(random_ids) + Counter({one.version_id: 2 for one in real})
    found = await world.registry.look_up(wanted)
    assert world.clock.monotonic() - began < 1
    assert len(world.glue.calls) == 25  # 20 misses, and what was found is no miss
    assert [found[one.version_id] for one in real] == [KnownSchema(one) for one in real]
    assert Counter(found[one] for one in random_ids) == {
        SchemaFailure.NOT_FOUND: 20,
        SchemaFailure.TOO_MANY_UNKNOWN: 2980,
    }
    world.glue.calls.clear()
    for minute in range(10):
        await world.registry.look_up(
            {str(uuid.UUID(int=10_000 + minute * 500 + n)): 1 for n in range(500)}
        )
        await asyncio.sleep(60)
    assert len(world.glue.calls) <= 100  # 10 a minute


@simulated
async def test_known_versions_need_no_registry(caplog):
    world = World()
    await world.find()
    world.glue.failing = Unreachable("GetSchemaVersion", "ConnectTimeoutError", "nobody there")
    assert await world.find() == KnownSchema(ORDER)
    assert caplog.records == []


@simulated
async def test_a_dead_registry_is_waited_for_once_and_then_left_alone(caplog):
    world = World()
    world.glue.before = lambda: asyncio.sleep(3600)
    ids = {version(n).version_id: 1 for n in range(200)}
    began = world.clock.monotonic()
    shards = [world.registry.look_up(ids) for _ in range(20)]
    for found in await asyncio.gather(*shards):
        assert set(found.values()) == {SchemaFailure.UNREACHABLE}
    # All shards together wait for one time-out, not each for each version.
    assert world.clock.monotonic() - began == pytest.approx(CALL_S, abs=0.01)
    assert len(world.glue.calls) == schema_registry.CALLS
    assert await world.find() is SchemaFailure.UNREACHABLE
    assert world.clock.monotonic() - began == pytest.approx(CALL_S, abs=0.01)
    await asyncio.sleep(5)
    world.glue.before = None
    assert await world.find() == KnownSchema(ORDER)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "the registry cannot be reached" in told[0]
    assert "other versions are not logged for an hour" in told[0]
    assert "no answer within 5 s" in told[0]


@pytest.mark.parametrize("error", [Unreachable, UnknownOutcome, Throttled])
def test_no_usable_answer_is_an_outage(error):
    @simulated
    async def run():
        world = World()
        world.glue.failing = error("GetSchemaVersion", "Code", "text")
        began = world.clock.monotonic()
        assert await world.find() is SchemaFailure.UNREACHABLE
        assert world.clock.monotonic() - began == pytest.approx(CALL_S, abs=0.01)
        calls = len(world.glue.calls)
        assert 4 <= calls <= 8
        assert await world.find(version(5).version_id) is SchemaFailure.UNREACHABLE
        assert len(world.glue.calls) == calls
        world.glue.failing = None
        await asyncio.sleep(5)
        assert await world.find() == KnownSchema(ORDER)
        successes = world.metrics.values["GetSchemaVersion", "Success"]
        assert (sum(successes), len(successes)) == (1.0, calls + 1)

    run()


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("GetSchemaVersion", "ConnectionError", "reset"),
        Throttled("GetSchemaVersion", "ThrottlingException", "slow down"),
        ServiceError("GetSchemaVersion", "InternalServiceException", "oops"),
    ],
)
def test_a_failure_that_passes_leaves_no_record_framed(error, caplog):
    @simulated
    async def run():
        world = World()
        world.glue.failing = error
        asyncio.get_running_loop().call_later(2, setattr, world.glue, "failing", None)
        assert await world.find() == KnownSchema(ORDER)
        assert caplog.records == []

    run()


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Denied, SchemaFailure.DENIED),
        (CredentialsRefused, SchemaFailure.DENIED),
        (ServiceError, SchemaFailure.REFUSED),
    ],
)
def test_a_refusal_is_remembered_and_told_once(error: type[AwsError], failure, caplog):
    @simulated
    async def run():
        world = World()
        world.glue.failing = error("GetSchemaVersion", "Code", "not authorized")
        for _ in range(3):
            assert await world.find() is failure
        assert len(world.glue.calls) == 1
        assert await world.find(version(5).version_id) is failure  # one may be denied, another not
        assert len(world.glue.calls) == 2
        first, second = (record.getMessage() for record in caplog.records)
        assert ORDER_ID in first
        assert "not authorized" in first
        assert version(5).version_id in second

    run()


@simulated
async def test_decoders_are_made_once_and_a_useless_definition_is_told_of(caplog):
    made = []

    def new_decoder(one):
        made.append(one.version_id)
        if one.name == "schema-1":
            raise Undecodable("the schema refers to itself (N)")
        return bytes.upper

    world = World(version(1), new_decoder=new_decoder)
    assert await world.find() == KnownSchema(ORDER, bytes.upper)
    bad = version(1).version_id
    assert await world.find(bad) is SchemaFailure.UNUSABLE
    assert await world.find(bad) is SchemaFailure.UNUSABLE
    assert made == [ORDER_ID, bad]
    assert world.glue.calls == [ORDER_ID, bad]
    assert bad in world.files.written  # a program may decode it itself
    assert [one.getMessage() for one in caplog.records] == [
        (
            f"schema version {bad}: its definition cannot be used to decode, so its records stay framed"
            " (the schema refers to itself (N))"
        )
    ]


@simulated
async def test_a_full_disk_does_not_hold_records_up(caplog):
    world = World()
    world.files.failing = OSError(28, "No space left on device")
    assert await world.find() == KnownSchema(ORDER)
    assert "No space left on device" in caplog.text


@simulated
async def test_the_versions_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(schema_registry, "MOST_VERSIONS", 3)
    versions = [version(n) for n in range(1, 5)]
    world = World(*versions)
    for one in versions[:3]:
        await world.find(one.version_id)
    before = world.registry.known
    world.registry.used({versions[0].version_id, "unknown"})
    await world.find(versions[3].version_id)
    assert world.registry.known.keys() == {versions[n].version_id for n in (0, 2, 3)}
    assert len(before) == 3  # somebody else may be reading it


@simulated
async def test_definitions_are_kept_up_to_a_size(monkeypatch):
    monkeypatch.setattr(schema_registry, "MOST_CHARACTERS", 250)
    big = [SchemaVersion(version(n).version_id, "s", "JSON", "x" * 100) for n in range(1, 4)]
    huge = SchemaVersion(version(9).version_id, "s", "JSON", "x" * 1000)
    world = World(*big, huge)
    for one in big:
        await world.find(one.version_id)
    assert world.registry.known.keys() == {one.version_id for one in big[1:]}
    await world.find(huge.version_id)
    assert world.registry.known.keys() == {huge.version_id}


@simulated
async def test_failures_of_records_are_told_once_an_hour(caplog):
    caplog.set_level(logging.WARNING)
    world = World()
    failures = {
        FailureKey(ORDER_ID, SchemaFailure.UNDECODABLE): FailureCount("17", "EOFError", 3),
        FailureKey(ORDER_ID, SchemaFailure.NOT_ZLIB): FailureCount("18", count=1),
    }
    for _ in range(3):
        world.registry.report("shardId-1", failures)
    assert [one.getMessage() for one in caplog.records] == [
        (
            f"schema version {ORDER_ID}: the payload does not fit the schema, so its records stay"
            " framed (EOFError; first seen in shardId-1 at 17)"
        ),
        (
            f"schema version {ORDER_ID}: the payload is not valid zlib, so its records stay framed"
            " (first seen in shardId-1 at 18)"
        ),
    ]
    await asyncio.sleep(3600)
    world.registry.report("shardId-1", failures)
    assert len(caplog.records) == 4


@simulated
async def test_what_was_told_is_remembered_in_bounded_memory(monkeypatch, caplog):
    monkeypatch.setattr(schema_registry, "_MOST_LOGGED", 2)
    world = World()
    for n in (1, 2, 3, 1):
        key = FailureKey(version(n).version_id, SchemaFailure.NOT_ZLIB)
        world.registry.report("shardId-1", {key: FailureCount("1")})
    assert len(caplog.records) == 4


@simulated
async def test_failures_that_concern_all_versions_are_told_for_all(caplog):
    world = World()
    for n in range(100):
        key = FailureKey(version(n).version_id, SchemaFailure.TOO_MANY_UNKNOWN)
        world.registry.report("shardId-1", {key: FailureCount("1")})
    assert len(caplog.records) == 1


@simulated
async def test_an_answer_without_members_is_no_crash():
    world = World()

    async def answer(**_request):
        return {"SchemaVersionId": ORDER_ID}

    world.glue.get_schema_version = answer
    assert await world.find() == KnownSchema(SchemaVersion(ORDER_ID, "", "", ""))
