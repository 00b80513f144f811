"""Which Avro schemas are safe to decode with, and their names for logical types."""

from __future__ import annotations

import pytest

from kcl_mld.retrieval.model.schema import Undecodable
from kcl_mld.retrieval.rules.avro_shape import MOST_DEPTH, safe_schema

EMPTY = {"type": "record", "name": "Empty", "fields": []}


def record_of(*types, name="R", **more):
    fields = [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def nested(depth):
    schema = "int"
    for _ in range(depth - 1):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "string"},
        ["null", "long"],
        [],
        EMPTY,
        record_of("int", {"type": "map", "values": "null"}),
        record_of({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "array", "items": "E"}),
        record_of({"type": "fixed", "name": "F", "size": 4}, ["null", "F"]),
        record_of(record_of("int", name="In", namespace="a.b"), "a.b.In"),
        record_of(record_of("int", name="In"), "In", namespace="x.y"),
        record_of(record_of("int", name="In"), "x.y.In", namespace="x.y"),
        {"type": "error", "name": "E", "fields": []},
        {"type": {"type": "array", "items": ["null", "int"]}},
        nested(MOST_DEPTH),
        {"type": "long", "logicalType": ["nonsense"]},
    ],
)
def test_safe_schemas_pass_as_they_are(schema):
    assert safe_schema(schema) == (schema, False)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "null"}, "without any bytes"),
        ({"type": "array", "items": EMPTY}, "without any bytes"),
        ({"type": "array", "items": record_of("null", EMPTY)}, "without any bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "any bytes"),
        (nested(MOST_DEPTH + 1), "deeper"),
        ({"type": "fixed", "name": "F"}, "size"),
        ({"type": "fixed", "name": "F", "size": -1}, "size"),
        ({"type": "record", "name": "R"}, "fields"),
        ({"type": "record", "name": "R", "fields": ["x"]}, "fields"),
        ({"type": "array"}, "not an Avro schema"),
        (record_of("Missing"), "unknown type"),
        ({"name": "x"}, "not an Avro schema"),
        (5, "not an Avro schema"),
        (None, "not an Avro schema"),
        (["int"] * 100_001, "too large"),
    ],
)
def test_what_is_not_safe_is_refused(schema, why):
    with pytest.raises(Undecodable, match=why):
        safe_schema(schema)


def test_a_reference_counts_with_its_depth():
    deep = record_of(nested(40), name="Deep")
    around = "Deep"
    for _ in range(30):
        around = {"type": "array", "items": around}
    with pytest.raises(Undecodable, match="deeper"):
        safe_schema(record_of(deep, around))


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 5}, "decimal"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "duration"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp-nanos"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "local-timestamp-nanos"),
    ],
)
def test_logical_types_that_need_care_get_names_of_our_own(schema, name):
    renamed = {**schema, "logicalType": f"kcl-mld-{name}"}
    assert safe_schema(schema).schema == renamed
    assert safe_schema(record_of(["null", schema])).schema["fields"][0]["type"][1] == renamed
    assert schema["logicalType"] == name


@pytest.mark.parametrize(
    "attributes",
    [
        {"precision": 0, "scale": 2},
        {"precision": "5"},
        {"precision": 5, "scale": 6},
        {"precision": 5, "scale": None},
        {"precision": 1001},
    ],
)
def test_a_decimal_that_is_none_is_its_bytes(attributes):
    schema = {"type": "bytes", "logicalType": "decimal", **attributes}
    assert safe_schema(schema).schema == {"type": "bytes", **attributes}


@pytest.mark.parametrize(
    "schema",
    [
        record_of(["null", "R"]),
        record_of({"type": "array", "items": "R"}),
        record_of(record_of({"type": "map", "values": "a.R"}, name="In"), namespace="a"),
    ],
)
def test_a_schema_that_refers_to_itself_is_told(schema):
    assert safe_schema(schema) == (schema, True)
