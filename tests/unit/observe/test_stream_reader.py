"""What a watcher sees of streams: shards, retention, and what became of them."""

from __future__ import annotations

import random
from dataclasses import replace

from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import ListedStream, StreamList
from kcl_mld.errors import Denied, Throttled
from kcl_mld.local.kinesis import KinesisModel
from kcl_mld.observe.stream_reader import GOOD_S, StreamReader
from kcl_mld.streams.stream_names import StaticNames
from tests.fakes.clock import FakeClock
from tests.fakes.config import config_with
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.shard_world import simulated

CONFIG = config_with()


class Account:
    """Streams, and what befalls the requests."""

    def __init__(self, *names):
        self.clock = FakeClock()
        self.model = KinesisModel(self.clock.wall, random.Random(0))
        self.calls = []
        self.errors = {}
        for name in names:
            self.create(name)

    def create(self, name):
        self.model.call("CreateStream", {"StreamName": name, "ShardCount": 2})

    def delete(self, name):
        self.model.call("DeleteStream", {"StreamName": name})

    def identifier(self, name):
        summary = self.model.call("DescribeStreamSummary", {"StreamName": name})
        created = summary["StreamDescriptionSummary"]["StreamCreationTimestamp"]
        account = summary["StreamDescriptionSummary"]["StreamARN"].split(":")[4]
        return f"{account}:{name}:{int(created)}"

    def looks(self, *listed):
        async def before(_service, operation, _request):
            self.calls.append(operation)
            if operation in self.errors:
                raise self.errors[operation]

        kinesis = FakeKinesis(self.model, before=before)
        streams = tuple(map(ListedStream, listed))
        config = replace(CONFIG, streams=StreamList(streams=streams)) if listed else CONFIG
        single, names = (None, StaticNames(streams)) if listed else (Stream("s"), None)
        return StreamReader(
            kinesis, config, "us-east-1", single, names, self.clock, random.Random(0)
        )


@simulated
async def test_a_single_stream_and_how_long_a_look_is_good():
    account = Account("s")
    looks = account.looks()
    (seen,) = await looks.look([None], fresh=True)
    assert (seen.name, seen.identifier, seen.gone, seen.unknown) == ("s", None, None, None)
    assert len(seen.shards) == 2
    assert seen.retention_s == 24 * 3600
    assert looks.streams == {None: Stream("s")}
    count = len(account.calls)
    assert await looks.look([None], fresh=False) == (seen,)
    assert len(account.calls) == count
    account.clock.advance(GOOD_S + 1)
    await looks.look([None], fresh=False)
    assert len(account.calls) == 2 * count


@simulated
async def test_a_single_stream_that_is_deleted_and_created_again():
    account = Account("s")
    looks = account.looks()
    await looks.look([None], fresh=True)
    account.delete("s")
    account.clock.advance(100)
    (seen,) = await looks.look([None], fresh=True)
    assert "s was deleted" in seen.gone or "is being deleted" in seen.gone
    assert looks.streams == {}
    account.create("s")
    (seen,) = await looks.look([None], fresh=True)
    assert "created again" in seen.gone


@simulated
async def test_what_is_denied_is_said_and_the_rest_is_known():
    account = Account("s")
    account.errors["DescribeStreamSummary"] = Denied("DescribeStreamSummary", "AccessDenied")
    (seen,) = await account.looks().look([None], fresh=True)
    assert "DescribeStreamSummary" in seen.unknown
    assert len(seen.shards) == 2
    account.errors = {"ListShards": Denied("ListShards", "AccessDenied")}
    (seen,) = await account.looks().look([None], fresh=True)
    assert "ListShards" in seen.unknown
    assert (seen.shards, seen.retention_s) == (None, 24 * 3600)
    account.errors = {"ListShards": Throttled("ListShards", "Throttling")}
    (seen,) = await account.looks().look([None], fresh=True)
    assert "ListShards" in seen.unknown


@simulated
async def test_many_streams_of_the_file_and_of_rows():
    account = Account("a", "b", "former")
    a, former = account.identifier("a"), account.identifier("former")
    number, name, epoch = a.split(":")
    earlier = f"{number}:{name}:{int(epoch) - 1000}"
    looks = account.looks("a", "b", "none")
    seen = await looks.look([a, former, earlier, "x", None], fresh=True)
    found = {one.identifier or one.name: one for one in seen}
    assert set(found) == {a, account.identifier("b"), former, earlier, "x", "none"}
    assert found[a].is_listed
    assert len(found[a].shards) == 2
    assert found[account.identifier("b")].is_listed
    assert not found[former].is_listed
    assert "created again" in found[earlier].gone
    assert "was deleted" in found["none"].gone
    assert "x" in found["x"].unknown
    assert set(looks.streams) == {a, former, account.identifier("b")}
    assert looks.streams[a].arn.endswith(":stream/a")


@simulated
async def test_a_listed_stream_that_may_not_be_asked_for_is_not_known():
    account = Account("a")
    account.errors["DescribeStreamSummary"] = Denied("DescribeStreamSummary", "AccessDenied")
    (seen,) = await account.looks("a").look([], fresh=True)
    assert (seen.name, seen.shards) == ("a", None)
    assert "DescribeStreamSummary" in seen.unknown


@simulated
async def test_where_the_list_is_not_known_no_stream_is_called_a_stranger():
    account = Account("a")
    looks = account.looks("b")

    class Refused:
        async def names(self):
            raise Denied("ListStreams", "AccessDenied")

    looks._names = Refused()
    told, seen = await looks.look([account.identifier("a")], fresh=True)
    assert "ListStreams" in told.unknown
    assert seen.is_listed
