"""What holds for all messages, all cuts and all bytes."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings, strategies as st

from kcl_mld_protocol import (
    CAPABILITIES,
    NEED_DATA,
    CheckpointRequest,
    CheckpointRequested,
    CheckpointResult,
    ChildConnection,
    DaemonConnection,
    EndOfStream,
    Foreign,
    Initialize,
    Junk,
    LeaseLost,
    LineBuffer,
    LineTooLong,
    ProcessRecords,
    ProtocolError,
    Record,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
    TickRequested,
    decode_from_child,
    decode_from_daemon,
    encode,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
#: No unpaired surrogates: they cannot travel, in Java neither.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
MAYBE_TEXTS = st.none() | TEXTS
MAYBE_LONGS = st.none() | LONGS
RESERVED = {"action", "shardId", "sequenceNumber", "subSequenceNumber"}
RECORDS = st.builds(Record, MAYBE_TEXTS, MAYBE_TEXTS, MAYBE_TEXTS, MAYBE_LONGS, MAYBE_LONGS)
EXTRAS = st.dictionaries(
    TEXTS.filter(lambda name: name not in RESERVED),
    st.none() | TEXTS | st.booleans() | LONGS | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
)
ACTIONS = st.one_of(
    st.builds(Initialize, MAYBE_TEXTS, MAYBE_TEXTS, MAYBE_LONGS, EXTRAS),
    st.builds(ProcessRecords, st.lists(RECORDS, max_size=4).map(tuple), MAYBE_LONGS),
    st.sampled_from([LeaseLost(), ShardEnded(), ShutdownRequested()]),
)
DAEMON_MESSAGES = ACTIONS | st.builds(CheckpointResult, MAYBE_TEXTS, MAYBE_LONGS, MAYBE_TEXTS)
CHILD_MESSAGES = st.one_of(
    st.builds(Status, MAYBE_TEXTS),
    st.builds(CheckpointRequest, MAYBE_TEXTS, MAYBE_LONGS),
    st.builds(Tick, st.none() | st.floats(allow_nan=False, allow_infinity=False)),
)
#: Bytes that come close to being a message.
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                b"{",
                b"}",
                b"[",
                b"]",
                b",",
                b":",
                b'"',
                b" ",
                b"\n",
                b"\r",
                b"null",
                b"true",
                b"1.5",
            ),
            *(b'"action"', b'"status"', b'"checkpoint"', b'"responseFor"', b'"initialize"'),
            *(b'{"action":"status","responseFor":"initialize"}\n', b'{"action":"checkpoint"}\n'),
            *(b'{"action":"tick","seconds":', b'"number"', b"1"),
            *(
                b'{"action":"leaseLost"}\n',
                b"-0",
                b"1e999",
                b"\xff",
                b"\\u12",
                b'"subSequenceNumber"',
            ),
        ]
    ),
    max_size=30,
).map(b"".join)
BYTES = st.binary(max_size=200) | FRAGMENTS


def cut(data: bytes, points: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(point % (len(data) + 1) for point in points)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(DAEMON_MESSAGES)
def test_a_message_of_the_daemon_is_one_line_and_comes_back(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert b"\r" not in line
    assert decode_from_daemon(line[:-1]) == message
    assert encode(decode_from_daemon(line[:-1])) == line
    json.loads(line)


@given(CHILD_MESSAGES)
def test_a_message_of_a_child_comes_back(message):
    assert decode_from_child(encode(message)[:-1], CAPABILITIES) == message


@given(BYTES)
def test_no_bytes_make_a_decoder_raise(line):
    assert isinstance(decode_from_child(line), Status | CheckpointRequest | Foreign | Junk)
    assert isinstance(
        decode_from_child(line, CAPABILITIES),
        Status | CheckpointRequest | Tick | Foreign | Junk,
    )
    decode_from_daemon(line)


@given(BYTES)
def test_a_line_after_a_message_or_before_it_in_json_does_not_matter(tail):
    line = b'{"action":"status","responseFor":"x"}'
    assert decode_from_child(b" \t" + line + tail) == Status("x")


@given(
    st.lists(st.sampled_from([b"a", b"", b"bc", b"\r", b"\n", b"\r\n"])).map(b"".join),
    st.lists(st.integers(0, 99)),
)
def test_where_the_stream_is_cut_does_not_change_the_lines(data, points):
    buffer = LineBuffer()
    lines = []
    for chunk in [*cut(data, points), b""]:
        buffer.feed(chunk)
        while (line := buffer.next_line()) is not None:
            lines.append(line)
    assert lines == data.splitlines()


@given(BYTES, st.lists(st.integers(0, 99)), st.integers(1, 20))
def test_a_limit_never_hands_out_more_and_loses_no_short_line(data, points, limit):
    buffer = LineBuffer(limit)
    lines = []
    for chunk in [*cut(data, points), b""]:
        buffer.feed(chunk)
        while True:
            try:
                line = buffer.next_line()
            except LineTooLong:
                continue
            if line is None:
                break
            lines.append(line)
    whole = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n").split(b"\n")
    wanted = [line for line in whole if len(line) <= limit] if data else []
    assert lines == wanted


@given(ACTIONS, st.lists(BYTES))
def test_a_daemon_connection_raises_only_protocol_errors(action, chunks):
    daemon = DaemonConnection("s", announced=CAPABILITIES)
    try:
        daemon.send(Initialize("s", "LATEST", 0))
        daemon.receive_data(b'{"action":"status","responseFor":"initialize"}\n')
        daemon.next_event()
        if not isinstance(action, Initialize):
            daemon.send(action)
        for chunk in [*filter(None, chunks), b""]:
            daemon.receive_data(chunk)
            while (event := daemon.next_event()) is not NEED_DATA:
                if isinstance(event, CheckpointRequested):
                    daemon.send(CheckpointResult(None, None))
                if isinstance(event, EndOfStream):
                    break
    except ProtocolError:
        pass


@given(st.lists(BYTES | DAEMON_MESSAGES.map(encode)))
def test_a_child_connection_raises_only_protocol_errors(chunks):
    child = ChildConnection()
    try:
        for chunk in [*filter(None, chunks), b""]:
            child.receive_data(chunk)
            while (event := child.next_event()) not in {NEED_DATA, EndOfStream()}:
                if not isinstance(event, CheckpointResult):
                    child.send(Status(event.action))
    except ProtocolError:
        pass


@settings(max_examples=50)
@given(st.lists(st.tuples(ACTIONS, st.lists(CHILD_MESSAGES, max_size=2)), max_size=5))
def test_two_ends_agree_on_every_conversation(script):
    daemon = DaemonConnection("s", announced=CAPABILITIES)
    child = ChildConnection(announced=CAPABILITIES)

    def tell(message):
        child.receive_data(daemon.send(message))
        assert child.next_event() == message

    def answer(message):
        daemon.receive_data(child.send(message))
        return daemon.next_event()

    tell(Initialize("s", "LATEST", 0))
    answer(Status("initialize"))
    for action, requests in script:
        if isinstance(action, Initialize) or "IDLE" not in daemon.state:
            continue
        tell(action)
        for request in requests:
            if isinstance(request, CheckpointRequest):
                assert answer(request) == CheckpointRequested(request, action.action)
                tell(CheckpointResult(request.sequence_number, request.sub_sequence_number))
            elif isinstance(request, Tick):
                assert answer(request) == TickRequested(request.seconds)
        answer(Status(action.action))
        assert child.handling is None
