"""What becomes of data, and of records that cannot become columns."""

import datetime as dt

import pyarrow.dataset
import pytest
from pyspark.errors import PySparkException

from kcl_mld.spark.errors import MissingPart, SparkConfigError
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.rows.decode import bad_record_in, make_decoder
from kcl_mld.spark.rows.handoff import HandOff
from kcl_mld.spark.rows.records import RAW_SCHEMA, table_of
from tests.spark.job_kit import batch, caller

pytestmark = pytest.mark.spark

GOOD = b'{"id":1,"amount":2.5,"tags":["x"]}'
BAD = [b"junk", b"", b"[1,2]", b'{"id":"text"}', b"\xff\xfe{", b'{"id":1', b"null", b"17"]
FIT = [GOOD, b'{"id":2}', b'{"id":3,"new":true,"amount":null}', b"{}"]


def frame(spark, *payloads, **settings):
    return caller(**settings).call(spark, MicroBatch((batch("shard-1", *payloads),)))


def test_raw_records_have_the_raw_columns(spark):
    found = frame(spark, b"\x00\xff", decoder="raw", schema=None)
    row = found.collect()[0]
    assert [*row.asDict()] == RAW_SCHEMA.names
    assert bytes(row.data) == b"\x00\xff"
    assert (row.sequence_number, row.sub_sequence_number, row.shard_id) == ("1", 0, "shard-1")
    arrived = row.approximate_arrival_timestamp.astimezone(dt.UTC)
    assert arrived.isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_json_becomes_columns_and_drifted_schemas_nulls(spark):
    rows = frame(spark, *FIT).select("id", "amount", "tags").collect()
    assert [tuple(row) for row in rows] == [
        (1, 2.5, ["x"]),
        (2, None, None),
        (3, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("payload", BAD)
def test_a_bad_record_fails_the_job_and_is_named_without_its_payload(spark, payload):
    def process(df, ctx):
        return df.where("amount > 0").select("id")  # drops what is null, and reads no other column

    with pytest.raises(PySparkException) as failure:
        frame(spark, GOOD, payload, GOOD, function=process).collect()
    assert bad_record_in(str(failure.value)) == "shard-1 at 2.0"


@pytest.mark.parametrize("wanted", ["shard_id = 'shard-2'", "partition_key = 'nobody'"])
def test_a_filter_of_the_function_is_no_way_round_the_check(spark, tmp_path, wanted):
    batches = [batch("shard-1", b"junk"), batch("shard-2", GOOD)]
    tables = {each.batch_id: table_of(each) for each in batches}
    files = HandOff(tmp_path / "rows", least_bytes=0)
    rows = files.frame(spark, files.pack(tables))
    decoder = make_decoder("json", "id int", "fail", spark)
    with pytest.raises(PySparkException) as failure:
        decoder.apply(rows).where(wanted).select("id").collect()
    assert bad_record_in(str(failure.value)) == "shard-1 at 1.0"


def test_a_record_is_decoded_once_whatever_asks_for_it(spark, tmp_path, capsys):
    decoder = make_decoder("json", "id int, amount double", "fail", spark)
    tables = {"one": table_of(batch("shard-1", GOOD))}
    files = HandOff(tmp_path / "rows", least_bytes=0)
    rows = files.frame(spark, files.pack(tables))
    decoder.apply(rows).where("amount > 0").select("id", "amount").explain()
    assert capsys.readouterr().out.count("from_json") == 1


def test_the_policy_null_keeps_a_marked_row(spark):
    found = frame(spark, GOOD, *BAD, decoder__onError="null")
    rows = found.select("id", "amount", "_corrupt").collect()
    assert [row._corrupt for row in rows] == [False, *[True] * len(BAD)]
    assert [tuple(row)[:2] for row in rows[1:]] == [(None, None)] * len(BAD)


def test_what_spark_could_read_of_a_bad_record_is_null_too(spark):
    half_read = b'{"id":7,"amount":"text"}'
    found = frame(spark, half_read, decoder__onError="null").select("id", "amount", "_corrupt")
    assert tuple(found.collect()[0]) == (None, None, True)
    found = frame(spark, b"7,text", decoder="csv", schema="id int, n int", decoder__onError="null")
    assert tuple(found.select("id", "n", "_corrupt").collect()[0]) == (None, None, True)


def test_the_policy_deadletter_keeps_bad_records_elsewhere_once_per_batch(spark, tmp_path):
    path = str(tmp_path / "bad")
    ask = caller(decoder__onError="deadletter", deadletter__path=path)
    batches = [batch("a", GOOD, b"junk"), batch("b", GOOD), batch("c", b"more junk")]
    for _ in range(2):  # a retry overwrites
        ask.keep_bad_rows(spark, MicroBatch(tuple(batches)))
    found = spark.read.parquet(path).collect()
    assert sorted(bytes(row.data) for row in found) == [b"junk", b"more junk"]
    assert sorted({row.batch_id for row in found}) == [batches[0].batch_id, batches[2].batch_id]
    assert not [name for name in found[0].asDict() if name.startswith("_")]
    assert pyarrow.dataset.dataset(path).count_rows() == 2  # it skips folders that begin with _
    good = ask.call(spark, MicroBatch(tuple(batches)))
    assert good.count() == 2


def test_csv_becomes_columns(spark):
    found = frame(spark, b"1,one", b'2,"a, b"', decoder="csv", schema="n int, word string").select(
        "n", "word"
    )
    assert [tuple(row) for row in found.collect()] == [(1, "one"), (2, "a, b")]


def test_a_decoded_column_wins_over_a_raw_one_of_its_name(spark):
    found = frame(spark, b'{"Data":"mine","shard_id":7}', schema="Data string, shard_id int")
    row = found.collect()[0]
    assert (row.Data, row.shard_id, row.sequence_number) == ("mine", 7, "1")
    assert len([name for name in found.columns if name.lower() == "data"]) == 1


def test_a_record_of_a_megabyte_and_an_empty_batch_pass(spark):
    text = "x" * 1_000_000
    found = frame(spark, b'{"w":"%b"}' % text.encode(), schema="w string").select("w").collect()
    assert found[0].w == text
    assert frame(spark).count() == 0


def test_odd_names_and_both_ways_to_write_a_schema_are_taken(spark):
    for schema in ("`a b` int, `c.d` string", "struct<`a b`: int, `c.d`: string>"):
        found = frame(spark, b'{"a b":1,"c.d":"x"}', schema=schema)
        assert found.select("`a b`", "`c.d`").collect()[0][:] == (1, "x")


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        (None, "json", "needs a schema"),
        ("   ", "csv", "needs a schema"),
        ("a nonsense", "json", "is not DDL"),
        ("a int, _Corrupt string", "json", "reserved name '_corrupt'"),
        ("a int, A string", "json", "twice"),
        ("a int", "avro", "is not an Avro record schema"),
        ('{"type":"record"}', "avro", "is not an Avro record schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_before_any_record(spark, schema, kind, text):
    with pytest.raises(SparkConfigError, match=text):
        make_decoder(kind, schema, "fail", spark)


def test_dead_letters_need_a_place(spark):
    with pytest.raises(SparkConfigError, match=r"spark\.deadletter\.path is missing"):
        caller(decoder__onError="deadletter").call(spark, MicroBatch((batch("a", GOOD),)))


AVRO_SCHEMA = '{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}'


def test_avro_without_its_jar_is_a_clear_error(spark):
    with pytest.raises(MissingPart, match=r"give it the package org\.apache\.spark:spark-avro"):
        frame(spark, b"\x02", decoder="avro", schema=AVRO_SCHEMA).collect()
