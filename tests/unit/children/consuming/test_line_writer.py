"""Lines that are split among children, and what they hold of the byte budget."""

from __future__ import annotations

import base64
import json

import pytest

from kcl_mld.children.consuming import consumer_parts
from kcl_mld.children.consuming.consumer_parts import LineWriter
from kcl_mld.children.rules import delivery as delivery_module
from kcl_mld.children.rules.routing import Route
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.retrieval.byte_budget import ByteBudget
from kcl_mld.retrieval.model.wire import read_batch
from kcl_mld.retrieval.records_publisher import FetchedBatch
from tests.fakes.aggregate import aggregate
from tests.fakes.budget import reserve
from tests.fakes.clock import FakeClock
from tests.sim.loop import run

ROUTE = Route((TRIM_HORIZON, TRIM_HORIZON))
#: Keys of the first child and of the second.
ZERO, ONE = "e", "a"


class Inline:
    """Works on the spot, and counts."""

    def __init__(self):
        self.runs = 0

    async def run(self, work, *args, **kwargs):
        self.runs += 1
        return work(*args, **kwargs)


async def fetched(budget, *payloads):
    records = [
        {
            "SequenceNumber": str(number),
            "PartitionKey": key,
            "Data": base64.b64encode(payload).decode(),
            "ApproximateArrivalTimestamp": 1.0,
        }
        for number, (key, payload) in enumerate(payloads)
    ]
    body = {"Records": records, "NextShardIterator": "n", "MillisBehindLatest": 0}
    batch = read_batch(json.dumps(body).encode())
    return FetchedBatch(batch, await reserve(budget, batch.size_bytes), 0.0)


@pytest.mark.parametrize(("inline_bytes", "runs"), [(2**20, 0), (0, 1)])
def test_the_parts_of_a_line_are_what_is_reserved(monkeypatch, inline_bytes, runs):
    monkeypatch.setattr(consumer_parts, "INLINE_BYTES", inline_bytes)

    async def main():
        budget, offload = ByteBudget(2**20, FakeClock()), Inline()
        writer = LineWriter(offload, even_if_empty=False)
        one = await fetched(budget, (ZERO, b"x"), (ONE, b"y"), (ZERO, b"z"))
        delivery = await writer.write(one, TRIM_HORIZON, None, ROUTE)
        assert [(part.child, part.records) for part in delivery.parts] == [(0, 2), (1, 1)]
        assert delivery.line is None
        assert budget.used_bytes == sum(len(part.line) for part in delivery.parts)
        assert offload.runs == runs

    run(main())


def test_the_rest_has_the_same_route_and_is_reserved(monkeypatch):
    monkeypatch.setattr(delivery_module, "ENOUGH_BYTES", 1)

    async def main():
        budget = ByteBudget(2**20, FakeClock())
        writer = LineWriter(Inline(), even_if_empty=False)
        packed = aggregate((ZERO, b"x"), (ONE, b"y"))
        one = await fetched(budget, ("k", packed), ("k", packed))
        delivery = await writer.write(one, TRIM_HORIZON, None, ROUTE)
        first = sum(len(part.line) for part in delivery.parts)
        assert budget.used_bytes == first + delivery.rest.size_bytes
        rest = await writer.write_rest(one, delivery.rest)
        assert [(part.child, part.largest) for part in rest.parts] == [
            (0, At("1", 0)),
            (1, At("1", 1)),
        ]
        assert budget.used_bytes == sum(len(part.line) for part in rest.parts)

    run(main())
