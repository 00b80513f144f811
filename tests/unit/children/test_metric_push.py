"""Metrics go out at their interval, and a failure ends nothing."""

from __future__ import annotations

import asyncio
import logging

from kcl_mld.observe.metric_store import MetricPush
from kcl_mld.signals.ports import MetricSender
from tests.sim.loop import run


def test_everything_is_sent_at_the_interval_and_at_the_end():
    sent = []

    async def main():
        async def send(readings):
            sent.append((asyncio.get_running_loop().time(), readings))

        began = asyncio.get_running_loop().time()
        push = MetricPush(MetricSender(send, 10.0))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(push.run(lambda: [len(sent)]))
            await asyncio.sleep(25)
            running.cancel()
        await push.close(lambda: [len(sent)], 2.0)
        assert [(round(at - began), what) for at, what in sent] == [(10, [0]), (20, [1]), (25, [2])]

    run(main())


def test_what_fails_is_logged_and_tried_again(caplog):
    tries = []

    async def main():
        async def send(readings):
            tries.append(readings)
            raise OSError("no network")

        push = MetricPush(MetricSender(send, 10.0))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(push.run(list))
            await asyncio.sleep(25)
            running.cancel()

    run(main())
    assert len(tries) == 2
    assert len([one for one in caplog.records if "unexpectedly" in one.message]) == 2


def test_the_end_does_not_wait_for_ever(caplog):
    caplog.set_level(logging.WARNING)

    async def main():
        async def send(_readings):
            await asyncio.get_running_loop().create_future()

        began = asyncio.get_running_loop().time()
        await MetricPush(MetricSender(send, 10.0)).close(list, 2.0)
        assert asyncio.get_running_loop().time() - began < 2.1

    run(main())
    assert "The last metrics were not sent" in caplog.text
