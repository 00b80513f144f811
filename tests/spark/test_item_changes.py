"""The decoder ``dynamodb``: changes of a table as columns, as JSON text or typed by a schema."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.rows.decode import bad_record_in, make_decoder
from kcl_mld.spark.rows.handoff import HandOff
from kcl_mld.spark.rows.item_changes import CHANGE_COLUMNS
from kcl_mld.spark.rows.records import RAW_SCHEMA
from tests.spark.job_kit import batch, caller

pytestmark = pytest.mark.spark

RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "dynamodb_streams" / "records.json").read_text("utf-8")
)
SCHEMA = "pk string, n decimal(38, 2), tags array<string>, m struct<s: string>, b binary"
DIGITS = "123456789012345678901234567890123456"


def change(name, new=None, old=None, pk="1"):
    images = {"Keys": {"pk": {"S": pk}}, "NewImage": new, "OldImage": old}
    known = {member: image for member, image in images.items() if image is not None}
    return json.dumps({"eventName": name, "dynamodb": known}).encode()


ITEM = {
    "pk": {"S": "1"},
    "n": {"N": f"{DIGITS}.75"},
    "tags": {"SS": ["x", "y"]},
    "m": {"M": {"s": {"S": "é"}, "more": {"BOOL": True}}},
    "b": {"B": "AP8="},
    "unknown": {"NULL": True},
}
OTHER_TYPE = change("INSERT", {"pk": {"S": "1"}, "n": {"S": "many"}})


def frame(spark, *payloads, schema=None, **settings):
    asked = caller(decoder="dynamodb", schema=schema, **settings)
    return asked.call(spark, MicroBatch((batch("shard-1", *payloads),)))


def test_recorded_changes_are_columns_of_json_text(spark):
    found = frame(spark, *(one["v1_data"].encode() for one in RECORDED))
    assert found.columns == [*RAW_SCHEMA.names, *CHANGE_COLUMNS]
    rows = found.orderBy("sequence_number").select(*CHANGE_COLUMNS).collect()
    assert {row.event_name for row in rows} == {"INSERT", "MODIFY", "REMOVE"}
    images = {
        name: [one["wire"]["dynamodb"].get(name) for one in RECORDED]
        for name in ("Keys", "NewImage", "OldImage")
    }
    for column, wire in zip(CHANGE_COLUMNS[1:], images.values(), strict=True):
        texts = [row[column] for row in rows]
        assert sum(text is None for text in texts) == wire.count(None)
        named = sorted(sorted(json.loads(text)) for text in texts if text is not None)
        assert named == sorted(sorted(image) for image in wire if image is not None)


def test_a_schema_makes_structs_of_keys_and_images(spark):
    removed = change("REMOVE", old=ITEM)
    found = frame(spark, change("INSERT", ITEM), removed, schema=SCHEMA).select(*CHANGE_COLUMNS)
    first, second = found.collect()
    new = first.new_image
    assert (first.event_name, first.keys.pk, first.keys.n, first.old_image) == (
        "INSERT",
        "1",
        None,
        None,
    )
    assert (new.pk, new.n, new.tags) == ("1", Decimal(f"{DIGITS}.75"), ["x", "y"])
    assert (new.m.s, bytes(new.b)) == ("é", b"\x00\xff")
    assert [*new.asDict()] == ["pk", "n", "tags", "m", "b"]
    assert (second.event_name, second.new_image, second.old_image) == ("REMOVE", None, new)


@pytest.mark.parametrize(
    ("payload", "schema"),
    [(b"junk", None), (b'{"id":1}', None), (b"junk", SCHEMA), (OTHER_TYPE, SCHEMA)],
)
def test_a_bad_record_fails_the_job_and_is_named(spark, payload, schema):
    def process(df, ctx):
        return df.where("event_name = 'INSERT'").select("sequence_number")

    good = change("INSERT", ITEM)
    with pytest.raises(PySparkException) as failure:
        frame(spark, good, payload, good, schema=schema, function=process).collect()
    assert bad_record_in(str(failure.value)) == "shard-1 at 2.0"


def test_without_a_schema_no_type_is_wrong(spark):
    (row,) = frame(spark, OTHER_TYPE).collect()
    assert json.loads(row.new_image) == {"pk": "1", "n": "many"}


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_the_policy_null_keeps_a_marked_row(spark, schema):
    bad = [b"junk"] if schema is None else [b"junk", OTHER_TYPE]
    found = frame(spark, change("INSERT", ITEM), *bad, schema=schema, decoder__onError="null")
    rows = found.select("data", *CHANGE_COLUMNS, "_corrupt").collect()
    assert [row._corrupt for row in rows] == [False, *[True] * len(bad)]
    assert [tuple(row)[1:5] for row in rows[1:]] == [(None,) * 4] * len(bad)
    assert [bytes(row.data) for row in rows[1:]] == bad


def test_the_policy_deadletter_keeps_bad_records_elsewhere_as_they_came(spark, tmp_path):
    path = str(tmp_path / "bad")
    ask = caller(
        decoder="dynamodb", schema=SCHEMA, decoder__onError="deadletter", deadletter__path=path
    )
    whole = MicroBatch((batch("a", change("INSERT", ITEM), b"junk", OTHER_TYPE),))
    ask.keep_bad_rows(spark, whole)
    found = spark.read.parquet(path)
    assert sorted(found.columns) == sorted([*RAW_SCHEMA.names, "batch_id"])
    assert sorted(bytes(row.data) for row in found.collect()) == sorted([b"junk", OTHER_TYPE])
    assert ask.call(spark, whole).count() == 1


def test_an_image_is_decoded_once_whatever_asks_for_it(spark, tmp_path, capsys):
    files = HandOff(tmp_path / "rows", least_bytes=0)  # Spark computes what is in the plan itself
    found = frame(spark, change("INSERT", ITEM), schema=SCHEMA, handoff=files)
    found.where("new_image.n > 0").select("new_image.n", "new_image.pk").explain()
    assert capsys.readouterr().out.count("from_json") == 3


def test_a_schema_that_is_none_is_refused(spark):
    with pytest.raises(SparkConfigError, match="is not DDL"):
        make_decoder("dynamodb", "a nonsense", "fail", spark)
    assert make_decoder("dynamodb", " ", "fail", spark).names == CHANGE_COLUMNS
