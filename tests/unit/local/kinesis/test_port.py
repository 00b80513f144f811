"""The model behind the port."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mld.errors import (
    Denied,
    InvalidArgument,
    NotFound,
    ServiceError,
    Throttled,
    UnknownOutcome,
)
from mld.local.kinesis import KinesisFault, KinesisModel
from mld.local.kinesis.port import FakeKinesis, raise_as_port_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.ports.aws import Kinesis

NOW_S = 1_700_000_000.0


def model_with_stream() -> KinesisModel:
    model = KinesisModel(lambda: NOW_S, random.Random(0))
    model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
    model.call("PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": "YQ=="})
    return model


def test_the_fake_is_the_port_and_reads() -> None:
    async def run() -> bytes:
        kinesis: Kinesis = FakeKinesis(model_with_stream())
        summary = (await kinesis.describe_stream_summary(StreamName="s"))[
            "StreamDescriptionSummary"
        ]
        assert summary["StreamCreationTimestamp"] == datetime.fromtimestamp(NOW_S, UTC)
        chosen = {"Type": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(NOW_S, UTC)}
        (shard,) = (await kinesis.list_shards(StreamName="s", ShardFilter=chosen))["Shards"]
        iterator = await kinesis.get_shard_iterator(
            StreamName="s",
            ShardId=shard["ShardId"],
            ShardIteratorType="AT_TIMESTAMP",
            Timestamp=datetime.fromtimestamp(NOW_S, UTC),
        )
        return await kinesis.get_records(ShardIterator=iterator["ShardIterator"])

    assert b'"Data":"YQ=="' in asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceNotFoundException", NotFound),
        ("ProvisionedThroughputExceededException", Throttled),
        ("InvalidArgumentException", InvalidArgument),
        ("AccessDeniedException", Denied),
        ("InternalFailure", ServiceError),
    ],
)
def test_errors_are_those_of_the_port(code: str, kind: type[ServiceError]) -> None:
    with pytest.raises(ServiceError) as caught:
        raise_as_port_error("ListShards", KinesisFault(code, "why"))
    assert type(caught.value) is kind
    assert (caught.value.operation, caught.value.code) == ("ListShards", code)


def test_hooks_run_before_and_after_the_effect() -> None:
    model = model_with_stream()
    seen: list[tuple[str, str, int]] = []
    calls: list[str] = []
    model.before = lambda operation, _request: calls.append(operation)

    async def note(service: str, operation: str, _request: Mapping[str, Any]) -> None:
        seen.append((service, operation, len(calls)))

    async def run() -> None:
        kinesis = FakeKinesis(model, before=note, after=note)
        await kinesis.list_shards(StreamName="s")
        with pytest.raises(InvalidArgument):
            await kinesis.get_records(ShardIterator="junk")
        with pytest.raises(NotFound):
            await kinesis.list_shards(StreamName="nowhere")

    asyncio.run(run())
    assert seen == [
        ("kinesis", "ListShards", 0),
        ("kinesis", "ListShards", 1),
        ("kinesis", "GetRecords", 1),
        ("kinesis", "GetRecords", 2),
        ("kinesis", "ListShards", 2),
        ("kinesis", "ListShards", 3),
    ]


def test_a_lost_answer_replaces_the_answer() -> None:
    async def lose(_service: str, operation: str, _request: Mapping[str, Any]) -> None:
        raise UnknownOutcome(operation, "ReadTimeout")

    async def run() -> None:
        await FakeKinesis(model_with_stream(), after=lose).list_shards(StreamName="nowhere")

    with pytest.raises(UnknownOutcome):
        asyncio.run(run())
