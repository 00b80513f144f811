"""Framed records of a batch: unframed with the keys of their schema, or exactly as they came."""

from __future__ import annotations

import base64
import json
from collections import Counter

import pytest

from kcl_mld.children.rules.delivery import deliver, deliver_rest
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.retrieval.model.schema import KnownSchema, SchemaFailure, SchemaVersion, Undecodable
from kcl_mld.retrieval.rules import schema_frame
from tests.fakes.aggregate import aggregate
from tests.fakes.schema_frames import ORDER, ORDER_ID, frame
from tests.unit.children.rules.test_delivery import VECTORS, batch_of, record

OTHER_ID = "00000000-0000-0000-0000-000000000001"
KNOWN = {ORDER_ID: KnownSchema(ORDER)}
FRAMED = frame(ORDER_ID, b"payload")


def delivered(*records, schemas=KNOWN, checkpoint=TRIM_HORIZON):
    return deliver(batch_of(*records), checkpoint, None, even_if_empty=False, schemas=schemas)


def lines(delivery):
    return json.loads(delivery.line)["records"]


def counted(delivery):
    return {key: failures.count for key, failures in delivery.failures.items()}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_framed_record_comes_out_with_flat_keys(compressed):
    delivery = delivered(record(1, frame(ORDER_ID, b"payload", compressed=compressed)))
    assert lines(delivery) == [
        {
            "data": base64.b64encode(b"payload").decode(),
            "partitionKey": "k",
            "sequenceNumber": "1",
            "approximateArrivalTimestamp": 1000,
            "subSequenceNumber": 0,
            "action": "record",
            "schemaVersionId": ORDER_ID,
            "schemaName": "orders",
            "dataFormat": "AVRO",
        }
    ]
    assert delivery.data_bytes == len(b"payload")  # of the unframed record, as in Java
    assert delivery.versions == {ORDER_ID}
    assert delivery.failures == {}
    assert delivery.largest == At("1")


def test_records_without_a_frame_among_framed_ones_get_no_keys():
    framed, plain = lines(delivered(record(1, FRAMED), record(2, b"plain")))
    assert framed["schemaName"] == "orders"
    assert set(plain) == set(framed) - {"schemaVersionId", "schemaName", "dataFormat"}


@pytest.mark.parametrize("schemas", [None, {}, KNOWN])
def test_what_is_not_framed_is_delivered_byte_for_byte_as_without_schemas(schemas):
    records = [record(1, b"plain"), record(2, b"\x03\x01" + bytes(30)), record(3, b"\x03\x00" * 3)]
    without = delivered(*records, schemas=None)
    assert delivered(*records, schemas=schemas).line == without.line


def test_switched_off_a_frame_is_data_like_any_other():
    (line,) = lines(delivered(record(1, FRAMED), schemas=None))
    assert base64.b64decode(line["data"]) == FRAMED
    assert "schemaVersionId" not in line


def test_unknown_versions_are_told_and_the_batch_is_as_it_was():
    batch = batch_of(
        record(1, FRAMED), record(2, frame(OTHER_ID, b"a")), record(3, frame(OTHER_ID, b"b"))
    )
    first = deliver(batch, TRIM_HORIZON, None, even_if_empty=False, schemas=KNOWN)
    assert first.line is None
    assert first.unknown == Counter({OTHER_ID: 2})
    other = SchemaVersion(OTHER_ID, "other", "JSON", "{}")
    catalogue = {**KNOWN, OTHER_ID: KnownSchema(other)}
    second = deliver(batch, TRIM_HORIZON, None, even_if_empty=False, schemas=catalogue)
    assert [one["schemaName"] for one in lines(second)] == ["orders", "other", "other"]
    assert not second.unknown


def test_a_version_that_could_not_be_had_leaves_its_records_framed_and_counted():
    catalogue = {**KNOWN, OTHER_ID: SchemaFailure.NOT_FOUND}
    false_positive = frame(OTHER_ID, b"\x00\x01")
    delivery = delivered(record(1, false_positive), record(2, FRAMED), schemas=catalogue)
    first, second = lines(delivery)
    assert base64.b64decode(first["data"]) == false_positive
    assert "schemaVersionId" not in first
    assert second["schemaName"] == "orders"
    assert counted(delivery) == {(OTHER_ID, SchemaFailure.NOT_FOUND): 1}


def test_corrupt_zlib_stays_framed_and_its_neighbours_do_not():
    corrupt = frame(ORDER_ID, b"x", compressed=True)[:-3]
    delivery = delivered(record(1, corrupt), record(2, corrupt), record(3, FRAMED))
    assert [base64.b64decode(one["data"]) for one in lines(delivery)] == [
        corrupt,
        corrupt,
        b"payload",
    ]
    assert counted(delivery) == {(ORDER_ID, SchemaFailure.NOT_ZLIB): 2}
    (failure,) = delivery.failures.values()
    assert failure.sequence_number == "1"


def test_user_records_of_an_aggregate_are_unframed():
    data = aggregate(("a", FRAMED), ("b", b"plain"), ("c", frame(ORDER_ID, b"2")))
    found = lines(delivered(record(1, data)))
    assert [base64.b64decode(one["data"]) for one in found] == [b"payload", b"plain", b"2"]
    assert ["schemaName" in one for one in found] == [True, False, True]
    assert [one["subSequenceNumber"] for one in found] == [0, 1, 2]


def test_all_aggregates_expand_as_before_with_schemas_on():
    for vector in VECTORS["deaggregation"]:
        records = [
            record(one["sequenceNumber"], one["dataBase64"], one["partitionKey"])
            for one in vector["input"]
        ]
        assert delivered(*records).line == delivered(*records, schemas=None).line


def test_the_checkpoint_drops_framed_records_too():
    delivery = delivered(record(1, FRAMED), record(2, FRAMED), checkpoint=At("1"))
    assert [one["sequenceNumber"] for one in lines(delivery)] == ["2"]
    assert delivery.records == 2


def test_a_record_without_data_is_left_alone():
    found = lines(delivered({**record(1), "Data": None}, record(2, FRAMED)))
    assert found[0]["data"] is None
    assert found[1]["schemaName"] == "orders"


# --- decoding


def with_decoder(decode):
    return {ORDER_ID: KnownSchema(ORDER, decode)}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_decoded_payload_takes_the_place_of_the_data(compressed):
    schemas = with_decoder(lambda payload: b'{"was":"%b"}' % payload)
    framed = frame(ORDER_ID, b"abc", compressed=compressed)
    (line,) = lines(delivered(record(1, framed), schemas=schemas))
    assert base64.b64decode(line["data"]) == b'{"was":"abc"}'
    assert line["dataFormat"] == "AVRO"


def test_a_payload_that_does_not_fit_its_schema_stays_framed():
    def decode(_payload):
        raise Undecodable("EOFError")

    delivery = delivered(record(7, FRAMED), schemas=with_decoder(decode))
    assert base64.b64decode(lines(delivery)[0]["data"]) == FRAMED
    assert counted(delivery) == {(ORDER_ID, SchemaFailure.UNDECODABLE): 1}
    (failure,) = delivery.failures.values()
    assert (failure.sequence_number, failure.detail) == ("7", "EOFError")


# --- bounds


def test_one_record_is_unframed_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(schema_frame, "MOST_PAYLOAD_BYTES", 100)
    fits = frame(ORDER_ID, bytes(100), compressed=True)
    bomb = frame(ORDER_ID, bytes(101), compressed=True)
    delivery = delivered(record(1, fits), record(2, bomb))
    assert ["schemaName" in one for one in lines(delivery)] == [True, False]
    assert counted(delivery) == {(ORDER_ID, SchemaFailure.TOO_LARGE): 1}


def in_lines(delivery):
    """Sequence numbers of each line of a batch."""
    found = []
    while True:
        found.append([one["sequenceNumber"] for one in lines(delivery)] if delivery.line else None)
        if delivery.rest is None:
            return found
        delivery = deliver_rest(delivery.rest)


def compressed(number, size=100):
    return record(number, frame(ORDER_ID, bytes(size), compressed=True))


def test_a_batch_that_grows_too_large_becomes_several_lines(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 150)
    batch = [record(1, b"plain"), *map(compressed, range(2, 7)), record(7, b"plain")]
    delivery = delivered(*batch)
    assert (delivery.records, delivery.kept, delivery.largest) == (3, 3, At("3"))
    assert delivery.data_bytes == 205
    assert delivery.rest is not None
    assert delivery.rest.size_bytes > 0
    assert in_lines(delivery) == [["1", "2", "3"], ["4", "5"], ["6", "7"]]


def test_what_is_not_compressed_only_gets_shorter_and_needs_no_room(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 150)
    batch = [record(n, frame(ORDER_ID, bytes(1000))) for n in range(1, 5)]
    assert in_lines(delivered(*batch)) == [["1", "2", "3", "4"]]


def test_decoded_payloads_need_room(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 150)
    schemas = with_decoder(lambda _payload: bytes(100))
    batch = [record(n, FRAMED) for n in range(1, 6)]
    assert in_lines(delivered(*batch, schemas=schemas)) == [["1", "2"], ["3", "4"], ["5"]]


def test_a_line_of_which_the_checkpoint_covers_all_is_left_out(monkeypatch):
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 150)
    delivery = delivered(*map(compressed, range(1, 6)), checkpoint=At("3"))
    assert delivery.line is None
    assert delivery.records == 2
    assert in_lines(delivery) == [None, ["4"], ["5"]]


def test_bombs_are_looked_at_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(schema_frame, "MOST_PAYLOAD_BYTES", 100)
    monkeypatch.setattr(schema_frame, "ENOUGH_BYTES", 150)
    batch = [compressed(n, 101) for n in range(1, 6)]
    assert in_lines(delivered(*batch)) == [["1", "2"], ["3", "4"], ["5"]]


def test_what_decoding_makes_is_bounded_too(monkeypatch):
    monkeypatch.setattr(schema_frame, "MOST_PAYLOAD_BYTES", 100)
    delivery = delivered(record(1, FRAMED), schemas=with_decoder(lambda _payload: bytes(101)))
    assert base64.b64decode(lines(delivery)[0]["data"]) == FRAMED
    assert counted(delivery) == {(ORDER_ID, SchemaFailure.TOO_LARGE): 1}
