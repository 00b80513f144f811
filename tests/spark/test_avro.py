"""Records in Avro's binary form, on a server that has Spark's Avro."""

import json
import struct

import pytest
from pyspark.errors import PySparkException

from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.rows.decode import bad_record_in, make_decoder
from tests.spark.jars import WHY_NOT, avro_jar
from tests.spark.job_kit import batch, caller

pytestmark = pytest.mark.spark

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "word", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": "double"},
]
NEWER = [*FIELDS, {"name": "flag", "type": "boolean", "default": False}]


@pytest.fixture
def spark(sink_session):
    """The server that the sinks' tests share."""
    if avro_jar() is None:
        pytest.skip(WHY_NOT)
    return sink_session


def schema(fields):
    return json.dumps({"type": "record", "name": "row", "fields": fields})


def encoded(number, word, amount, *more):
    """A record of :data:`FIELDS`; ``more`` are bytes behind it."""
    text = b"\x00" if word is None else b"\x02" + varint(len(word)) + word.encode()
    return varint(number) + text + struct.pack("<d", amount) + b"".join(more)


def varint(number):
    """Avro's long: zigzag, seven bits a byte."""
    rest, found = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        found += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return found + bytes([rest])


GOOD = encoded(1, "one", 2.5)
BAD = [
    b"",
    b"\x02",
    GOOD[:-1],
    b'{"id":1}',
    encoded(1, "one", 2.5)[:1] + b"\x08",  # a branch that the union does not have
    b"\xff" * 12,
    b"\x02\x02" + varint(1 << 30) + b"text",  # a length that no record has
]


def frame(spark, *payloads, fields=FIELDS, **settings):
    ask = caller(decoder="avro", schema=schema(fields), **settings)
    return ask.call(spark, MicroBatch((batch("shard-1", *payloads),)))


def test_records_become_columns(spark):
    found = frame(spark, GOOD, encoded(-(2**40), None, -0.5), encoded(0, "", 0.0))
    rows = found.select("id", "word", "amount", "sequence_number").collect()
    assert [tuple(row) for row in rows] == [
        (1, "one", 2.5, "1"),
        (-(2**40), None, -0.5, "2"),
        (0, "", 0.0, "3"),
    ]


def test_a_schema_whose_fields_may_all_be_null_keeps_its_rows_of_nulls(spark):
    fields = [{"name": "word", "type": ["null", "string"]}]
    found = frame(spark, b"\x00", b"\x02\x02x", fields=fields).select("word").collect()
    assert [row.word for row in found] == [None, "x"]


@pytest.mark.parametrize("payload", BAD)
def test_a_bad_record_fails_the_job_and_is_named_without_its_payload(spark, payload):
    def process(df, ctx):
        return df.where("amount > 0").select("id")

    with pytest.raises(PySparkException) as failure:
        frame(spark, GOOD, payload, GOOD, function=process).collect()
    assert bad_record_in(str(failure.value)) == "shard-1 at 2.0"


def test_the_policy_null_keeps_a_marked_row(spark):
    found = frame(spark, GOOD, *BAD, decoder__onError="null")
    rows = found.select("id", "word", "amount", "_corrupt").collect()
    assert [tuple(row) for row in rows] == [
        (1, "one", 2.5, False),
        *[(None, None, None, True)] * len(BAD),
    ]


def test_the_policy_deadletter_keeps_bad_records_elsewhere(spark, tmp_path):
    path = str(tmp_path / "bad")
    ask = caller(
        decoder="avro",
        schema=schema(FIELDS),
        decoder__onError="deadletter",
        deadletter__path=path,
    )
    batches = [batch("a", GOOD, *BAD), batch("b", GOOD)]
    ask.keep_bad_rows(spark, MicroBatch(tuple(batches)))
    found = spark.read.parquet(path).collect()
    assert sorted(bytes(row.data) for row in found) == sorted(BAD)
    good = ask.call(spark, MicroBatch(tuple(batches)))
    assert [tuple(row) for row in good.select("id", "word").collect()] == [(1, "one")] * 2


def test_fields_that_a_newer_writer_appends_are_ignored(spark):
    newer = encoded(2, "two", 0.5, b"\x01")
    rows = frame(spark, GOOD, newer).select("id", "word", "amount").collect()
    assert [tuple(row) for row in rows] == [(1, "one", 2.5), (2, "two", 0.5)]


def test_a_record_of_an_older_writer_is_bad_for_a_schema_with_more_fields(spark):
    """A record does not say who wrote it, so a default cannot stand in for what is not there."""
    newer = encoded(2, "two", 0.5, b"\x01")
    found = frame(spark, GOOD, newer, fields=NEWER, decoder__onError="null")
    rows = found.select("id", "word", "amount", "flag", "_corrupt").collect()
    assert [tuple(row) for row in rows] == [
        (None, None, None, None, True),
        (2, "two", 0.5, True, False),
    ]


def test_a_schema_that_spark_cannot_read_is_refused_before_any_record(spark):
    unknown = schema([{"name": "id", "type": "no such type"}])
    with pytest.raises(SparkConfigError, match="can't read the decoder's schema"):
        make_decoder("avro", unknown, "fail", spark)
