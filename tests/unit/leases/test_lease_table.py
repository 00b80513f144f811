"""Creating the lease table and waiting for it."""

import asyncio

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.errors import (
    Denied,
    InUse,
    LimitExceeded,
    ResourceMissing,
    ServiceError,
    Throttled,
    UnknownOutcome,
    UnservableFleet,
)
from tests.fakes.lease_world import TABLE, World, create_table
from tests.sim.loop import run


def on_nothing(test, **config):
    async def main():
        world = World(config=LeaseConfig(table_name=TABLE, **config))
        await test(world, world.store())

    run(main())


def operations(world, name):
    return [request for _, operation, request in world.requests if operation == name]


@pytest.mark.parametrize("protection", [True, False])
def test_an_absent_table_is_created_as_java_does(protection):
    async def test(world, store):
        assert await store.table.ensure()
        (request,) = operations(world, "CreateTable")
        assert request == {
            "TableName": TABLE,
            "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
            "DeletionProtectionEnabled": protection,
        }
        assert not await store.table.ensure()
        assert len(operations(world, "CreateTable")) == 1

    on_nothing(test, deletion_protection=protection)


def test_the_table_is_waited_for_with_short_pauses_at_first():
    async def test(world, store):
        world.model.settings.create_s = 0.7
        await store.table.ensure()
        assert 0.7 <= world.clock.monotonic() < 1.2
        await store.scan()

    on_nothing(test)


def test_a_table_that_never_becomes_active_is_given_up_after_ten_minutes():
    async def test(world, store):
        world.model.settings.create_s = 10_000
        with pytest.raises(ResourceMissing, match="after 600 s; its status: CREATING"):
            await store.table.ensure()
        assert 600 <= world.clock.monotonic() < 612

    on_nothing(test)


def test_a_table_that_another_worker_creates_at_the_same_time_is_used():
    async def test(world, store):
        world.fault("refuse", "CreateTable", error=InUse("CreateTable", "ResourceInUseException"))
        original = store.table._dynamodb.before

        async def other_is_faster(service, operation, request):
            if operation == "CreateTable":
                world.create_table()
            await original(service, operation, request)

        store.table._dynamodb.before = other_is_faster
        assert not await store.table.ensure()

    on_nothing(test)


def test_a_lost_answer_to_the_creation_is_looked_up():
    async def test(world, store):
        world.fault("lose answer", "CreateTable")
        assert await store.table.ensure()

    on_nothing(test)


def test_a_creation_that_did_not_happen_is_an_error():
    async def test(world, store):
        world.fault("lose request", "CreateTable")
        with pytest.raises(UnknownOutcome):
            await store.table.ensure()

    on_nothing(test)


def test_a_table_with_another_key_is_refused():
    async def test(world, store):
        create_table(world.model, TABLE, "id")
        with pytest.raises(UnservableFleet, match="isn't a lease table"):
            await store.table.ensure()

    on_nothing(test)


def test_point_in_time_recovery_is_switched_on_after_the_wait_and_at_every_start():
    async def test(world, store):
        world.model.settings.create_s = 3
        await store.table.ensure()
        await store.table.ensure()
        requests = operations(world, "UpdateContinuousBackups")
        assert [request["PointInTimeRecoverySpecification"] for request in requests] == [
            {"PointInTimeRecoveryEnabled": True}
        ] * 2

    on_nothing(test, point_in_time_recovery=True)


@pytest.mark.parametrize(("failures", "warned"), [(4, False), (5, True)])
def test_recovery_that_cannot_be_switched_on_does_not_stop_the_worker(caplog, failures, warned):
    async def test(world, store):
        error = Throttled("UpdateContinuousBackups", "ContinuousBackupsUnavailableException")
        world.fault("refuse", "UpdateContinuousBackups", times=failures, error=error)
        await store.table.ensure()
        assert ("Could not enable point-in-time recovery of table app" in caplog.text) is warned

    on_nothing(test, point_in_time_recovery=True)


def test_the_index_is_created_once_as_java_does_and_nobody_waits_for_it():
    async def test(world, store):
        await store.table.ensure()
        world.model.settings.create_s = 400
        assert not await store.table.ensure_index()
        assert not await store.table.ensure_index()
        assert world.clock.monotonic() < 1
        (request,) = operations(world, "UpdateTable")
        assert request == {
            "TableName": TABLE,
            "AttributeDefinitions": [
                {"AttributeName": "leaseOwner", "AttributeType": "S"},
                {"AttributeName": "leaseKey", "AttributeType": "S"},
            ],
            "GlobalSecondaryIndexUpdates": [
                {
                    "Create": {
                        "IndexName": "LeaseOwnerToLeaseKeyIndex",
                        "KeySchema": [
                            {"AttributeName": "leaseOwner", "KeyType": "HASH"},
                            {"AttributeName": "leaseKey", "KeyType": "RANGE"},
                        ],
                        "Projection": {"ProjectionType": "KEYS_ONLY"},
                    }
                }
            ],
        }
        await asyncio.sleep(401)
        assert await store.table.ensure_index()

    on_nothing(test)


@pytest.mark.parametrize(
    "error",
    [
        InUse("UpdateTable", "ResourceInUseException"),
        LimitExceeded("UpdateTable", "LimitExceededException"),
        UnknownOutcome("UpdateTable", "ReadTimeout"),
    ],
)
def test_an_index_that_cannot_be_created_now_is_asked_for_again(error):
    async def test(world, store):
        await store.table.ensure()
        world.fault("refuse", "UpdateTable", error=error)
        assert not await store.table.ensure_index()
        assert not await store.table.ensure_index()
        assert await store.table.ensure_index()

    on_nothing(test)


def test_an_index_that_another_worker_created_meanwhile_is_no_error():
    async def test(world, store):
        await store.table.ensure()

        world.fault("slow", "UpdateTable", seconds=1.0, worker="me")

        async def other_was_faster():
            other = world.store("other")
            await asyncio.sleep(0.5)
            assert not await other.table.ensure_index()

        assert (await asyncio.gather(store.table.ensure_index(), other_was_faster()))[0] is False
        assert await store.table.ensure_index()
        assert len(operations(world, "UpdateTable")) == 2

    on_nothing(test)


@pytest.mark.parametrize(
    "error",
    [
        ServiceError("UpdateTable", "ValidationException", "something else is wrong"),
        Denied("UpdateTable", "AccessDeniedException"),
    ],
)
def test_a_creation_that_is_refused_is_told(error):
    async def test(world, store):
        await store.table.ensure()
        world.fault("refuse", "UpdateTable", error=error)
        with pytest.raises(type(error)):
            await store.table.ensure_index()

    on_nothing(test)
