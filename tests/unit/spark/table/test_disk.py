"""What a property may name as the directory of an output."""

import pytest

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table.disk import local_root
from tests.unit.spark.table_kit import at, batch, open_sink, shard, write


@pytest.mark.parametrize("path", ["gs://bucket/x", "hdfs://nn/x", "s3a:/x", "abfss://c@a/x"])
def test_other_stores_are_refused(path):
    with pytest.raises(SinkRefused, match=r"and .*:// is neither\. Name a directory or s3://"):
        local_root(path)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/", "{}/x/.."])
def test_a_path_and_its_url_name_one_directory(tmp_path, form):
    place = tmp_path / "with blank"
    place.mkdir()
    assert local_root(form.format(place)) == place


def test_what_spark_would_read_otherwise_is_refused():
    with pytest.raises(SinkRefused, match=r"Spark reads \* as a pattern"):
        local_root("/data/*")
    with pytest.raises(SinkRefused, match="write it like file:/directory"):
        local_root("file://host/data")
    with pytest.raises(SinkRefused, match="delta-rs reads %20 as an escaped character"):
        local_root("/data/my%20table")


@pytest.mark.parametrize("name", ["100%", "%x", "a#b", "a b", "tü"])
def test_a_table_can_have_such_a_name(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    assert local_root(str(place)) == place
    write(open_sink(place), batch(shard(), 0, 3))
    assert open_sink(place).mark(shard()) == at(3)
