"""What a worker tells of itself."""

import asyncio

import pytest

from kcl_mld.config.fleet import FleetConfig
from kcl_mld.errors import ConfigError, Denied, Throttled
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, WorstLag, metrics_to_item
from kcl_mld.fleet.worker_metrics import (
    RETIRE_LIMIT_S,
    WorkerMetricsReader,
)
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.lease_world import TABLE, on_table_with
from tests.fakes.reporting import reporter_with


class Measuring:
    """Measures what it is told, the last value again and again."""

    name = "a container"
    place = "box"

    def __init__(self, *values):
        self.values = list(values)

    async def sample(self):
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


def own_texts(world):
    """What the worker says of itself in every item: also that it honors pauses."""
    item = world.row("me")
    assert item["properties"]["M"].pop("kclMldHonorsPause") == {"S": item["lut"]["N"]}
    return item["properties"]["M"]


def reporter(world, source=None, conditions=None, **config):
    async def find_load():
        return source

    items = world.fleet_items("me")
    runtime = world.runtime("me")
    config = FleetConfig(**config)
    others = WorkerMetricsReader(items, world.store("me"), world.clock)
    return reporter_with(
        items,
        config,
        "me",
        runtime,
        find_load=find_load,
        others=others,
        conditions=conditions or Conditions(),
    )


on_table = on_table_with()


def running(test, measure=None, **config):
    async def on(world):
        task = asyncio.create_task(reporter(world, measure, **config).run())
        await test(world)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.row("me") == {}

    on_table(on)


def test_a_worker_can_be_given_leases_once_its_first_item_is_there():
    async def on(world):
        told = []
        items, config = world.fleet_items("me"), FleetConfig(report_s=10.0)
        one = reporter_with(
            items,
            config,
            "me",
            world.runtime("me"),
            on_first=lambda: told.append(world.row("me") != {}),
        )
        task = asyncio.create_task(one.run())
        await asyncio.sleep(25)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert told == [True]

    on_table(on)


def test_a_worker_says_how_many_leases_it_can_renew():
    async def on(world):
        items, runtime = world.fleet_items("me"), world.runtime("me")
        one = reporter_with(items, FleetConfig(), "me", runtime, find_most=lambda: 330)
        await one.report_once()
        assert own_texts(world) == {"kclMldMostRenewable": {"S": "330"}}

    on_table(on)


def test_a_worker_says_which_of_its_leases_is_furthest_behind():
    async def on(world):
        items, runtime = world.fleet_items("me"), world.runtime("me")
        lags = iter([None, WorstLag("shard-7", 31)])
        find = lambda: next(lags)  # noqa: E731
        one = reporter_with(items, FleetConfig(), "me", runtime, find_worst_lag=find)
        await one.report_once()
        assert own_texts(world) == {}
        await one.report_once()
        lut = world.row("me")["lut"]["N"]
        assert own_texts(world) == {"kclMldWorstLag": {"S": f"{lut} 31 shard-7"}}

    on_table(on)


def test_the_first_item_is_written_at_once_and_says_that_nothing_was_measured():
    async def test(world):
        await asyncio.sleep(0.1)
        item = world.row("me")
        now = {"N": str(int(world.clock.wall()))}
        assert item == {
            "leaseKey": {"S": "me"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "lut": now,
            "slu": now,
            "sup": {"N": "1"},
            "sts": {"M": {}},
            "opr": {"M": {}},
            "properties": {"M": {"kclMldHonorsPause": {"S": now["N"]}}},
        }
        await asyncio.sleep(30)
        assert int(world.row("me")["lut"]["N"]) == int(now["N"]) + 30

    running(test, Measuring(5.0), measures=False)


@pytest.mark.parametrize(("ahead", "later"), [(-300.0, 300), (300.0, 0), (None, 0)])
def test_the_time_of_an_item_is_the_later_of_wall_clock_and_service_time(ahead, later):
    """To a Java leader an item that is a minute old is that of a dead worker."""

    async def on(world):
        world.clock.ahead = ahead
        await reporter(world).report_once()
        item = world.row("me")
        lut = int(world.clock.wall()) + later
        assert item["lut"] == item["slu"] == {"N": str(lut)}
        said = {"S": f"{ahead or 0:.0f} {lut}"}
        found = item["properties"]["M"].get("kclMldClockAheadSeconds")
        assert found == (None if ahead is None else said)

    on_table(on)


def test_a_worker_says_the_group_that_its_file_names():
    async def test(world):
        await asyncio.sleep(0.1)
        assert own_texts(world) == {"kclMldWorkerGroup": {"S": "blue"}}

    running(test, group="blue")


def test_each_report_adds_the_mean_of_what_was_measured_since_the_last_one():
    async def test(world):
        await asyncio.sleep(30.5)
        (mean,) = world.row("me")["sts"]["M"]["C"]["L"]
        assert mean == {"N": "20"}
        assert world.row("me")["opr"] == {"M": {"C": {"L": [{"N": "100"}]}}}
        assert own_texts(world) == {"kclMldMeasuredPlace": {"S": "box"}}
        await asyncio.sleep(90)
        assert [one["N"] for one in world.row("me")["sts"]["M"]["C"]["L"]] == ["20", "20", "20"]

    running(test, Measuring(10.0, 30.0, 101.0, -1.0, 20.0), samples=3)


def test_what_cannot_be_measured_any_more_is_minus_one():
    async def test(world):
        await asyncio.sleep(61)
        assert [one["N"] for one in world.row("me")["sts"]["M"]["C"]["L"]] == ["7.333333", "-1"]

    running(test, Measuring(*[7.0] * 20, *[8.0] * 10, None))


def report_as_java(world, worker="java"):
    """A worker without figures."""
    world.put_item(metrics_to_item(WorkerMetrics(worker, int(world.clock.wall())), "leaseKey"))


def test_beside_a_worker_without_figures_none_are_told_and_it_says_why(caplog):
    async def test(world):
        for _ in range(4):
            report_as_java(world)
            await asyncio.sleep(30)
            assert world.row("me")["sts"] == world.row("me")["opr"] == {"M": {}}
            assert own_texts(world) == {"kclMldMeasuredPlace": {"S": "box"}}
        await asyncio.sleep(330)
        told = [one["N"] for one in world.row("me")["sts"]["M"]["C"]["L"]]
        assert told == ["7"] * 10  # it went on to measure

    with caplog.at_level("INFO", "mld.fleet"):
        running(test, Measuring(7.0))
    said = [line for line in caplog.messages if "CPU" in line]
    assert said[1].startswith("Worker java reports no CPU, so this worker reports none either")
    assert said[2] == "All other workers report their CPU, so this worker reports its own"
    assert len(said) == 3


def test_figures_are_kept_back_when_a_worker_without_any_joins():
    async def test(world):
        await asyncio.sleep(31)
        assert "C" in world.row("me")["sts"]["M"]
        for _ in range(2):
            report_as_java(world)
            await asyncio.sleep(30)
        assert world.row("me")["sts"] == {"M": {}}

    running(test, Measuring(7.0))


def test_a_look_at_the_others_that_fails_changes_nothing():
    async def test(world):
        await asyncio.sleep(31)
        world.fault("refuse", "Scan", times=1000)
        report_as_java(world)
        await asyncio.sleep(90)
        assert "C" in world.row("me")["sts"]["M"]

    running(test, Measuring(7.0))


def test_a_worker_that_measures_nothing_does_not_look_at_the_others():
    async def test(world):
        await asyncio.sleep(95)
        assert not [one for one in world.requests if one[1] == "Scan"]

    running(test)


def test_a_report_that_fails_is_tried_again_soon(caplog):
    async def test(world):
        world.fault("refuse", "UpdateItem", times=3)
        await asyncio.sleep(6)
        assert world.row("me") != {}

    running(test)
    assert sum("it gets no leases" in line for line in caplog.messages) == 1


def test_reports_that_fail_for_long_are_told_each_minute_and_on_readyz(caplog):
    """A worker without metrics gets no leases: nobody saw why."""

    async def test(world):
        conditions = Conditions()
        task = asyncio.create_task(reporter(world, conditions=conditions).run())
        await asyncio.sleep(1)
        error = Denied("UpdateItem", "AccessDeniedException", "no")
        world.fault("refuse", "UpdateItem", times=10**6, error=error)
        await asyncio.sleep(45)
        assert conditions.current() == ()
        await asyncio.sleep(120)
        (condition,) = conditions.current()
        assert condition.reason is Reason.METRICS_FAIL
        assert f"metrics into table {TABLE}; without them it gets no leases" in condition.message
        assert "Allow dynamodb:UpdateItem" in condition.message
        world.faults.clear()
        await asyncio.sleep(6)
        assert conditions.current() == ()
        world.fault("refuse", "UpdateItem", times=10**6, error=error)
        await asyncio.sleep(80)
        assert conditions.current() != ()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert conditions.current() == ()

    on_table(test)
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert sum("it gets no leases" in one.getMessage() for one in warnings) == 4


def test_an_item_that_cannot_be_taken_away_grows_old(caplog):
    async def test(world):
        task = asyncio.create_task(reporter(world).run())
        await asyncio.sleep(1)
        world.fault("slow", "DeleteItem", seconds=60)
        began = world.clock.monotonic()
        task.cancel()
        with caplog.at_level("WARNING", "mld.fleet"):
            await asyncio.gather(task, return_exceptions=True)
        assert world.clock.monotonic() - began < RETIRE_LIMIT_S + 1
        assert "they will expire: no answer within" in caplog.text
        idle = asyncio.create_task(reporter(world).run())
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)

    on_table(test)


def test_an_item_is_deleted_again_where_the_table_refuses(caplog):
    async def test(world):
        task = asyncio.create_task(reporter(world).run())
        await asyncio.sleep(1)
        world.fault("refuse", "DeleteItem", times=4, error=Throttled("DeleteItem", "x"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.row("me") == {}

    on_table(test)
    assert "they will expire" not in caplog.text


def test_the_log_says_why_an_item_could_not_be_deleted(caplog):
    async def test(world):
        task = asyncio.create_task(reporter(world).run())
        await asyncio.sleep(1)
        world.fault("refuse", "DeleteItem", times=10**6, error=Denied("DeleteItem", "AccessDenied"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    on_table(test)
    assert "they will expire: DeleteItem: AccessDenied" in caplog.text


@pytest.mark.parametrize("seconds", [2.0, 60.0])
def test_a_report_under_way_is_not_written_after_the_deletion(seconds):
    async def test(world):
        task = asyncio.create_task(reporter(world).run())
        await asyncio.sleep(29.5)
        world.fault("slow", "UpdateItem", seconds=seconds)
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        is_answered = seconds < RETIRE_LIMIT_S
        assert (world.row("me") == {}) == is_answered
        before = world.row("me")
        await asyncio.sleep(120)
        assert world.row("me") == before

    on_table(test)


def test_a_worker_whose_id_is_the_key_of_something_else_ends():
    async def test(world):
        world.put_item({"leaseKey": {"S": "me"}, "entityType": {"S": "STREAM"}})
        with pytest.raises(ConfigError, match=f"another item in table {TABLE}"):
            await reporter(world).run()

    on_table(test)
