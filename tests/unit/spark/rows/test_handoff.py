"""How rows get into Spark: in the plan, or by a file of ours."""

import errno
import itertools
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.model import MicroBatch, Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.plans.one_call import FunctionCaller
from kcl_mld.spark.registration import Pipeline
from kcl_mld.spark.rows.app_decoder import AppDecoder
from kcl_mld.spark.rows.handoff import HandOff, shared_out
from kcl_mld.spark.rows.records import table_of

#: In place of the batches' own.
KEYS = itertools.count(1)


class Spark:
    """Notes what it is asked to read."""

    def __init__(self):
        self.inline = []
        self.scanned = []

    def createDataFrame(self, table, schema):  # noqa: N802 - as in pyspark
        assert isinstance(schema, StructType)
        self.inline.append(table)
        return "inline"

    @property
    def read(self):
        return self

    def schema(self, schema):
        assert isinstance(schema, StructType)
        return self

    def parquet(self, *urls):
        self.scanned += [url.removeprefix("file://") for url in urls]
        return "scan"


def batches(*shards, count=3):
    rows = tuple(Row(Position(n), "key", b"x" * 50, None) for n in range(count))
    return tuple(
        ShardBatch(ShardKey("app", "s", each), None, Position(count), rows) for each in shards
    )


def tables(*shards, count=3):
    return {next(KEYS): table_of(each) for each in batches(*shards, count=count)}


def hand_over(way, spark, given):
    return way.frame(spark, way.pack(given))


def test_inline_is_one_table_of_all_batches():
    spark = Spark()
    assert hand_over(HandOff(), spark, tables("a", "b")) == "inline"
    assert spark.inline[0].num_rows == 6


def test_few_bytes_go_inline_beside_a_local_server_too(tmp_path):
    spark = Spark()
    assert hand_over(HandOff(tmp_path / "rows"), spark, tables("a")) == "inline"
    assert list((tmp_path / "rows").iterdir()) == []


def test_a_file_has_a_row_group_a_batch_and_only_we_can_read_it(tmp_path):
    spark = Spark()
    given = tables("a", "b")
    assert hand_over(HandOff(tmp_path / "rows", least_bytes=1), spark, given) == "scan"
    (file,) = spark.scanned
    found = pq.ParquetFile(file)
    assert found.metadata.num_row_groups == 2
    assert found.read().to_pylist() == [row for one in given.values() for row in one.to_pylist()]
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o700


def test_a_job_has_a_file_for_each_task_and_a_batch_is_in_one_of_them(tmp_path):
    spark = Spark()
    given = tables("a", "b", "c", "d", "e")
    files = HandOff(tmp_path / "rows", least_bytes=1, most_files=2)
    assert hand_over(files, spark, given) == "scan"
    assert [pq.ParquetFile(file).metadata.num_row_groups for file in spark.scanned] == [2, 3]
    found = [row for file in spark.scanned for row in pq.read_table(file).to_pylist()]
    assert found == [row for one in given.values() for row in one.to_pylist()]
    files.release([0, next(iter(given))])
    assert list((tmp_path / "rows").iterdir()) == []


def sized(*kibs):
    return [pa.table({"data": [b"x" * 1024 * kib]}) for kib in kibs]


@pytest.mark.parametrize(
    ("kibs", "most", "found"),
    [
        ((1, 1, 1, 1), 1, [(1, 1, 1, 1)]),
        ((1, 1, 1, 1), 2, [(1, 1), (1, 1)]),
        ((1, 1, 1, 1), 4, [(1,), (1,), (1,), (1,)]),
        ((1,), 4, [(1,)]),
        ((100, 1, 1), 2, [(100,), (1, 1)]),
        ((1, 1, 100), 2, [(1, 1), (100,)]),
        ((1, 100, 1), 3, [(1,), (100,), (1,)]),
    ],
)
def test_the_bytes_are_shared_out_evenly(kibs, most, found):
    groups = shared_out(sized(*kibs), most)
    assert [
        tuple(len(each["data"][0].as_py()) // 1024 for each in group) for group in groups
    ] == found


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_batch_without_rows_makes_no_group_of_its_own(most):
    nothing = pa.table({"data": pa.array([], pa.binary())})
    (one,) = sized(1)
    assert len(shared_out([one, one, nothing], most)) <= min(most, 2)


def test_what_is_released_while_it_is_written_leaves_no_file(tmp_path, monkeypatch):
    files = HandOff(tmp_path / "rows", least_bytes=1, most_files=2)
    given = tables("a", "b")

    class Released(pq.ParquetWriter):
        def __init__(self, *args, **more):
            files.release(given)  # e.g. the time of the batch is over
            super().__init__(*args, **more)

    monkeypatch.setattr(pq, "ParquetWriter", Released)
    files.pack(given)
    assert list((tmp_path / "rows").iterdir()) == []


def test_nothing_at_all_is_one_group():
    nothing = pa.table({"data": pa.array([], pa.binary())})
    assert shared_out([nothing, nothing], 2) == [[nothing, nothing]]


def test_files_go_when_one_of_their_batches_is_released(tmp_path):
    spark = Spark()
    files = HandOff(tmp_path / "rows", least_bytes=1)
    hand_over(files, spark, first := tables("a", "b"))
    hand_over(files, spark, tables("c"))
    files.release(first)
    files.release(first)
    assert [str(each) for each in (tmp_path / "rows").iterdir()] == spark.scanned[1:]


def test_what_an_earlier_process_left_is_removed(tmp_path):
    left = tmp_path / "rows" / "rows-1.parquet"
    left.parent.mkdir()
    left.write_bytes(b"payload")
    HandOff(tmp_path / "rows")
    assert not left.exists()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_without_rows_is_handed_over_as_well(tmp_path, rows):
    spark = Spark()
    files = HandOff(tmp_path / "rows")
    assert hand_over(files, spark, tables("a", count=rows)) == "inline"
    assert spark.inline[0].num_rows == rows


def test_the_files_of_a_shards_next_hold_stay_when_a_job_of_the_one_before_ends(tmp_path):
    """Both have a batch behind the same position, of one name."""
    config = read_properties({"spark.sink.path": "x"})
    files = HandOff(tmp_path / "rows", least_bytes=1)
    caller = FunctionCaller(
        lambda df, ctx: df, config, AppDecoder(Pipeline(lambda df, ctx: df), config), files
    )
    first, second = (MicroBatch(batches("a")) for _ in range(2))
    caller.pack(first)
    (file,) = caller.pack(second).parcel.files
    caller.release(first)
    assert [each.name for each in (tmp_path / "rows").iterdir()] == [file.name]
    caller.release(second)
    assert list((tmp_path / "rows").iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is full")
def test_a_full_disk_is_told_with_its_directory(tmp_path):
    handoff = HandOff(tmp_path / "rows", least_bytes=0)
    (tmp_path / "rows" / "rows-1-0.parquet").symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"{tmp_path}/rows, which is below TMPDIR: .*space") as it:
        handoff.pack({1: pa.table({"n": range(100_000)})})
    assert it.value.errno == errno.ENOSPC
