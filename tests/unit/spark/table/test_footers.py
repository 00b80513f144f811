"""What is read of the files that Spark wrote: values from directories, nulls from footers."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mld.spark.errors import BatchFailed
from mld.spark.table.footers import data_file, partition_values
from tests.unit.spark.table_kit import field, spark_schema, write_file

TYPES = {"at": "timestamp", "day": "date", "p": "string"}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("at=2026-03-29 01%3A30%3A00.000005", "2026-03-29T01:30:00.000005Z"),
        ("at=2026-03-29 02%3A00%3A00", "2026-03-29T02:00:00.000000Z"),
        ("at=2026-03-29 02%3A00%3A00.5", "2026-03-29T02:00:00.500000Z"),
        ("at=0099-01-01 00%3A00%3A00", "0099-01-01T00:00:00.000000Z"),
        ("at=__HIVE_DEFAULT_PARTITION__", None),
        ("day=1500-02-28", "1500-02-28"),
        ("day=9999-12-31", "9999-12-31"),
        ("p=+10000-01-01", "+10000-01-01"),
        ("p=a%2Fb=c %25é", "a/b=c %é"),
    ],
)
def test_the_value_of_a_directory(part, value):
    assert partition_values([part], TYPES) == {part.partition("=")[0]: value}


@pytest.mark.parametrize(
    "part",
    [
        "at=+10000-01-01 00%3A00%3A00",
        "at=0000-12-31 23%3A59%3A59",
        "at=-0001-01-01 00%3A00%3A00",
        "day=+10000-01-01",
        "day=0000-01-01",
        "day=-0005-01-01",
    ],
)
def test_years_that_no_reader_takes_are_refused_with_the_column(part):
    """A commit would stand, and from then on readers fail, whatever rows they want."""
    name = part.partition("=")[0]
    with pytest.raises(BatchFailed, match=rf"partition column {name} has the .* 1 to 9999"):
        partition_values([part], TYPES)


def test_nulls_are_found_whatever_the_name_of_the_column(tmp_path):
    columns = dict.fromkeys(("a.b", "a", "full"), "string")
    rows = [{"a.b": None, "a": "x", "full": "x"}, {"a.b": "x", "a": "x", "full": "x"}]
    write_file(tmp_path / "x", rows, columns, list(columns))
    assert data_file(pq.read_metadata(tmp_path / "x"), "k/j/x", 1, 1, {}).nulls == ["a.b"]


def test_nulls_within_a_struct_are_the_columns(tmp_path):
    struct = field("s", {"type": "struct", "fields": [field("x", "long")]})
    table = pa.table({"s": pa.array([{"x": None}, {"x": 1}])})
    schema = {b"org.apache.spark.sql.parquet.row.metadata": spark_schema({"s": struct})}
    pq.write_table(table.replace_schema_metadata(schema), tmp_path / "x")
    assert data_file(pq.read_metadata(tmp_path / "x"), "k/j/x", 1, 1, {}).nulls == ["s"]
