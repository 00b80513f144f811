"""Publishing metrics: Java's names, and nobody ever waits for CloudWatch."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kcl_mld.children.consuming.consumer_parts import ConsumerParts
from kcl_mld.config.config import MetricsConfig
from kcl_mld.errors import Denied, Unreachable
from kcl_mld.observe.cloudwatch_metrics import CALL_S, FLUSH_AT_KEYS, CloudWatchMetrics
from kcl_mld.signals.model.metrics import (
    CHILD_RESTARTED,
    CURRENT_LEASES,
    PROCESS_TASK,
    RECORDS_PROCESSED,
    Level,
    Metric,
)
from tests.fakes.clock import LoopClock
from tests.fakes.cloudwatch import FakeCloudWatch
from tests.sim.loop import run
from tests.unit.children.consumer_world import World

DATA = Path(__file__).parents[2] / "data" / "cloudwatch.jsonl"


def metrics_over(cloudwatch, **config):
    return CloudWatchMetrics(
        cloudwatch,
        MetricsConfig(**config),
        namespace="app",
        worker_id="w1",
        clock=LoopClock(),
    )


def named(name, level=Level.SUMMARY):
    return Metric("X", name, "", level=level)


def publishing(test, before=None, **config):
    """Run a scenario while the loop publishes."""

    async def main():
        cloudwatch = FakeCloudWatch(before=before)
        metrics = metrics_over(cloudwatch, **config)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(metrics.run())
            await test(metrics, cloudwatch)
            running.cancel()

    run(main())


def test_values_are_published_once_per_period_as_statistic_sets():
    async def test(metrics, cloudwatch):
        for value in (1, 2, 3):
            metrics.add(RECORDS_PROCESSED, value, shard_id="s1")
        await asyncio.sleep(9)
        assert cloudwatch.requests == []
        await asyncio.sleep(2)
        assert cloudwatch.requests == [
            {
                "Namespace": "app",
                "MetricData": [
                    {
                        "MetricName": "RecordsProcessed",
                        "Dimensions": [
                            {"Name": "Operation", "Value": "ProcessTask"},
                            {"Name": "ShardId", "Value": "s1"},
                        ],
                        "StatisticValues": {
                            "SampleCount": 3.0,
                            "Sum": 6.0,
                            "Minimum": 1.0,
                            "Maximum": 3.0,
                        },
                        "Unit": "Count",
                    }
                ],
            }
        ]
        await asyncio.sleep(100)
        assert len(cloudwatch.requests) == 1

    publishing(test)


@pytest.mark.parametrize(
    ("level", "names"),
    [("DETAILED", {"a", "b"}), ("detailed", {"a", "b"}), ("SUMMARY", {"b"}), ("NONE", set())],
)
def test_the_level_filters(level, names):
    async def test(metrics, cloudwatch):
        metrics.add(named("a", Level.DETAILED), 1)
        metrics.add(named("b"), 1)
        await metrics.close()
        assert {datum["MetricName"] for datum in cloudwatch.data} == names

    publishing(test, level=level)


def test_dimensions_that_are_not_enabled_merge_their_series():
    async def test(metrics, cloudwatch):
        metrics.add(PROCESS_TASK.time, 0.001, shard_id="s1")
        metrics.add(PROCESS_TASK.time, 0.001, shard_id="s2")
        await metrics.close()
        (datum,) = cloudwatch.data
        assert datum["StatisticValues"]["Sum"] == 2.0
        assert [one["Name"] for one in datum["Dimensions"]] == ["Operation"]

    publishing(test, enabled_dimensions=("StreamId",))


def test_worker_and_stream_are_dimensions():
    async def test(metrics, cloudwatch):
        metrics.add(CURRENT_LEASES, 1, stream_id="a:b:1")
        await metrics.close()
        assert cloudwatch.data[0]["Dimensions"] == [
            {"Name": "Operation", "Value": "RenewAllLeases"},
            {"Name": "StreamId", "Value": "a:b:1"},
            {"Name": "WorkerIdentifier", "Value": "w1"},
        ]

    publishing(test)


def test_what_the_kcl_does_not_have_stays_here():
    async def test(metrics, cloudwatch):
        metrics.add(CHILD_RESTARTED, 1, shard_id="s1")
        await metrics.close()
        assert cloudwatch.data == []

    publishing(test)


def test_many_metrics_are_flushed_before_their_time():
    async def test(metrics, cloudwatch):
        for number in range(FLUSH_AT_KEYS):
            metrics.add(named(f"m{number}"), 1)
        await asyncio.sleep(1)
        assert len(cloudwatch.data) == FLUSH_AT_KEYS

    publishing(test)


@pytest.mark.parametrize(
    "trouble",
    [Denied("PutMetricData", "AccessDenied"), Unreachable("PutMetricData", "dns"), OSError("x")],
)
def test_a_failed_request_loses_its_own_data_only(trouble):
    troubles = [trouble]

    async def before(*_):
        if troubles:
            raise troubles.pop()

    async def test(metrics, cloudwatch):
        metrics.add(named("lost"), 1)
        await asyncio.sleep(11)
        metrics.add(named("kept"), 1)
        await asyncio.sleep(11)
        assert [datum["MetricName"] for datum in cloudwatch.data] == ["kept"]

    publishing(test, before)


def test_a_hanging_cloudwatch_is_given_up_after_a_while():
    async def before(*_):
        await asyncio.get_running_loop().create_future()

    async def test(metrics, cloudwatch):
        metrics.add(named("lost"), 1)
        await asyncio.sleep(10 + CALL_S + 1)
        metrics.add(named("more"), 1)
        began = asyncio.get_running_loop().time()
        await metrics.close(timeout_s=2.0)
        assert asyncio.get_running_loop().time() - began <= 2.1
        assert cloudwatch.data == []

    publishing(test, before)


def test_losses_are_warned_about_but_not_all_the_time(caplog):
    caplog.set_level(logging.WARNING)

    async def test(metrics, _cloudwatch):
        for number in range(50):
            metrics.add(named(f"m{number}"), 1)
        await asyncio.sleep(70)
        metrics.add(named("m0"), 1)
        metrics.add(named("m1"), 1)
        metrics.add(named("m2"), 1)

    publishing(test, max_queue=1)
    assert len(caplog.records) == 2


def test_after_the_close_nothing_is_taken():
    async def test(metrics, cloudwatch):
        metrics.add(named("before"), 1)
        await metrics.close()
        metrics.add(named("after"), 1)
        await metrics.close()
        assert [datum["MetricName"] for datum in cloudwatch.data] == ["before"]

    publishing(test)


def test_the_close_sends_everything_in_bounded_requests():
    async def test(metrics, cloudwatch):
        for number in range(2500):
            metrics.add(named(f"metric number {number}"), 1)
        await metrics.close()
        assert len(cloudwatch.data) == 2500
        assert all(len(request["MetricData"]) <= 1000 for request in cloudwatch.requests)
        assert all(len(json.dumps(request)) < 1_000_000 for request in cloudwatch.requests)

    publishing(test)


def test_a_shard_publishes_what_the_java_daemon_publishes():
    recorded = {
        (row["operation"], row["name"], tuple(row["dimensions"]), row["unit"])
        for row in map(json.loads, DATA.read_text().splitlines())
    }
    ours = {"ApplicationTracker", "InitializeTask", "ProcessTask", "ShutdownTask"}

    async def main():
        world = World()
        cloudwatch = FakeCloudWatch()
        metrics = metrics_over(cloudwatch)
        runtime = replace(world.runtime, metrics=metrics)
        world.publish_to(runtime)
        world.parts = ConsumerParts(
            config=world.config,
            runtime=runtime,
            streams=world.streams,
            renewer=world.renewer,
            shard_end=world.parts.shard_end,
            cleanup=world.cleanup,
            launcher=world.children,
            pid=4711,
            notes=world.notes,
            schemas=None,
            letters=None,
            service_time=lambda: None,
        )
        await world.open()
        world.put(b"one")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        await metrics.close()
        return {
            (
                next(one["Value"] for one in datum["Dimensions"] if one["Name"] == "Operation"),
                datum["MetricName"],
                tuple(one["Name"] for one in datum["Dimensions"]),
                datum["Unit"],
            )
            for datum in cloudwatch.data
        }

    published = run(main())
    assert published == {row for row in recorded if row[0] in ours}
