"""Tables and columns that a commit without checks may not touch."""

from __future__ import annotations

import json

import pytest
from deltalake.exceptions import CommitFailedError

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.rules import (
    WRITABLE_FEATURES,
    as_nullable,
    bare,
    fields_in,
    index_property,
    misfit,
    refused_features,
    refused_table,
    refused_type,
)
from kcl_mld.spark.table.store import open_store
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
    ("kind", "named"),
    [
        ("timestamp_ntz", "bad has the type timestamp_ntz: "),
        ("variant", "bad has the type variant: "),
        ("void", "bad has the type void: "),
        ("interval day to second", "bad has the type interval day to second: "),
        ("time(6)", "bad has the type time(6): "),
        ("char(3)", "bad has the type char(3): "),
        ("varchar(9)", "bad has the type varchar(9): "),
        ({"type": "udt"}, "bad has the type udt: "),
        (nullable({**ARRAY, "elementType": "void"}), "bad.element has the type void: "),
        (nullable({**MAP, "valueType": "variant"}), "bad.value has the type variant: "),
        (nullable({**MAP, "keyType": "char(1)"}), "bad.key has the type char(1): "),
        (
            {
                "type": "struct",
                "fields": [field("ok"), field("a", {**ARRAY, "elementType": "void"})],
            },
            "bad.a.element has the type void: ",
        ),
    ],
)
def test_types_that_not_every_reader_reads_are_refused_by_name(kind, named):
    found = refused_type([field("ok", "long"), field("bad", kind)])
    assert found.startswith(f"the column {named}")


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


def written_with(path, feature):
    """A table whose writers have to know a feature, as Spark begins one."""
    readers = [feature] if feature in READERS_TOO else []
    needed = ["domainMetadata"] if feature in {"rowTracking", "clustering"} else []
    names = sorted({"appendOnly", "invariants", feature, *needed})
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    schema = json.dumps({"type": "struct", "fields": [field("n", "long")]})
    about = {"id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    actions = [
        {"protocol": {**protocol, "readerFeatures": readers, "writerFeatures": names}},
        {"metaData": {**about, "schemaString": schema, "configuration": {}, "createdTime": 1}},
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))


READERS_TOO = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantType",
    "variantType-preview",
}
OTHER_FEATURES = (
    "allowColumnDefaults",
    "checkpointProtection",
    "clustering",
    "collations",
    "domainMetadata",
    "icebergCompatV2",
    "identityColumns",
    "inCommitTimestamp",
    "materializePartitionColumns",
    "not-yet-thought-of",
    "rowTracking",
    "typeWidening",
    "vacuumProtocolCheck",
    "variantShredding",
)


@pytest.mark.parametrize("feature", sorted({*WRITABLE_FEATURES, *OTHER_FEATURES}))
def test_features_that_delta_rs_writes_are_known_and_others_are_refused_at_once(tmp_path, feature):
    path = tmp_path / "table"
    written_with(path, feature)
    log = DeltaLog(open_store(str(path)))
    with log.snapshot() as table:
        why = refused_features(table.features)
        if feature in WRITABLE_FEATURES:
            table.commit((), {"shard": 1})
            assert not why
        else:
            with pytest.raises(CommitFailedError, match="Unsupported table features"):
                table.commit((), {"shard": 1})
            assert "which delta-rs can't write" in why
    if feature not in WRITABLE_FEATURES:
        with pytest.raises(SinkRefused, match=r"can't be written: the table has the feature \w+"):
            MarkedTable(log, "t", "app", "0").look()


@pytest.mark.parametrize(
    ("kinds", "configuration", "wanted"),
    [
        ({"a": "long", "b": "string", "c": "binary", "d": "boolean"}, {}, None),
        ({"a": "long", "x": "double", "t": "timestamp"}, {}, "a,t"),
        ({"a": "long", "x": "decimal(3,1)", "day": "date"}, {}, "a"),
        ({"a": "long", "s": {"type": "struct", "fields": [field("x", "float")]}}, {}, "a"),
        ({"a": "long", "a b": "long", "x": "float"}, {}, "a"),
        ({"a": "long", "x": "double"}, {"delta.dataSkippingStatsColumns": "a"}, None),
        ({"a": "long", "x": "double"}, {"delta.dataSkippingStatsColumns": "a, x"}, "a"),
        ({"a": "long", "x": "double"}, {"delta.dataSkippingNumIndexedCols": "0"}, None),
        ({f"c{n}": "long" for n in range(40)} | {"x": "float"}, {}, 32),
    ],
)
def test_only_columns_whose_ranges_hold_each_value_are_indexed(kinds, configuration, wanted):
    fields = [field(name, kind) for name, kind in kinds.items()]
    found = index_property(configuration, fields, ["day"])
    if wanted == 32:
        wanted = ",".join(f"c{n}" for n in range(32))
    assert found == (wanted and ("delta.dataSkippingStatsColumns", wanted))


def test_columns_that_differ_in_case_only_are_told():
    fields = [field("id"), field("Fee", "long"), field("fee", "double")]
    assert refused_type(fields) == "the names of the columns Fee and fee differ in case only"


def test_a_table_without_such_a_column_has_no_index():
    found = index_property({}, [field("x", "double")], ())
    assert found == ("delta.dataSkippingNumIndexedCols", "0")
