"""Subscriptions by botocore against a loopback server that sends raw frames."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
import time
import zlib
from contextlib import contextmanager

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, strategies as st

from kcl_mld import errors
from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.kinesis import BotocoreKinesis, BrokenFrame, next_payload, read_frame
from kcl_mld.kernel.adapters.calls import CallPool
from tests.fakes.event_stream import INITIAL, EventStreamServer, event, exception, frame
from tests.unit.aws.sessions import quick_session
from tests.unit.aws.test_prepared import certificate

REQUEST = {
    "ConsumerARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
    "ShardId": "shardId-000000000000",
    "StartingPosition": {"Type": "AT_TIMESTAMP", "Timestamp": 1_700_000_000.5},
}


@pytest.fixture
def server():
    server = EventStreamServer()
    yield server
    server.close()


@contextmanager
def kinesis_at(url, silence_s=5.0):
    settings = ClientSettings(
        service="kinesis",
        region="us-east-1",
        endpoint=url,
        threads=2,
        connect_timeout_s=2.0,
        read_timeout_s=silence_s,
    )
    control, retrieval = CallPool("control", 1), CallPool("retrieval", 1)
    try:
        yield BotocoreKinesis(make_client(quick_session(), settings), control, retrieval)
    finally:
        control.close()
        retrieval.close()


def subscription_threads():
    return [one for one in threading.enumerate() if one.name.startswith("subscription-")]


async def until_threads_ended(within_s=5.0):
    async with asyncio.timeout(within_s):
        for thread in subscription_threads():
            await asyncio.to_thread(thread.join)


def subscribed(server, conversation, *steps, silence_s=5.0):
    """Run a conversation with one subscription; afterwards no thread is left."""
    for step in steps:
        server.script.put(step)

    async def main():
        with kinesis_at(server.url, silence_s) as kinesis:
            subscription = await kinesis.subscribe_to_shard(**REQUEST)
            try:
                return await conversation(subscription)
            finally:
                subscription.close()
                await until_threads_ended()

    return asyncio.run(main())


async def all_events(subscription):
    found = []
    while (payload := await subscription.next_event()) is not None:
        found.append(payload)
    return found


class TestEvents:
    def test_payloads_come_as_they_are_and_in_order(self, server):
        payloads = [b'{"Records":[],"n":%d}' % n for n in range(50)]
        steps = [INITIAL, *map(event, payloads), "end"]
        assert subscribed(server, all_events, *steps) == payloads

    def test_frames_may_be_cut_anywhere_into_chunks(self, server):
        payloads = [b"{%s}" % (b"x" * n) for n in (1, 500, 70_000)]
        stream = INITIAL + b"".join(map(event, payloads))
        pieces = [stream[at : at + 997] for at in range(0, len(stream), 997)]
        assert subscribed(server, all_events, *pieces, "end") == payloads

    def test_the_request_is_the_apis(self, server):
        subscribed(server, all_events, INITIAL, "end")
        assert server.requests == [REQUEST]

    def test_events_of_other_kinds_are_passed_over(self, server):
        other = frame(b"{}", message_type="event", event_type="Unheard")
        assert subscribed(server, all_events, INITIAL, other, event(b"{1}"), "end") == [b"{1}"]

    def test_the_end_stays_the_end(self, server):
        async def conversation(subscription):
            return [await subscription.next_event() for _ in range(3)]

        assert subscribed(server, conversation, INITIAL, "end") == [None, None, None]

    def test_an_event_is_not_lost_by_cancellation(self, server):
        async def conversation(subscription):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await subscription.next_event()
            server.script.put(event(b"{1}"))
            server.script.put("end")
            return await all_events(subscription)

        assert subscribed(server, conversation, INITIAL) == [b"{1}"]


class TestBackPressure:
    def test_what_is_not_asked_for_stays_with_the_service(self, server):
        async def conversation(subscription):
            assert await subscription.next_event() == b"{first}"
            before = -1
            while server.sent != before:  # until the kernels are full
                before = server.sent
                await asyncio.sleep(0.3)
            assert server.sent < total // 2
            return len(await all_events(subscription))

        large = event(b"x" * 1_000_000)
        steps = [INITIAL, event(b"{first}"), *[large] * 60, "end"]
        total = sum(map(len, steps[:-1]))
        assert subscribed(server, conversation, *steps, silence_s=20.0) == 60


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("ResourceInUseException", errors.InUse),
            ("ResourceNotFoundException", errors.NotFound),
            ("LimitExceededException", errors.LimitExceeded),
            ("InvalidArgumentException", errors.InvalidArgument),
            ("AccessDeniedException", errors.Denied),
        ],
    )
    def test_a_refusal_is_raised_by_the_call(self, server, code, kind):
        with pytest.raises(kind, match="SubscribeToShard"):
            subscribed(server, all_events, ("refuse", 400, code))
        asyncio.run(until_threads_ended())

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("ResourceInUseException", errors.InUse),
            ("ResourceNotFoundException", errors.NotFound),
            ("KMSThrottlingException", errors.Throttled),
            ("KMSAccessDeniedException", errors.Denied),
            ("InternalFailureException", errors.ServiceError),
        ],
    )
    def test_an_exception_in_the_stream(self, server, code, kind):
        async def conversation(subscription):
            assert await subscription.next_event() == b"{1}"
            for _ in range(2):  # it stays the last word
                with pytest.raises(kind, match=f"{code}: why"):
                    await subscription.next_event()

        subscribed(server, conversation, INITIAL, event(b"{1}"), exception(code), event(b"{2}"))

    def test_an_error_frame(self, server):
        async def conversation(subscription):
            with pytest.raises(errors.ServiceError, match="Oops: broken"):
                await subscription.next_event()

        error = frame(b"", message_type="error", error_code="Oops", error_message="broken")
        subscribed(server, conversation, INITIAL, error)

    @pytest.mark.parametrize(
        "steps",
        [
            [INITIAL, "cut"],
            [INITIAL, event(b"{1}")[:-3], "cut"],
            [INITIAL, event(b"{1}")[:-3], "end"],
            [INITIAL, event(b"{1}")[:5], "end"],
            [INITIAL, event(b"{1}")[:-1] + b"!", "end"],
            [b"<html>no event stream at all</html>", "end"],
        ],
        ids=["cut", "cut-in-frame", "ended-in-frame", "ended-in-prelude", "checksum", "html"],
    )
    def test_what_breaks_has_no_known_outcome(self, server, steps):
        # A reset may overtake the head of the answer: then the call fails already.
        with pytest.raises(errors.UnknownOutcome, match="SubscribeToShard"):
            subscribed(server, all_events, *steps)
        asyncio.run(until_threads_ended())

    def test_silence(self, server):
        async def conversation(subscription):
            began = time.monotonic()
            with pytest.raises(errors.UnknownOutcome, match="ReadTimeoutError"):
                await subscription.next_event()
            return time.monotonic() - began

        assert 0.2 < subscribed(server, conversation, INITIAL, silence_s=0.3) < 3

    def test_nobody_listens(self, server):
        server.close()
        with pytest.raises(errors.Unreachable):
            subscribed(server, all_events)

    def test_a_server_that_never_answers(self, server):
        with pytest.raises(errors.UnknownOutcome, match="ReadTimeoutError"):
            subscribed(server, all_events, silence_s=0.3)


class TestClose:
    def test_it_wakes_a_thread_that_reads(self, server):
        async def conversation(subscription):
            waiting = asyncio.ensure_future(subscription.next_event())
            await asyncio.sleep(0.1)
            began = time.monotonic()
            subscription.close()
            subscription.close()
            assert await waiting is None
            await until_threads_ended()
            return time.monotonic() - began

        assert subscribed(server, conversation, INITIAL, silence_s=30.0) < 5

    def test_it_wakes_a_thread_that_waits_to_be_asked(self, server):
        async def conversation(subscription):
            subscription.close()
            await until_threads_ended()
            return await subscription.next_event()

        assert subscribed(server, conversation, INITIAL, event(b"{1}")) is None

    def test_the_service_sees_the_end(self, server):
        async def conversation(subscription):
            subscription.close()
            for _ in range(100):
                server.script.put(event(b"x" * 100_000))
            await asyncio.to_thread(server.closed_by_client.wait, 5)
            assert server.closed_by_client.is_set()

        subscribed(server, conversation, INITIAL)

    def test_a_call_that_was_given_up_is_closed_when_it_is_answered(self, server):
        async def main():
            with kinesis_at(server.url, 30.0) as kinesis:
                asking = asyncio.ensure_future(kinesis.subscribe_to_shard(**REQUEST))
                await asyncio.sleep(0.2)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                server.script.put(INITIAL)
                await until_threads_ended()

        asyncio.run(main())

    def test_a_loop_that_has_ended_is_nobodys_loss(self, server):
        async def main():
            with kinesis_at(server.url) as kinesis:
                asking = asyncio.ensure_future(kinesis.subscribe_to_shard(**REQUEST))
                await asyncio.sleep(0.2)
                asking.cancel()

        asyncio.run(main())
        server.script.put(INITIAL)
        for thread in subscription_threads():
            thread.join(5)
        assert not subscription_threads()


class TestTls:
    @pytest.fixture
    def server(self, tmp_path, monkeypatch):
        server = EventStreamServer(certificate(tmp_path))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        yield server
        server.close()

    def test_events_come(self, server):
        payloads = [b"{%s}" % (b"x" * n) for n in (1, 500, 70_000, 1_000_000)]
        assert subscribed(server, all_events, INITIAL, *map(event, payloads), "end") == payloads

    def test_closing_wakes_a_thread_that_reads(self, server):
        async def conversation(subscription):
            waiting = asyncio.ensure_future(subscription.next_event())
            await asyncio.sleep(0.1)
            began = time.monotonic()
            subscription.close()
            assert await waiting is None
            await until_threads_ended()
            return time.monotonic() - began

        assert subscribed(server, conversation, INITIAL, silence_s=30.0) < 5

    def test_a_cut_connection(self, server):
        with pytest.raises(errors.UnknownOutcome, match="SubscribeToShard"):
            subscribed(server, all_events, INITIAL, event(b"{1}")[:-3], "cut")
        asyncio.run(until_threads_ended())


def reading(data):
    at = 0

    def read(size):
        nonlocal at
        piece = data[at : at + size]
        at += len(piece)
        return piece

    return read


class TestFrames:
    def test_whole_frames(self):
        read = reading(event(b"one") + event(b"two"))
        assert next_payload(read, "Op", "SubscribeToShardEvent") == b"one"
        assert next_payload(read, "Op", "SubscribeToShardEvent") == b"two"
        assert next_payload(read, "Op", "SubscribeToShardEvent") is None

    def test_a_length_is_not_believed_without_its_checksum(self):
        asked = []

        def read(size):
            asked.append(size)
            return b"\x7f" * size

        with pytest.raises(BrokenFrame):
            read_frame(read)
        assert asked == [12]

    @given(st.binary(max_size=200), st.integers(0, 400))
    def test_a_cut_stream_never_gives_half_a_frame(self, payload, at):
        whole = event(payload)
        at = min(at, len(whole) - 1)
        if at == 0:
            assert read_frame(reading(whole[:at])) is None
            return
        with pytest.raises(BrokenFrame):
            read_frame(reading(whole[:at]))

    @pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'{"other": 1}'])
    def test_exceptions_without_a_message(self, body):
        said = frame(body, message_type="exception", exception_type="ResourceInUseException")
        with pytest.raises(errors.InUse, match=r"ResourceInUseException$"):
            next_payload(reading(said), "Op", "SubscribeToShardEvent")

    @pytest.mark.parametrize(
        ("total", "headers"), [(12, 0), (16, 1), (40, 30), (2**31, 0), (26 * 2**20, 0)]
    )
    def test_lengths_that_no_frame_can_have(self, total, headers):
        prelude = struct.pack(">II", total, headers)
        read = reading(prelude + struct.pack(">I", zlib.crc32(prelude)) + bytes(100))
        with pytest.raises(BrokenFrame, match=f"cannot have {total} bytes"):
            read_frame(read)

    @given(st.binary(max_size=300), st.data())
    def test_a_damaged_frame_is_refused(self, payload, data):
        whole = bytearray(event(payload))
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
        with pytest.raises(BrokenFrame):
            read_frame(reading(bytes(whole)))

    @given(st.binary(max_size=300))
    def test_botocore_reads_the_same(self, payload):
        theirs = EventStreamBuffer()
        theirs.add_data(event(payload))
        (message,) = list(theirs)
        mine = read_frame(reading(event(payload)))
        assert (dict(mine.headers), mine.payload) == (message.headers, message.payload)

    def test_json_is_what_the_service_sends(self):
        body = {"Records": [], "ContinuationSequenceNumber": "1", "MillisBehindLatest": 0}
        payload = next_payload(
            reading(event(json.dumps(body).encode())), "Op", "SubscribeToShardEvent"
        )
        assert json.loads(payload) == body
