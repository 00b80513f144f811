"""Changes of a table, and their images as plain JSON."""

import base64
import json
from decimal import Decimal
from pathlib import Path

import pytest
from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given, strategies as st

from kcl_mld.spark.rows.item_changes import ItemChange, read_change

RECORDED = json.loads(
    (Path(__file__).parents[3] / "data" / "dynamodb_streams" / "records.json").read_text("utf-8")
)
NONE = ItemChange(None, None, None, None)


def item(image):
    """An image as boto3 reads it, in types that JSON has."""
    return image and {name: in_json(TypeDeserializer().deserialize(v)) for name, v in image.items()}


def in_json(value):
    if isinstance(value, set):
        return sorted(map(in_json, value))
    if isinstance(value, dict):
        return {name: in_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [in_json(each) for each in value]
    if hasattr(value, "value"):  # bytes of boto3
        value = value.value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def read(text):
    return None if text is None else json.loads(text, parse_int=Decimal, parse_float=Decimal)


def in_order(value):
    """Sets have no order."""
    if isinstance(value, dict):
        return {name: in_order(each) for name, each in value.items()}
    return sorted(map(in_order, value), key=repr) if isinstance(value, list) else value


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one["wire"]["eventID"])
def test_recorded_changes_are_read_as_boto3_reads_them(recorded):
    on_wire = recorded["wire"]
    expected = [on_wire["dynamodb"].get(name) for name in ("Keys", "NewImage", "OldImage")]
    if "B" in json.dumps(expected):  # boto3 takes bytes, whose base64 botocore has read
        expected = json.loads(json.dumps(expected), object_hook=decoded)
    change = read_change(recorded["v1_data"].encode())
    assert change.event_name == on_wire["eventName"]
    found = [read(text) for text in change[1:]]
    assert in_order(found) == in_order([item(image) for image in expected])


def decoded(value):
    """A typed value with bytes; a map of attributes is left alone."""
    if value.keys() == {"B"} and isinstance(value["B"], str):
        return {"B": base64.b64decode(value["B"])}
    if value.keys() == {"BS"} and all(isinstance(each, str) for each in value["BS"]):
        return {"BS": [base64.b64decode(each) for each in value["BS"]]}
    return value


def test_the_recordings_have_each_type_and_each_kind_of_change():
    text = json.dumps([one["wire"] for one in RECORDED])
    kinds = ("S", "N", "B", "SS", "NS", "BS", "M", "L", "NULL", "BOOL")
    assert [kind for kind in kinds if f'{{"{kind}":' not in text] == []
    assert {one["wire"]["eventName"] for one in RECORDED} == {"INSERT", "MODIFY", "REMOVE"}


def data(image, **more):
    change = {"eventName": "INSERT", "dynamodb": {"Keys": {}, "NewImage": image}}
    return json.dumps(change | more, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "digits",
    ["12345678901234567890123456789012345678", "-0." + "0" * 129 + "1", "1.50", "1E+20", "0"],
)
def test_numbers_keep_their_digits(digits):
    found = read_change(data({"n": {"N": digits}, "s": {"NS": [digits, "2"]}})).new_image
    assert found == f'{{"n":{digits},"s":[{digits},2]}}'.encode()


def test_what_a_change_does_not_have_is_null():
    keys_only = b'{"eventName":"REMOVE","dynamodb":{"Keys":{"pk":{"S":"\xc3\xa9"}}}}'
    assert read_change(keys_only) == ("REMOVE", '{"pk":"é"}'.encode(), None, None)


BAD = [
    b"",
    b"junk",
    b"null",
    b"[]",
    b"{}",
    b'{"eventName":"INSERT"}',
    b'{"eventName":7,"dynamodb":{}}',
    b'{"eventName":null,"dynamodb":{}}',
    b'{"dynamodb":{"Keys":{}}}',
    data({"n": 1}),
    data({"n": {}}),
    data({"n": {"N": "1", "S": "a"}}),
    data({"n": {"X": "1"}}),
    data({"n": {"N": 1}}),
    data({"n": {"N": "0x1"}}),
    data({"n": {"N": "NaN"}}),
    data({"n": {"N": '1,"more":2'}}),
    data({"n": {"NS": ["1", "01"]}}),
    data({"n": {"NS": 1}}),
    data({"n": {"M": []}}),
    data({"n": {"L": [1]}}),
    data({"n": {"S": "\xff"}}).decode().encode("latin-1"),
    b'{"eventName":"INSERT","dynamodb":{"NewImage":{"n":' + b'{"L":[' * 5000,
    data({})[:-1],
]


@pytest.mark.parametrize("payload", BAD)
def test_what_is_no_change_is_four_nulls(payload):
    assert read_change(payload) == NONE


_typed = st.recursive(
    st.one_of(
        st.text().map(lambda text: ({"S": text}, text)),
        st.booleans().map(lambda flag: ({"BOOL": flag}, flag)),
        st.just(({"NULL": True}, None)),
        st.integers().map(lambda n: ({"N": str(n)}, Decimal(n))),
        st.binary().map(
            lambda b: ({"B": base64.b64encode(b).decode()}, base64.b64encode(b).decode())
        ),
        st.lists(st.integers(), min_size=1).map(
            lambda ns: ({"NS": [*map(str, ns)]}, [*map(Decimal, ns)])
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner).map(lambda pairs: ({"L": [t for t, _ in pairs]}, [p for _, p in pairs])),
        st.dictionaries(st.text(), inner).map(
            lambda pairs: (
                {"M": {name: t for name, (t, _) in pairs.items()}},
                {name: p for name, (_, p) in pairs.items()},
            )
        ),
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _typed))
def test_whatever_an_item_has_is_there_without_its_types(attributes):
    image = {name: typed for name, (typed, _) in attributes.items()}
    found = read(read_change(data(image)).new_image)
    assert found == {name: plain for name, (_, plain) in attributes.items()}


@given(st.binary() | st.recursive(st.text() | st.integers(), st.lists).map(data))
def test_no_data_raises(payload):
    assert read_change(payload) == NONE
