"""Tables and columns that a commit without checks may not touch."""

from __future__ import annotations

import json

import pytest

from mld.spark.table.rules import (
    as_nullable,
    bare,
    fields_in,
    misfit,
    new_columns,
    refused_table,
    refused_type,
)
from tests.unit.spark.table_kit import field

ARRAY = {"type": "array", "elementType": "long", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
STRUCT = {"type": "struct", "fields": [field("a", "long", nullable=False)]}


def nullable(kind):
    return as_nullable(field("x", kind))["type"]


@pytest.mark.parametrize(
    ("configuration", "metadata", "why"),
    [
        ({}, {}, ""),
        ({"delta.appendOnly": "true", "delta.columnMapping.mode": "none"}, {}, ""),
        ({"delta.setTransactionRetentionDuration": "interval 1 day"}, {}, "UNSET TBLPROPERTIES"),
        ({"delta.constraints.positive": "n > 0"}, {}, "CHECK constraint positive"),
        ({"delta.columnMapping.mode": "name"}, {}, "maps column names"),
        ({"delta.enableChangeDataFeed": "true"}, {}, "change data feed"),
        ({}, {"delta.generationExpression": "n + 1"}, "generated column: n"),
        ({}, {"delta.identity.start": 1}, "identity column: n"),
        ({}, {"delta.invariants": "{}"}, "invariant: n"),
    ],
)
def test_tables_whose_rules_nobody_would_keep_are_refused(configuration, metadata, why):
    assert why in refused_table(configuration, [field("n", "long", **metadata)])
    assert bool(why) == bool(refused_table(configuration, [field("n", "long", **metadata)]))


@pytest.mark.parametrize(
    "kind",
    [
        "timestamp_ntz",
        "variant",
        "void",
        "interval day to second",
        "time(6)",
        "char(3)",
        "varchar(9)",
        {"type": "udt"},
        {"type": "array", "elementType": "void", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
        {"type": "struct", "fields": [field("a", "timestamp_ntz")]},
    ],
)
def test_types_that_not_every_reader_reads_are_refused_by_name(kind):
    assert "column bad has the type" in refused_type([field("ok", "long"), field("bad", kind)])


@pytest.mark.parametrize(
    "kind", ["timestamp", "decimal(10,2)", "date", "binary", ARRAY, MAP, STRUCT]
)
def test_types_that_every_reader_reads_are_not(kind):
    assert refused_type([field("x", kind)]) == ""


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ([field("n", "long"), field("s")], ""),
        ([field("s"), field("n", "long")], ""),
        ([field("n", "long")], ""),
        ([field("s")], "the column n is missing"),
        ([field("n", "integer"), field("s")], "the column n is integer, but long in the table"),
        ([field("N", "long"), field("s")], "no column N; it has n: names differ in case"),
        ([field("n", "long"), field("s"), field("more")], "no column more"),
    ],
)
def test_the_columns_of_a_file_are_those_of_the_table(file, why):
    table = [field("n", "long", nullable=False), field("s"), field("day")]
    assert misfit(table, file, ["day"]) == why or (why and why in misfit(table, file, ["day"]))


def test_nulls_are_refused_where_the_table_allows_none():
    table = [field("n", "long", nullable=False)]
    assert misfit(table, [field("n", "long")], []) == ""
    assert "has nulls" in misfit(table, [field("n", "long")], [], nulls=["n"])


@pytest.mark.parametrize("kind", [ARRAY, MAP, STRUCT, {**ARRAY, "elementType": STRUCT}])
def test_nested_nulls_are_refused_where_the_table_allows_none(kind):
    strict, loose = [field("x", kind)], [field("x", nullable(kind))]
    assert misfit(loose, strict, []) == misfit(strict, strict, []) == misfit(loose, loose, []) == ""
    assert "may have nulls" in misfit(strict, loose, [])


def test_a_file_without_a_nullable_column_of_the_table_fits():
    assert misfit([field("n", "long"), field("s")], [field("n", "long")], []) == ""


def test_types_are_compared_without_nullability_and_metadata():
    assert bare(ARRAY) == bare(nullable(ARRAY)) != bare(MAP) == bare(nullable(MAP))
    assert bare(STRUCT) == bare(nullable(STRUCT))
    assert bare({"type": "udt"}) != bare("long")
    assert nullable({"type": "udt"}) == {"type": "udt"}


def test_new_columns_are_nullable_and_differ_in_more_than_case():
    table = [field("n", "long")]
    file = [field("N", "long"), field("fee", "double", nullable=False, comment="x")]
    assert new_columns(table, file) == [field("fee", "double")]


def test_a_string_with_a_collation_is_a_string():
    """Spark says so of what a Python function returns; a table that is its own has none."""
    collated = "string collate UTF8_BINARY"
    array = {"type": "array", "elementType": collated, "containsNull": True}
    mapped = {"type": "map", "keyType": collated, "valueType": collated, "valueContainsNull": True}
    fields = [field("s", collated), field("a", array), field("m", mapped)]
    text = json.dumps({"type": "struct", "fields": fields})
    plain = json.dumps({"type": "struct", "fields": fields}).replace(collated, "string")
    assert fields_in(text) == fields_in(plain)
    assert misfit(fields_in(plain), fields_in(text), []) == ""
