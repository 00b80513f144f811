"""Streams that are found by name and tag."""

from __future__ import annotations

import asyncio
import random

import pytest

from kcl_mld.config.stream_list import ListedStream
from kcl_mld.config.stream_selection import NamePattern, StreamSelection
from kcl_mld.errors import Denied, LimitExceeded, NotFound, ServiceError, Throttled
from kcl_mld.local.kinesis import KinesisModel, KinesisSettings
from kcl_mld.streams import stream_names
from kcl_mld.streams.rules.stream_list import FoundStreams
from kcl_mld.streams.stream_names import ATTEMPTS, DiscoveredNames
from tests.fakes.clock import LoopClock
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.shard_world import simulated
from tests.unit.app.streams_world import StreamsWorld

TAGGED = StreamSelection(tags=(("read", "yes"),))


class Account:
    """Streams of an account, and what befalls the requests."""

    def __init__(self, *names, limits=False):
        self.clock = LoopClock()
        settings = KinesisSettings(limits=limits)
        self.model = KinesisModel(self.clock.wall, random.Random(0), settings)
        self.calls = []
        self.errors = {}
        for name in names:
            self.create(name)

    def create(self, name, **tags):
        self.model.call("CreateStream", {"StreamName": name, "ShardCount": 1})
        if tags:
            self.tag(name, **tags)

    def tag(self, name, **tags):
        self.model.call("AddTagsToStream", {"StreamName": name, "Tags": tags})

    def delete(self, name):
        self.model.call("DeleteStream", {"StreamName": name})

    def source(self, selection, *fixed, interval_s=60.0):
        async def before(_service, operation, request):
            self.calls.append((operation, request.get("StreamName")))
            error = self.errors.get(operation)
            if error is not None:
                raise error

        port = FakeKinesis(self.model, before=before)
        return DiscoveredNames(port, fixed, selection, interval_s, self.clock, random.Random(1))

    def asked(self, operation):
        return [name for called, name in self.calls if called == operation]


def texts(listed):
    return [str(one) for one in listed]


@simulated
async def test_names_are_found_behind_those_of_the_file_and_none_twice():
    account = Account("orders-1", "orders-2", "orders-test", "clicks")
    rule = StreamSelection(
        names=NamePattern.parse("orders-*"), excluded=NamePattern.parse("*-test")
    )
    fixed = ListedStream("orders-2", account="999999999999", epoch=5)
    source = account.source(rule, fixed)
    assert texts(await source.names()) == ["999999999999:orders-2:5", "orders-1"]
    account.create("orders-3")
    assert texts(await source.names()) == ["999999999999:orders-2:5", "orders-1", "orders-3"]
    assert account.asked("ListTagsForStream") == []


@simulated
async def test_the_list_is_read_page_by_page(monkeypatch):
    monkeypatch.setattr(stream_names, "PAGE", 2)
    account = Account("a", "b", "c", "d", "e")
    assert texts(await account.source(StreamSelection()).names()) == list("abcde")
    assert len(account.asked("ListStreams")) == 3


@simulated
async def test_streams_that_are_not_ready_are_left_out():
    account = Account("ready")
    account.model.settings = KinesisSettings(create_s=30.0, delete_s=30.0)
    account.create("new")
    account.create("old")
    await asyncio.sleep(31)
    account.delete("old")
    account.create("newer")
    source = account.source(StreamSelection())
    assert texts(await source.names()) == ["new", "ready"]
    await asyncio.sleep(31)
    assert texts(await source.names()) == ["new", "newer", "ready"]


@simulated
async def test_a_stream_needs_all_tags_and_may_get_and_lose_them_later():
    account = Account("plain")
    account.create("tagged", read="yes", other="x")
    account.create("wrong", read="no")
    source = account.source(TAGGED)
    assert texts(await source.names()) == ["tagged"]
    account.tag("plain", read="yes")
    account.model.call("RemoveTagsFromStream", {"StreamName": "tagged", "TagKeys": ["read"]})
    assert texts(await source.names()) == ["tagged"], "tags are remembered"
    await asyncio.sleep(60)
    assert texts(await source.names()) == ["plain"]


@simulated
async def test_a_new_stream_is_asked_at_once_and_others_from_time_to_time():
    account = Account()
    for number in range(5):
        account.create(f"s{number}", read="yes")
    source = account.source(TAGGED, interval_s=3.0)
    assert len(await source.names()) == 5
    assert len(account.asked("ListTagsForStream")) == 5
    account.create("s5", read="yes")
    await asyncio.sleep(3)
    assert len(await source.names()) == 6
    assert account.asked("ListTagsForStream")[5:] == ["s5", "s0", "s1"]


@simulated
async def test_more_tags_than_an_answer_holds_are_all_read():
    account = Account()
    account.create("s", read="yes", **{f"a{number}": "" for number in range(40)})

    async def short(**request):
        return account.model.call("ListTagsForStream", {**request, "Limit": 7})

    source = account.source(TAGGED)
    source._kinesis.list_tags_for_stream = short
    assert texts(await source.names()) == ["s"]


@simulated
async def test_limits_of_the_service_are_kept_or_waited_for():
    account = Account(limits=True)
    for number in range(30):
        account.create(f"s{number:02}")
        await asyncio.sleep(1)
        account.tag(f"s{number:02}", read="yes")
    sources = [account.source(TAGGED) for _ in range(3)]
    found = await asyncio.gather(*(source.names() for source in sources))
    assert [len(one) for one in found] == [30, 30, 30]


@pytest.mark.parametrize("operation", ["ListStreams", "ListTagsForStream"])
@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (LimitExceeded("x", "LimitExceededException"), ATTEMPTS),
        (Throttled("x", "ThrottlingException"), ATTEMPTS),
        (Denied("x", "AccessDeniedException"), 1),
        (ServiceError("x", "InternalFailure"), 1),
    ],
)
@simulated
async def test_with_an_error_what_was_found_stays(operation, error, tries, caplog):
    account = Account()
    account.create("s", read="yes")
    source = account.source(TAGGED)
    before = await source.names()
    await asyncio.sleep(60)
    account.calls.clear()
    account.errors[operation] = error
    if operation == "ListTagsForStream" and tries > 1:
        assert await source.names() == before
        assert "Tags of 0 streams are not known yet" in caplog.text
    else:
        with pytest.raises(type(error)):
            await source.names()
    assert len(account.asked(operation)) == tries
    account.errors.clear()
    assert await source.names() == before


@simulated
async def test_a_stream_that_vanishes_between_list_and_tags_is_left_out():
    account = Account()
    account.create("s", read="yes")
    account.errors["ListTagsForStream"] = NotFound("x", "ResourceNotFoundException")
    assert await account.source(TAGGED).names() == ()


@simulated
async def test_a_page_without_names_and_without_end_is_no_list():
    source = Account("a").source(StreamSelection())

    async def endless(**request):
        return {"StreamNames": ["a"] if "ExclusiveStartStreamName" not in request else [],
                "HasMoreStreams": True}  # fmt: skip

    source._kinesis.list_streams = endless
    with pytest.raises(Throttled, match="a page has no names"):
        await source.names()


@pytest.mark.parametrize("second", [[], [{"Key": "a", "Value": "no"}]])
@simulated
async def test_tags_of_which_the_end_did_not_come_are_not_known(caplog, second):
    """What they would leave out may be the tag that the file asks for."""
    source = Account("s").source(TAGGED)

    async def endless(**request):
        first = [{"Key": "a", "Value": "no"}]
        return {"Tags": second if "ExclusiveStartTagKey" in request else first,
                "HasMoreTags": True}  # fmt: skip

    source._kinesis.list_tags_for_stream = endless
    assert await source.names() == ()
    assert "Tags of 1 streams are not known yet" in caplog.text


@simulated
async def test_what_is_unusual_is_said_once(caplog):
    account = Account()
    rule = StreamSelection(max_streams=1)
    source = account.source(rule)
    for _ in range(2):
        assert await source.names() == ()
    assert caplog.messages == [
        "No stream matches the rule of the file yet; looking again from time to time"
    ]
    caplog.clear()
    account.create("b")
    account.create("a")
    for _ in range(2):
        assert texts(await source.names()) == ["a"]
    assert caplog.messages == [
        "More streams match the rule than maxStreams = 1 allows; not read: b"
    ]
    caplog.clear()
    account.delete("a")
    account.delete("b")
    for _ in range(2):
        assert texts(await source.names()) == ["a"]
    assert caplog.messages == ["Kinesis lists no streams at all; keeping those found before"]
    assert source._found == FoundStreams(source._found.seen, ignored_empty=True)


# --- in a worker


@simulated
async def test_a_worker_reads_what_is_found_and_follows_it_while_it_runs():
    rules = {"streamNamePattern": "o*", "streamTags": "read=yes", "streams": "clicks"}
    world = StreamsWorld("clicks", "orders", "other", **rules)
    tag = {"StreamName": "orders", "Tags": {"read": "yes"}}
    world.kinesis.call("AddTagsToStream", tag)
    world.put("clicks", "c1")
    world.put("orders", "o1")
    world.put("other", "x1")
    async with world.running() as worker:
        names = [one.name for one in worker.streams.followed()]
        assert names == ["clicks", "orders"]
        assert world.children.data("orders") == ["o1"]
        world.create("online")
        world.put("online", "n1")
        await asyncio.sleep(100)
        assert world.children.data("online") == []
        world.kinesis.call("AddTagsToStream", {**tag, "StreamName": "online"})
        await asyncio.sleep(200)
        assert world.children.data("online") == ["n1"]
        remove = {"StreamName": "orders", "TagKeys": ["read"]}
        world.kinesis.call("RemoveTagsFromStream", remove)
        await asyncio.sleep(200)
        assert [one.name for one in worker.streams.orphans()] == ["orders"]
        assert world.children.data("other") == []


@simulated
async def test_a_worker_that_finds_no_stream_yet_waits_for_one():
    world = StreamsWorld(streamNamePattern="or*")
    world.create("other")
    async with world.running() as worker:
        assert worker.streams.followed() == ()
        world.create("orders")
        world.put("orders", "o1")
        await asyncio.sleep(100)
        assert world.children.data("orders") == ["o1"]


@simulated
async def test_a_stream_that_leaves_the_list_is_looked_for_at_once():
    world = StreamsWorld(streamTags="read=yes", streamDiscoveryIntervalMillis="1000")
    tags = {"Tags": {"read": "yes"}}
    for name in ("clicks", "orders"):
        world.create(name)
        world.kinesis.call("AddTagsToStream", {"StreamName": name, **tags})
    asked = []

    async def before(_service, operation, request):
        if operation == "DescribeStreamSummary":
            asked.append(request["StreamName"])

    async with world.running():
        await asyncio.sleep(10)
        world.port.before = before
        remove = {"StreamName": "clicks", "TagKeys": ["read"]}
        world.kinesis.call("RemoveTagsFromStream", remove)
        await asyncio.sleep(9)
        assert asked.count("clicks") == 1
        assert "orders" not in asked
