"""What the Spark host says to the properties that it is handed."""

import pytest

from mld.spark.config import read_properties
from mld.spark.errors import SparkConfigError


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("spark.sink.pth", "did you mean spark.sink.path?"),
        ("spark.MicroBatch.maxRecords", "did you mean spark.batch.maxRecords?"),
        ("spark.sql.shuffle.partitions", "what is meant for Spark itself goes below spark.conf."),
    ],
)
def test_an_unknown_key_is_refused_with_what_may_be_meant(name, advice):
    with pytest.raises(SparkConfigError) as failure:
        read_properties({name: "1"})
    assert str(failure.value) == f"{name}: no such property ({advice})"
