"""What a calm fleet asks of DynamoDB in a minute, in calls and in units of capacity.

Whole workers run in virtual time over the simulation's DynamoDB, so no machine has to be quiet.
Beside them stands what Java 3.5.1 and 2.7 ask by their periods, which no load changes.
"""

import asyncio
import logging
import math
from collections import Counter
from dataclasses import dataclass, field, replace

from kcl_mld import app
from kcl_mld.config.config import ShardConfig
from tests.fakes.items import item_size
from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.node import TABLE
from tests.sim.plan import Plan

#: (leases, workers).
FLEETS = tuple((leases, workers) for leases in (1, 4, 300) for workers in (1, 4, 40))
GENERATIONS = ("3.x", "2.x")
#: Looks are frequent for a minute after the last change, and workers begin within 5 s.
SETTLE_S = 120
WINDOW_S = 180
WRITES = {"UpdateItem", "PutItem", "DeleteItem"}
#: What DynamoDB adds to an item.
ITEM_OVERHEAD = 100
UNIT_BYTES, WRITE_UNIT_BYTES = 4096, 1024


@dataclass
class Asked:
    """Calls by operation, and units of capacity."""

    calls: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    write_units: float = 0.0

    @property
    def reads(self):
        """Calls that read."""
        return sum(count for name, count in self.calls.items() if name not in WRITES)

    @property
    def writes(self):
        """Calls that write."""
        return sum(count for name, count in self.calls.items() if name in WRITES)

    def a_minute(self, window_s):
        """The same a minute."""
        share = 60 / window_s
        calls = Counter({name: count * share for name, count in self.calls.items()})
        return Asked(calls, self.read_units * share, self.write_units * share)


def _units(size, *, consistent=False):
    return max(1, math.ceil(size / UNIT_BYTES)) * (1.0 if consistent else 0.5)


class Meter:
    """Counts what a simulated table is asked for."""

    def __init__(self, model):
        self.asked = Asked()
        self._call, model.call = model.call, self._count

    def _count(self, operation, request):
        answer = self._call(operation, request)
        self.asked.calls[operation] += 1
        if operation in WRITES:
            self.asked.write_units += 1  # rows and items are below 1 KB; the owner does not change
        elif operation in ("Scan", "Query", "GetItem"):
            items = answer.get("Items", [answer["Item"]] if "Item" in answer else [])
            size = sum(item_size(one) + ITEM_OVERHEAD for one in items)
            consistent = bool(request.get("ConsistentRead"))
            self.asked.read_units += _units(size, consistent=consistent)
        return answer

    def size(self, model):
        """Bytes of the table."""
        return sum(item_size(one) + ITEM_OVERHEAD for one in model.items(TABLE))


def _build(config, ports, stream):
    """A worker whose audits are as rare as by default."""
    return app.build(replace(config, shards=ShardConfig()), ports, stream)


def ours(generation, leases, workers):
    """What real workers ask in virtual time, and the bytes of their table."""
    plan = Plan(
        seed=leases * 100 + workers,
        workers=workers,
        is_assigned=generation == "3.x",
        shards=leases,
        failover_s=10.0,
        put_every_s=1e9,
    )
    found = []

    async def main():
        fleet = Fleet(plan, _build)
        if plan.is_assigned:
            await fleet.create_3x_table()
        nodes = []
        for _one in range(workers):
            nodes.append(fleet.new_node())
            await asyncio.sleep(5 / workers)
        await asyncio.sleep(SETTLE_S)
        meter = Meter(fleet.dynamodb)
        await asyncio.sleep(WINDOW_S)
        found.extend((meter.asked.a_minute(WINDOW_S), meter.size(fleet.dynamodb)))
        for node in nodes:
            await node.kill()

    logger = logging.getLogger("mld")
    before, logger.propagate = logger.level, False
    logger.setLevel(logging.CRITICAL)
    try:
        run(main())
    finally:
        logger.setLevel(before)
        logger.propagate = True
    return found


def java(generation, leases, workers, table_bytes):
    """What Java asks by its periods, of a table of that size.

    3.5.1: renewals each 3.308 s; discovery by the index each 9.975 s, metrics each 30 s; of a
    follower two consistent looks at the lock each 30 s; of the leader looks each 20 s, audits each
    120 s, heartbeats each 30 s. 2.7: looks each 20.05 s, elections each 300 s, audits of one.
    """
    scan = _units(table_bytes)
    renewals = leases * 60 / 3.308
    if generation == "2.x":
        scans = workers * (60 / 20.05 + 60 / 300) + 0.5
        return Asked(Counter({"Scan": scans, "UpdateItem": renewals}), scans * scan, renewals)
    scans, looks = 3.5, 4.0 * (workers - 1)
    queries = workers * 60 / 9.975
    updates = renewals + 2 * workers + 2
    query = _units(100 * leases / workers)
    return Asked(
        Counter({"Scan": scans, "Query": queries, "GetItem": looks, "UpdateItem": updates}),
        scans * scan + queries * query + looks,
        updates,
    )


def calm_rows(_aws=None, _folder=None, quick=False):  # noqa: FBT002 - as the other parts
    """Yield a row a fleet."""
    for generation in GENERATIONS:
        for leases, workers in FLEETS[: 4 if quick else None]:
            found, size = ours(generation, leases, workers)
            theirs = java(generation, leases, workers, size)
            yield {
                "fleet": generation,
                "leases": leases,
                "workers": workers,
                "reads": f"{found.reads:.1f}",
                "Java's": f"{theirs.reads:.1f}",
                "read units": f"{found.read_units:.1f}",
                "Java's units": f"{theirs.read_units:.1f}",
                "writes": f"{found.writes:.1f}",
                "Java's writes": f"{theirs.writes:.1f}",
                "writes, share": f"{found.writes / theirs.writes:.0%}",
                "of which": ", ".join(
                    f"{name} {count:.1f}" for name, count in sorted(found.calls.items())
                ),
            }


if __name__ == "__main__":
    import sys

    from benchmarks.__main__ import show

    show("calm minute", calm_rows(quick="--quick" in sys.argv))
