"""Records of a line become rows, and rows an Arrow table."""

import json

import pyarrow as pa
import pytest

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.registration import Pipeline
from kcl_mld.spark.rows.app_decoder import BATCH_ID, AppDecoder
from kcl_mld.spark.rows.item_changes import CHANGE_COLUMNS
from kcl_mld.spark.rows.records import (
    RAW_SCHEMA,
    SCHEMA_COLUMNS,
    read_delivery,
    rows_of,
    table_of,
)
from kcl_mld_protocol import ProcessRecords, Record, encode


def record(sequence="5", data="aGk=", sub=2, key="k", arrival=1_700_000_000_123):
    return Record(data, key, sequence, arrival, sub)


RECORDS = (
    record(),
    record(sequence=str(10**55), data="", sub=None, key=None, arrival=None),
    record(data=None, key='"\\é\u2028😀'),
)


def test_both_ways_to_read_a_line_give_the_same_rows():
    line = encode(ProcessRecords(RECORDS, 17))
    rows, rest = read_delivery(line)
    assert rows == rows_of(RECORDS)
    assert rows[0] == Row(Position(5, 2), "k", b"hi", 1_700_000_000_123)
    assert rows[1] == Row(Position(10**55, 0), "", b"", None)
    assert json.loads(rest) == {
        "action": "processRecords",
        "records": [],
        "millisBehindLatest": 17,
    }


def test_an_unknown_distance_to_the_tip_stays_unknown():
    _, rest = read_delivery(encode(ProcessRecords((), None)))
    assert json.loads(rest)["millisBehindLatest"] is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"action":"shardEnded"}\n',
        b"",
        b'{"action":"processRecords"}\n',
        b'{"action":"processRecords","records":[{"sequenceNumber":"x"}]}\n',
        b'{"action":"processRecords","records":[{"sequenceNumber":"1","data":"*"}]}\n',
        b'{"action":"processRecords","records":[',
    ],
)
def test_any_other_line_is_left_to_the_connection(line):
    assert read_delivery(line) is None


@pytest.mark.parametrize("bad", [record(sequence=None), record(sequence="x"), record(data="*x*")])
def test_a_record_that_no_daemon_wrote_is_refused(bad):
    with pytest.raises(BatchFailed, match="a record of the daemon cannot be read"):
        rows_of([bad])


def batch(*rows, shard="shard-1"):
    return ShardBatch(ShardKey("app", "stream", shard), None, Position(9), tuple(rows))


def test_rows_become_the_raw_columns():
    table = table_of(batch(*rows_of(RECORDS)))
    assert table.schema == RAW_SCHEMA
    first = table.to_pylist()[0]
    assert first["data"] == b"hi"
    assert (first["sequence_number"], first["sub_sequence_number"]) == ("5", 2)
    assert first["approximate_arrival_timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (first["shard_id"], first["stream_name"]) == ("shard-1", "stream")
    assert table.to_pylist()[1]["approximate_arrival_timestamp"] is None


def named_table(batch, *, with_schemas=False, decoder="raw"):
    config = read_properties({"spark.sink.path": "x"})
    pipeline = Pipeline(lambda df, ctx: df, decoder=decoder)
    return AppDecoder(pipeline, config, with_schemas=with_schemas).table(batch, is_named=True)


def test_a_table_says_whose_each_row_is():
    one, none = batch(*rows_of(RECORDS)), batch()
    assert named_table(one)[BATCH_ID].to_pylist() == [one.batch_id] * 3
    assert named_table(none).num_rows == table_of(none).num_rows == 0
    assert named_table(none).schema == named_table(one).schema


def test_changes_of_a_table_have_columns_of_their_own():
    change = b'{"eventName":"INSERT","dynamodb":{"Keys":{"pk":{"N":"1"}}}}'
    rows = (Row(Position(1), "1", change, None), Row(Position(2), "2", b"junk", None))
    table = named_table(batch(*rows), decoder="dynamodb")
    assert table.column_names == [*RAW_SCHEMA.names, *CHANGE_COLUMNS, BATCH_ID]
    shown = [tuple(row[name] for name in CHANGE_COLUMNS) for row in table.to_pylist()]
    assert shown == [("INSERT", '{"pk":1}', None, None), (None,) * 4]
    assert named_table(batch(), decoder="dynamodb").schema == table.schema
    assert {table.schema.field(name).type for name in CHANGE_COLUMNS} == {pa.string()}


VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"


def test_a_daemon_with_a_schema_registry_gives_columns_of_the_schema():
    framed = Record("aGk=", "k", "5", 1, 0, VERSION, "orders", "AVRO")
    rows, _ = read_delivery(encode(ProcessRecords((framed, record()), 0)))
    assert rows == rows_of([framed, record()])
    assert [row.schema for row in rows] == [(VERSION, "orders", "AVRO"), None]
    table = table_of(batch(*rows), with_schemas=True)
    assert table.column_names == [*RAW_SCHEMA.names, *SCHEMA_COLUMNS]
    shown = [tuple(row[name] for name in SCHEMA_COLUMNS) for row in table.to_pylist()]
    assert shown == [(VERSION, "orders", "AVRO"), (None, None, None)]
    several = named_table(batch(*rows), with_schemas=True)
    assert several.column_names == [*table.column_names, BATCH_ID]
    assert named_table(batch(), with_schemas=True).schema == several.schema
    assert table_of(batch(*rows)).schema == RAW_SCHEMA
