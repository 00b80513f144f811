"""The latest stream of a table, by the table's ARN."""

from __future__ import annotations

import random

import pytest

from kcl_mld.config.stream_list import parse_streams
from kcl_mld.errors import MissingStreams
from kcl_mld.streams.stream_names import LatestOfTables
from tests.fakes.shard_world import simulated

TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"
OLD, NEW = f"{TABLE}/stream/2026-11-28T07:09:24.310", f"{TABLE}/stream/2026-11-29T07:09:24.310"
CLICKS = "arn:aws:dynamodb:us-east-1:123456789012:table/Clicks/stream/2026-11-28T07:09:26.223"


class Kinesis:
    def __init__(self, *arns):
        self.arns = arns
        self.asked = []

    async def list_streams(self, **request):
        self.asked.append(request)
        return {"StreamSummaries": [{"StreamARN": one} for one in self.arns]}


def names_of(kinesis, *items):
    listed, problems = parse_streams(", ".join(items))
    assert not problems
    return LatestOfTables(kinesis, listed, random.Random(1))


async def read(names):
    return [str(one) for one in await names.names()]


@simulated
async def test_the_newest_one_is_read_and_looked_up_once():
    kinesis = Kinesis(NEW, OLD)
    names = names_of(kinesis, CLICKS, TABLE)
    assert await read(names) == await read(names) == [CLICKS, NEW]
    assert kinesis.asked == [{"TableName": "Orders"}]
    (_, orders) = await names.names()
    assert (orders.account, orders.epoch, orders.is_latest) == ("123456789012", 1, False)


@simulated
async def test_a_stream_that_is_named_twice_is_read_once():
    assert await read(names_of(Kinesis(OLD, NEW), NEW, TABLE)) == [NEW]


@pytest.mark.parametrize(
    "listed", [[], [OLD.replace("123456789012", "210987654321"), OLD.replace("us-", "eu-")]]
)
def test_a_table_without_a_stream_is_a_missing_one_until_it_has_one(listed):
    @simulated
    async def main():
        kinesis = Kinesis(*listed)
        names = names_of(kinesis, TABLE)
        with pytest.raises(MissingStreams, match="the table has no stream") as raised:
            await names.names()
        assert raised.value.names == (f"{TABLE}/stream/*",)
        kinesis.arns = (OLD,)
        assert await read(names) == [OLD]

    main()
