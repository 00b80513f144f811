"""Lists whose pages never end, each with another place to go on."""

from __future__ import annotations

import itertools
import random

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.errors import UnknownOutcome
from kcl_mld.kernel import pages
from kcl_mld.leases.lease_scan import TableScanner
from tests.fakes.clock import LoopClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.fakes.shard_world import ShardWorld, simulated


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 5)


@simulated
async def test_a_list_of_shards_that_never_ends_is_given_up() -> None:
    world, tokens = ShardWorld(), itertools.count()

    async def another(**_: object) -> dict[str, object]:
        return {"Shards": [], "NextToken": str(next(tokens))}

    world.detector._kinesis.list_shards = another  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome, match=r"ListShards: EndlessPages: .* 5 pages"):
        await world.detector.list_shards()
    assert next(tokens) % 5 == 0


@simulated
async def test_a_scan_that_never_ends_is_given_up() -> None:
    tokens = itertools.count()

    class Endless(FakeDynamoDb):
        async def scan(self, **_: object) -> dict[str, object]:
            return {"Items": [], "LastEvaluatedKey": {"leaseKey": {"S": str(next(tokens))}}}

    clock = LoopClock()
    scanner = TableScanner(
        Endless(DynamoDbModel(clock.wall)), LeaseConfig(table_name="app"), clock, random.Random(0)
    )
    with pytest.raises(UnknownOutcome, match=r"Scan: EndlessPages: .* 5 pages"):
        await scanner.scan(0)
    assert next(tokens) == 5


def test_a_list_may_have_as_many_pages_as_that() -> None:
    numbers = pages.page_numbers("Scan")
    assert [next(numbers) for _ in range(5)] == [0, 1, 2, 3, 4]
