"""The sink without Spark: tables that are made, tables that are there, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from kcl_mld.spark.config import read_properties, require_places
from kcl_mld.spark.errors import BatchFailed, SinkRefused, SinkUnavailable, SparkConfigError
from kcl_mld.spark.sinks import make_sink
from tests.unit.spark.iceberg_kit import catalog_in, rows_in
from tests.unit.spark.table_kit import at, batch, expected, field, frame, shard

LOCAL = "ns.rows"


def open_sink(path, **properties):
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    given = {
        "spark.sink": "iceberg",
        "spark.sink.path": str(path),
        "spark.sink.table": LOCAL,
        **more,
    }
    config = read_properties(given)
    require_places(config)
    sink = make_sink(config, "app")
    sink.prepare(None)
    return sink


def write(sink, *batches, **more):
    """As the engine does it; what became of each shard."""
    for each in batches:
        sink.mark(each.shard)
    staged = sink.write(frame(*batches, **more), batches)
    outcomes = sink.commit_all(staged, batches)
    sink.discard(staged)
    return [str(outcomes[each.shard]) for each in batches]


class Typed:
    """A frame of one row in given types of Spark and of Arrow."""

    def __init__(self, columns):
        fields = [field(name, kind) for name, (kind, _, _) in columns.items()]
        self.schema = SimpleNamespace(json=lambda: json.dumps({"type": "struct", "fields": fields}))
        self._table = pa.table(
            {name: pa.array([value], kind) for name, (_, kind, value) in columns.items()}
        )

    def toArrow(self):  # noqa: N802 - Spark's name
        return self._table


def commit_typed(sink, after, **columns):
    one = batch(shard(), after, after + 1)
    sink.mark(shard())
    staged = sink.write(Typed(columns), [one])
    assert set(map(str, sink.commit_all(staged, [one]).values())) == {"stands"}


def the_table(path, name=LOCAL):
    return catalog_in(path).load_table(name)


def test_a_missing_table_is_made_and_written_once(tmp_path):
    sink = open_sink(tmp_path / "t")
    assert sink.mark(shard()) is None
    assert write(sink, batch(shard(), 0, 5), batch(shard(1), 0, 3)) == ["stands", "stands"]
    assert write(open_sink(tmp_path / "t"), batch(shard(), 5, 7)) == ["stands"]
    assert open_sink(tmp_path / "t").mark(shard()) == at(7)
    assert rows_in(catalog_in(tmp_path / "t")) == expected(s0=7, s1=3)
    table = the_table(tmp_path / "t")
    assert table.format_version == 2
    assert table.properties["kclMld.upkeep"] == "true"


def test_a_batch_without_rows_moves_the_mark(tmp_path):
    sink = open_sink(tmp_path / "t")
    one = batch(shard(), 0, 4)
    staged = sink.write(frame(), [one])
    assert set(map(str, sink.commit_all(staged, [one]).values())) == {"stands"}
    assert open_sink(tmp_path / "t").mark(shard()) == at(4)


def test_a_catalog_of_the_file_is_used_and_its_name_is_the_users(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    given = {
        "sink__path": "",
        "sink__catalog__name": "prod",
        "sink__catalog__type": "sql",
        "sink__catalog__uri": f"sqlite:///{folder}/c.db",
        "sink__catalog__warehouse": f"file://{folder}",
    }
    sink = open_sink("", **given)
    with pytest.raises(SinkRefused, match="the catalog has no namespace ns: create it"):
        write(sink, batch(shard(), 0, 2))
    theirs = load_catalog(
        "prod", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}"
    )
    theirs.create_namespace("ns")
    assert write(open_sink("", **given), batch(shard(), 0, 2)) == ["stands"]
    assert theirs.load_table(LOCAL).scan().to_arrow().num_rows == 2


def test_a_catalog_that_cannot_be_opened_is_refused_without_its_secrets(tmp_path):
    with pytest.raises(SinkRefused, match="the catalog can't be opened") as caught:
        open_sink(
            "",
            sink__path="",
            sink__catalog__type="sql",
            sink__catalog__uri="nosuch://me:geheim@host/db",
        )
    assert "geheim" not in str(caught.value)


MOMENT = datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=UTC)
STRUCT = {"type": "struct", "fields": [field("a", "long"), field("b", "string")]}
COLUMNS = {
    "flag": ("boolean", pa.bool_(), True),
    "tiny": ("byte", pa.int8(), -128),
    "small": ("short", pa.int16(), 300),
    "number": ("integer", pa.int32(), 7),
    "big": ("long", pa.int64(), 2**62),
    "ratio": ("float", pa.float32(), 0.5),
    "exact": ("double", pa.float64(), 0.1),
    "price": ("decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50")),
    "text": ("string", pa.string(), "größe"),
    "raw": ("binary", pa.binary(), b"\0\xff"),
    "day": ("date", pa.date32(), MOMENT.date()),
    "seen": ("timestamp", pa.timestamp("us", "Europe/Berlin"), MOMENT),
    "local": ("timestamp_ntz", pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
    "both": (STRUCT, pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": None}),
    "list": (
        {"type": "array", "elementType": "short", "containsNull": True},
        pa.list_(pa.int16()),
        [1, None],
    ),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        pa.map_(pa.string(), pa.float64()),
        [("k", 1.5)],
    ),
}


def test_values_of_all_types_come_back_as_they_were(tmp_path):
    sink = open_sink(tmp_path / "t")
    commit_typed(sink, 0, **COLUMNS)
    commit_typed(sink, 1, **{name: (k, a, None) for name, (k, a, _) in COLUMNS.items()})
    table = the_table(tmp_path / "t")
    found, nothing = sorted(
        table.scan().to_arrow().to_pylist(), key=lambda row: row["flag"] is None
    )
    assert found == {name: value for name, (_, _, value) in COLUMNS.items()}
    assert set(nothing.values()) == {None}
    types = {each.name: str(each.field_type) for each in table.schema().fields}
    assert [types[each] for each in ("tiny", "small", "seen", "local")] == [
        "int",
        "int",
        "timestamptz",
        "timestamp",
    ]


def test_partitions_have_transforms_and_names_as_in_sparks_ddl(tmp_path):
    by = "day(seen), bucket(4, big), truncate(2, text), flag"
    sink = open_sink(tmp_path / "t", sink__partitionBy=by)
    commit_typed(sink, 0, **COLUMNS)
    table = the_table(tmp_path / "t")
    assert [each.name for each in table.spec().fields] == [
        "seen_day",
        "big_bucket",
        "text_trunc",
        "flag",
    ]
    assert table.scan(row_filter="text = 'größe'").to_arrow().num_rows == 1
    assert table.scan(row_filter="seen < '2026-03-29T00:00:00+00:00'").to_arrow().num_rows == 0
    commit_typed(open_sink(tmp_path / "t"), 1, **COLUMNS)
    commit_typed(open_sink(tmp_path / "t", sink__partitionBy=by), 2, **COLUMNS)
    with pytest.raises(SinkRefused, match=r"is partitioned by day\(seen\), bucket\(4, big\), tr"):
        open_sink(tmp_path / "t", sink__partitionBy="day(seen)")


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("nothing", "names nothing, but the function's rows have shard_id, n"),
        ("day(n)", "of which there is no day"),
        ("n, n", "makes two partitions n"),
        ("bucket(4, n), bucket(8, n)", "makes two partitions n_bucket"),
    ],
)
def test_partitions_that_cannot_be_made_are_refused_by_name(tmp_path, by, why):
    with pytest.raises(BatchFailed, match=why):
        write(open_sink(tmp_path / "t", sink__partitionBy=by), batch(shard(), 0, 2))


def test_new_columns_are_refused_until_they_are_let_in(tmp_path):
    write(open_sink(tmp_path / "t"), batch(shard(), 0, 2))
    more = {"columns": {"shard_id": "string", "n": "long", "fee": "double"}}
    with pytest.raises(BatchFailed, match=r"no column fee.*spark.sink.schema=addColumns"):
        write(open_sink(tmp_path / "t"), batch(shard(), 2, 4), **more)
    adds = open_sink(tmp_path / "t", sink__schema="addColumns")
    assert write(adds, batch(shard(), 2, 4), **more) == ["stands"]
    assert write(adds, batch(shard(), 4, 5)) == ["stands"]
    assert rows_in(catalog_in(tmp_path / "t")) == expected(s0=5)
    assert [each.name for each in the_table(tmp_path / "t").schema().fields][-1] == "fee"


def test_another_type_is_refused(tmp_path):
    sink = open_sink(tmp_path / "t")
    write(sink, batch(shard(), 0, 2))
    with pytest.raises(BatchFailed, match="do not fit the table: the column n is string"):
        write(sink, batch(shard(), 2, 2), columns={"shard_id": "string", "n": "string"})


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("a.b", "string", "the column a.b has a dot"),
        ("odd", "void", "odd has the type void"),
        ("odd", "variant", "odd has the type variant"),
        ("N", "long", "the columns n and N differ in case only"),
    ],
)
def test_a_column_without_a_place_is_refused_by_name(tmp_path, name, kind, why):
    columns = {"shard_id": "string", "n": "long", name: field(name, kind)}
    one = batch(shard(), 0, 1)
    refused = frame(one)
    refused.schema = SimpleNamespace(
        json=lambda: json.dumps(
            {
                "type": "struct",
                "fields": [
                    kind if isinstance(kind, dict) else field(each, kind)
                    for each, kind in columns.items()
                ],
            }
        )
    )
    with pytest.raises(BatchFailed, match=why):
        open_sink(tmp_path / "t").write(refused, [one])


def test_a_table_in_s3_without_a_catalog_is_refused():
    with pytest.raises(SparkConfigError, match="is no directory of this machine: name one, or a"):
        open_sink("s3://bucket/t")


def test_columns_that_are_added_by_two_at_once_are_there_once(tmp_path):
    write(open_sink(tmp_path / "t"), batch(shard(), 0, 1))
    more = {"columns": {"shard_id": "string", "n": "long", "fee": "double"}}
    sinks = [open_sink(tmp_path / "t", sink__schema="addColumns") for _ in range(2)]
    for sink in sinks:
        sink.mark(shard())
    for number, sink in enumerate(sinks):
        assert write(sink, batch(shard(number), 1 - number, 3), **more) == ["stands"]
    assert [each.name for each in the_table(tmp_path / "t").schema().fields].count("fee") == 1


def test_options_that_nothing_reads_are_named(tmp_path, caplog):
    open_sink(tmp_path / "t", sink__options__compression="zstd")
    assert "no effect: spark.sink.options.compression" in caplog.text


def test_a_catalog_that_does_not_answer_is_an_error_of_its_own(tmp_path, monkeypatch):
    sink = open_sink(tmp_path / "t")

    def fails(*_):
        raise ConnectionError("token=hunter2: nobody there")

    monkeypatch.setattr(SqlCatalog, "load_table", fails)
    for ask in (lambda: sink.mark(shard()), lambda: open_sink(tmp_path / "t")):
        with pytest.raises(SinkUnavailable, match=r"ns.rows can't be read: .*nobody there") as told:
            ask()
        assert "hunter2" not in str(told.value)
