"""Lateness of renewals of 300 leases while every Kinesis call of the process stalls 12 s.

A table with a fast Kinesis would prove nothing: the point is that a hanging Kinesis does not hold
up the lease table. The rate of DynamoDB here is that of the embedded one, about 250 writes a
second, which a round of 300 keeps busy for more than a second.
"""

import asyncio
import contextlib
import itertools
import os
import random

from kcl_mld.aws.clients import (
    CONTROL_THREADS,
    RETRIEVAL_THREADS,
    ClientSettings,
    make_client,
)
from kcl_mld.aws.credentials import make_session
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.kinesis import BotocoreKinesis
from kcl_mld.config.config import LeaseConfig
from kcl_mld.config.credentials import CredentialChain, CredentialSource, CredentialStep
from kcl_mld.errors import AwsError
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import RandomIds, SystemClock
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.leases.lease_renewer import LeaseRenewer
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.rules.renewal import calm_periods_s
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.ports import AllMetrics
from kcl_mld.signals.runtime import Runtime
from kcl_mld.streams.model.shard import HashRange

LEASES = 300
STALL_S = 12.0
WORKER = "bench-worker"


class TimedDynamoDb:
    """A DynamoDb port that remembers when each lease's renewal was done."""

    def __init__(self, inner, clock):
        self._inner = inner
        self._clock = clock
        self.done = {}

    def __getattr__(self, operation):
        return getattr(self._inner, operation)

    async def update_item(self, **request):
        answer = await self._inner.update_item(**request)
        self.done.setdefault(request["Key"]["leaseKey"]["S"], []).append(self._clock.monotonic())
        return answer


def client(aws, service, url, threads):
    """A client of the embedded AWS with the daemon's own settings."""
    chain = CredentialChain(steps=(CredentialStep(CredentialSource.ENVIRONMENT),))
    return make_client(
        make_session(chain, aws.region),
        ClientSettings(
            service=service,
            region=aws.region,
            endpoint=url,
            threads=threads,
            connect_timeout_s=1,
            read_timeout_s=30,
        ),
    )


async def _has_not_left(_worker_id):
    return False


async def hang(kinesis):
    """Keep one thread of the retrieval pool in a stalled call."""
    while True:
        with contextlib.suppress(AwsError):
            await kinesis.get_records(ShardIterator="none", Limit=1)


async def measure(aws, rounds):
    """Sorted lateness in seconds of every renewal after the first round."""
    clock, config = SystemClock(), LeaseConfig(table_name="renewals")
    interval_s = max(calm_periods_s(config))
    pools = [
        CallPool("leases", 24),
        CallPool("control", CONTROL_THREADS),
        CallPool("retrieval", RETRIEVAL_THREADS),
    ]
    dynamodb = TimedDynamoDb(
        BotocoreDynamoDb(client(aws, "dynamodb", aws.moto_url, 24), pools[0]), clock
    )
    kinesis = BotocoreKinesis(
        client(aws, "kinesis", aws.kinesis_url, RETRIEVAL_THREADS), pools[1], pools[2]
    )
    store = LeaseStore(dynamodb, config, clock, random.Random(0))
    await store.table.ensure()
    for number in range(LEASES):
        key = f"shardId-{number:012d}"
        await store.create_if_absent(
            Lease(
                lease_key=key,
                shard_id=key,
                lease_owner=WORKER,
                checkpoint=TRIM_HORIZON,
                hash_range=HashRange(number, number + 1),
            )
        )
    renewer = LeaseRenewer(
        store,
        config,
        WORKER,
        Runtime(
            clock=clock,
            rng=random.Random(0),
            ids=RandomIds(),
            metrics=AllMetrics(()),
            offload=pools[1],
        ),
        FailingCondition(Reason.LEASE_WRITES_FAIL, Conditions(), clock),
        _has_not_left,
    )
    await renewer.adopt_own()
    dynamodb.done.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(hang(kinesis)) for _ in range(RETRIEVAL_THREADS)]
        tasks.append(group.create_task(renewer.heartbeat.run()))
        await asyncio.sleep(interval_s * rounds)
        for task in tasks:
            task.cancel()
    held = len(renewer.held())
    for pool in pools:
        pool.close()
    late = [
        max(0.0, after - before - interval_s)
        for times in dynamodb.done.values()
        for before, after in itertools.pairwise(times)
    ]
    return sorted(late), held, config


def renewal_rows(aws, _folder, quick):
    """One row; the bound is a third of the failover time."""
    aws.control(faults=[{"service": "kinesis", "delay_s": STALL_S}])

    os.environ.update(aws.environment)
    late, held, config = asyncio.run(measure(aws, 4 if quick else 10))
    aws.control(faults=[])
    p99 = late[int(len(late) * 0.99)]
    yield {
        "case": f"{LEASES} leases, Kinesis stalls {STALL_S:.0f} s",
        "renewals": len(late),
        "still held": held,
        "p50 late s": f"{late[len(late) // 2]:.2f}",
        "p99 late s": f"{p99:.2f}",
        "bound s": f"{config.failover_s / 3:.2f}",
    }
