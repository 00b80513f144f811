"""The children of keys, and lines that are split among them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from kcl_mld.aws.rules.change_record import read_changes
from kcl_mld.children.rules import delivery as delivery_module
from kcl_mld.children.rules.delivery import deliver, deliver_rest
from kcl_mld.children.rules.routing import Part, Route, child_of, item_key
from kcl_mld.kernel.model.sequence import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.retrieval.model.schema import KnownSchema
from kcl_mld.retrieval.model.wire import read_batch
from tests.fakes.aggregate import aggregate
from tests.fakes.schema_frames import ORDER, ORDER_ID, frame

CHANGES = json.loads(
    (Path(__file__).parents[3] / "data" / "dynamodb_streams" / "records.json").read_text("utf-8")
)
#: The child of some keys, for ever: their CRC-32 and the rest of it.
CODES = {
    "": 0,
    "a": 0xE8B7BE43,
    "123456789": 0xCBF43926,
    "Zoë €": 0x9030700C,
}


def record(number, key="k", payload=b"x", at=1.0):
    return {
        "ApproximateArrivalTimestamp": at,
        "Data": base64.b64encode(payload).decode(),
        "PartitionKey": key,
        "SequenceNumber": str(number),
    }


def batch_of(*records, behind=7):
    body = {"Records": records, "NextShardIterator": "next", "MillisBehindLatest": behind}
    return read_batch(json.dumps(body).encode())


def routed(
    *records, floors, checkpoint=TRIM_HORIZON, even_if_empty=False, keys_in_data=False, **more
):
    route = Route(tuple(floors), keys_in_data)
    return deliver(
        batch_of(*records), checkpoint, None, even_if_empty=even_if_empty, route=route, **more
    )


def told(delivery):
    """By child, the positions that it gets."""
    return {part.child: positions(part.line) for part in delivery.parts}


def positions(line):
    return [
        (one["sequenceNumber"], one["subSequenceNumber"]) for one in json.loads(line)["records"]
    ]


def key_for(child, children=2):
    """A short key of that child."""
    return next(key for key in map(str, range(100)) if child_of(key, children) == child)


ZERO, ONE = key_for(0), key_for(1)
ALL = (TRIM_HORIZON, TRIM_HORIZON)


@pytest.mark.parametrize(("key", "code"), CODES.items())
@pytest.mark.parametrize("children", [1, 2, 7, 32])
def test_the_child_of_a_key_never_changes(key, code, children):
    assert child_of(key, children) == code % children


def test_no_key_is_the_empty_key():
    assert child_of(None, 5) == child_of("", 5) == 0


def test_a_lone_surrogate_is_the_question_mark_as_which_it_is_written():
    assert [child_of("a\ud800b", n) for n in range(1, 33)] == [
        child_of("a?b", n) for n in range(1, 33)
    ]


def test_each_child_gets_the_line_of_a_batch_with_its_records_alone():
    records = [record(1, ZERO, b"one"), record(2, ONE, b"two", 2.5), record(3, ZERO, b"three")]
    delivery = routed(*records, floors=ALL)
    lines = [
        deliver(batch_of(*some), TRIM_HORIZON, None, even_if_empty=False).line
        for some in ([records[0], records[2]], [records[1]])
    ]
    assert delivery.parts == (
        Part(0, lines[0], 2, 8, At("1"), At("3"), 1.0),
        Part(1, lines[1], 1, 3, At("2"), At("2"), 2.5),
    )
    assert delivery.line is None
    assert (delivery.records, delivery.kept, delivery.data_bytes) == (3, 3, 11)
    assert (delivery.smallest, delivery.largest) == (At("1"), At("3"))


def test_a_child_without_records_has_no_part():
    assert told(routed(record(1, ONE), floors=ALL)) == {1: [("1", 0)]}


def test_parts_are_handed_over_once():
    delivery = routed(record(1, ONE), floors=ALL)
    (part,) = delivery.pop_parts()
    assert (part.child, delivery.parts) == (1, ())


@pytest.mark.parametrize(
    ("floors", "expected"),
    [
        ((TRIM_HORIZON, LATEST), {0: ["10", "30", "50"], 1: ["20", "40"]}),
        ((At("9"), At("9")), {0: ["10", "30", "50"], 1: ["20", "40"]}),
        ((At("9"), At("20")), {0: ["10", "30", "50"], 1: ["40"]}),
        ((At("29"), At("25")), {0: ["30", "50"], 1: ["40"]}),
        ((At("50"), At("30")), {1: ["40"]}),
        ((At("9"), At("40")), {0: ["10", "30", "50"]}),
        ((At("9"), None), {0: ["10", "30", "50"]}),
        ((None, At("39")), {1: ["40"]}),
        ((None, None), {}),
        ((At("50"), At("50")), {}),
        ((At("60"), SHARD_END), {}),
    ],
)
def test_a_child_gets_what_lies_behind_its_floor(floors, expected):
    records = [record(number, ZERO if number % 20 else ONE) for number in range(10, 60, 10)]
    delivery = routed(*records, floors=floors)
    assert told(delivery) == {
        child: [(number, 0) for number in numbers] for child, numbers in expected.items()
    }
    # The line ends where it ends, whoever gets it.
    assert (delivery.records, delivery.kept, delivery.data_bytes) == (5, 5, 5)
    assert (delivery.smallest, delivery.largest) == (At("10"), At("50"))


def test_a_floor_is_a_number_and_not_a_text():
    floors = (At("009"), At("9"))
    assert told(routed(record(9, ZERO), record(10, ZERO), floors=floors)) == {0: [("10", 0)]}


def test_user_records_of_an_aggregate_go_by_their_own_keys():
    packed = aggregate((ZERO, b"a"), (ONE, b"b"), (ZERO, b"c"), (ONE, b"d"))
    delivery = routed(record(5, "of the aggregate", packed), floors=ALL)
    assert told(delivery) == {0: [("5", 0), ("5", 2)], 1: [("5", 1), ("5", 3)]}
    assert [(part.smallest, part.largest) for part in delivery.parts] == [
        (At("5", 0), At("5", 2)),
        (At("5", 1), At("5", 3)),
    ]


@pytest.mark.parametrize(
    ("floors", "expected"),
    [
        ((At("5", 1), At("5", 1)), {0: [2], 1: [3]}),
        ((At("5", 2), At("4")), {1: [1, 3]}),
        ((At("5", 0), At("5", 3)), {0: [2]}),
    ],
)
def test_floors_lie_inside_of_aggregates_too(floors, expected):
    packed = aggregate((ZERO, b"a"), (ONE, b"b"), (ZERO, b"c"), (ONE, b"d"))
    assert told(routed(record(5, "k", packed), floors=floors)) == {
        child: [("5", sub) for sub in subs] for child, subs in expected.items()
    }


def test_what_the_checkpoint_covers_is_no_part_of_the_line():
    records = [record(1, ZERO), record(2, ONE), record(3, ONE)]
    delivery = routed(*records, floors=ALL, checkpoint=At("1"))
    assert told(delivery) == {1: [("2", 0), ("3", 0)]}
    assert (delivery.records, delivery.kept, delivery.smallest) == (3, 2, At("2"))


@pytest.mark.parametrize("even_if_empty", [False, True])
@pytest.mark.parametrize("records", [[], [record(1, ZERO)]])
def test_no_child_gets_a_line_without_records(records, even_if_empty):
    delivery = routed(*records, floors=ALL, checkpoint=At("1"), even_if_empty=even_if_empty)
    assert (delivery.line, delivery.parts) == (None, ())
    assert (delivery.records, delivery.kept) == (len(records), 0)
    assert (delivery.smallest, delivery.largest) == (None, None)


def test_records_without_key_or_time_are_delivered():
    body = {"Records": [{"SequenceNumber": "7", "Data": None}, record(8, ONE), record(9, ZERO)]}
    batch = read_batch(json.dumps(body | {"NextShardIterator": "n"}).encode())
    delivery = deliver(batch, TRIM_HORIZON, None, even_if_empty=False, route=Route(ALL))
    assert told(delivery) == {0: [("7", 0), ("9", 0)], 1: [("8", 0)]}
    first = delivery.parts[0]
    assert (first.arrived_s, first.data_bytes, first.records) == (None, 1, 2)


def test_a_key_with_a_lone_surrogate_goes_where_its_text_in_the_line_goes():
    (part,) = routed(record(1, "a\ud800b"), floors=(TRIM_HORIZON,) * 32).parts
    assert json.loads(part.line)["records"][0]["partitionKey"] == "a?b"
    assert part.child == child_of("a?b", 32) == child_of("a\ud800b", 32)


def change(number, keys):
    data = {"dynamodb": {"Keys": keys}, "eventName": "MODIFY"}
    return record(number, str(number), json.dumps(data).encode())


def test_changes_of_an_item_go_to_one_child_whatever_their_partition_key():
    item, other = ({"pk": {"S": text}, "sk": {"N": "1"}} for text in ("a", "b"))
    turned = dict(reversed(item.items()))
    delivery = routed(
        *(change(1, item), change(2, other), change(3, turned), change(4, other)),
        floors=(TRIM_HORIZON,) * 4,
        keys_in_data=True,
    )
    of_item = crc32(b'{"pk":{"S":"a"},"sk":{"N":"1"}}') % 4
    of_other = crc32(b'{"pk":{"S":"b"},"sk":{"N":"1"}}') % 4
    assert of_item != of_other
    assert told(delivery) == {
        of_item: [("1", 0), ("3", 0)],
        of_other: [("2", 0), ("4", 0)],
    }


def test_the_rest_of_a_large_batch_is_split_likewise(monkeypatch):
    monkeypatch.setattr(delivery_module, "ENOUGH_BYTES", 1000)
    three = aggregate((ZERO, b"a"), (ONE, b"b"), (ZERO, b"c"))
    records = [record(number, "k", three) for number in (1, 2, 3)]
    first = routed(*records, floors=(TRIM_HORIZON, At("3")))
    assert told(first) == {0: [("1", 0), ("1", 2), ("2", 0), ("2", 2)]}
    assert (first.largest, first.kept) == (At("2", 2), 6)
    second = deliver_rest(first.rest)
    assert told(second) == {0: [("3", 0), ("3", 2)], 1: [("3", 1)]}
    assert (second.largest, second.line, second.rest) == (At("3", 2), None, None)


def test_a_child_that_is_replaced_between_two_lines_gets_nothing_of_the_second(monkeypatch):
    monkeypatch.setattr(delivery_module, "ENOUGH_BYTES", 1000)
    three = aggregate((ZERO, b"a"), (ONE, b"b"), (ZERO, b"c"))
    first = routed(*[record(number, "k", three) for number in (1, 2, 3)], floors=ALL)
    first.rest.route = Route((None, first.largest))
    second = deliver_rest(first.rest)
    assert told(second) == {1: [("3", 1)]}
    assert (second.largest, second.kept) == (At("3", 2), 3)


@pytest.mark.parametrize(
    ("floors", "expected"),
    [
        ((At("9"), At("10")), At("9")),
        ((None, At("10"), TRIM_HORIZON), TRIM_HORIZON),
        ((None, At("5", 1), At("5", 2)), At("5", 1)),
        ((None, None), At("7")),
    ],
)
def test_nobody_gets_what_lies_at_or_before_the_lowest_floor(floors, expected):
    assert Route(floors).behind(At("7")) == expected


def test_a_line_that_waits_for_a_schema_has_no_part():
    framed = record(1, ZERO, frame(ORDER_ID, b"x"))
    delivery = routed(framed, floors=ALL, schemas={})
    assert (delivery.parts, delivery.largest) == ((), None)
    assert sum(delivery.unknown.values()) == 1
    known = routed(framed, floors=ALL, schemas={ORDER_ID: KnownSchema(ORDER)})
    assert told(known) == {0: [("1", 0)]}
    assert json.loads(known.parts[0].line)["records"][0]["schemaName"] == "orders"


# -- keys of items ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", CHANGES, ids=lambda one: one["wire"]["eventID"])
def test_the_key_of_a_change_is_that_of_its_item(recorded):
    (found,) = read_changes(json.dumps({"Records": [recorded["wire"]]}).encode()).records
    keys = recorded["wire"]["dynamodb"]["Keys"]
    members = [f'"{name}":{json.dumps(keys[name], separators=(",", ":"))}' for name in sorted(keys)]
    assert item_key(json.loads(found)["Data"]) == "{" + ",".join(members) + "}"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
        st.dictionaries(
            st.sampled_from("SNB"),
            st.text(st.characters(codec="utf-8"), max_size=5),
            min_size=1,
            max_size=1,
        ),
        min_size=1,
        max_size=2,
    )
)
def test_one_text_of_a_key_however_it_is_written(keys):
    turned = dict(reversed(keys.items()))
    texts = [
        json.dumps({"dynamodb": {"NewImage": {"n": {"N": "1"}}, "Keys": keys}}),
        json.dumps({"dynamodb": {"Keys": turned}}, ensure_ascii=False, indent=1),
    ]
    canonical = json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert [item_key(encoded(text)) for text in texts] == [canonical] * 2


@pytest.mark.parametrize(
    "data",
    [
        None,
        "",
        "no base64",
        "e",
        encoded("<html>"),
        encoded('{"eventID":"e"}'),
        encoded('{"dynamodb":{}}'),
        encoded('{"dynamodb":{"Keys":{"n":{"N":1}}}}'),
        encoded('{"dynamodb":{"Keys":{"s":{"S":"\\ud800"}}}}'),
        encoded("[" * 100_000),
        base64.b64encode(b'{"dynamodb":{"Keys":{"s":{"S":"\xff"}}}}').decode(),
    ],
)
def test_data_without_a_key_has_the_empty_one(data):
    assert item_key(data) == ""


# -- all of it ---------------------------------------------------------------------------------------

KEYS = st.sampled_from(["", "a", "b", "c", "customer-17", "Zoë", "\x1f", "𝄞"])
PAYLOADS = st.binary(max_size=5)
SINGLES = st.tuples(KEYS, PAYLOADS)
AGGREGATES = st.lists(SINGLES, min_size=1, max_size=5)
POSITIONS = st.one_of(
    st.sampled_from([TRIM_HORIZON, LATEST]),
    st.builds(At, st.integers(0, 90).map(str), st.integers(0, 5)),
)


@st.composite
def batches(draw):
    """Records of Kinesis with numbers that rise, some of them aggregates."""
    contents = draw(st.lists(st.one_of(SINGLES, AGGREGATES), max_size=8))
    records = []
    for number, content in enumerate(contents, start=1):
        key, payload = ("k", aggregate(*content)) if isinstance(content, list) else content
        records.append(record(number * 10, key, payload, float(number)))
    return records


@given(
    batches(),
    st.lists(st.one_of(st.none(), POSITIONS), min_size=1, max_size=5),
    POSITIONS,
    st.sampled_from([300, 2**20]),
)
def test_parts_are_the_line_of_one_child_told_to_several(records, floors, checkpoint, most_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery_module, "ENOUGH_BYTES", most_bytes)
        alone = deliver(batch_of(*records), checkpoint, None, even_if_empty=False)
        parted = routed(*records, floors=floors, checkpoint=checkpoint)
        while True:
            _check(alone, parted, floors)
            assert (alone.rest is None) == (parted.rest is None)
            if alone.rest is None:
                break
            alone, parted = deliver_rest(alone.rest), deliver_rest(parted.rest)


def _check(alone, parted, floors):
    for name in ("records", "kept", "data_bytes", "smallest", "largest", "missing"):
        assert getattr(parted, name) == getattr(alone, name), name
    assert parted.line is None
    whole = [] if alone.line is None else json.loads(alone.line)["records"]
    behind = None if alone.line is None else json.loads(alone.line)["millisBehindLatest"]
    expected = {}
    for one in whole:
        child = crc32(one["partitionKey"].encode()) % len(floors)
        at = At(one["sequenceNumber"], one["subSequenceNumber"])
        if floors[child] is not None and at > floors[child]:
            expected.setdefault(child, []).append(one)
    got = {part.child: json.loads(part.line) for part in parted.parts}
    assert list(got) == sorted(expected)
    assert {child: line["records"] for child, line in got.items()} == expected
    for part in parted.parts:
        some, line = expected[part.child], got[part.child]
        assert line["millisBehindLatest"] == behind
        assert part.line.endswith(b"}\n")
        assert part.records == len(some)
        assert part.data_bytes == sum(len(base64.b64decode(one["data"])) for one in some)
        ends = [At(one["sequenceNumber"], one["subSequenceNumber"]) for one in some]
        assert (part.smallest, part.largest) == (ends[0], ends[-1])
        assert part.arrived_s == some[0]["approximateArrivalTimestamp"] / 1000
