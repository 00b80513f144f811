"""Partitions of an Iceberg table, as a file writes them."""

import re

import pytest

from kcl_mld.config.spark.partitions import PartitionField, partition_fields


def test_columns_and_transforms_are_read_in_order():
    text = " day(ts), bucket(16, user) ,truncate( 4 ,name), country, , HOUR(t 2)"
    assert partition_fields(text) == (
        PartitionField("ts", "day"),
        PartitionField("user", "bucket", 16),
        PartitionField("name", "truncate", 4),
        PartitionField("country"),
        PartitionField("t 2", "hour"),
    )
    assert [str(each) for each in partition_fields(text)] == [
        "day(ts)",
        "bucket(16, user)",
        "truncate(4, name)",
        "country",
        "hour(t 2)",
    ]
    assert partition_fields("") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("day(ts", "is no partition: write column"),
        ("ts)", "is no partition"),
        ("day()", "is no partition"),
        ("bucket(user, 16)", "is no partition"),
        ("week(ts)", "week is not one of identity, year"),
        ("bucket(user)", "bucket takes a number > 0"),
        ("bucket(0, user)", "bucket takes a number > 0"),
        ("day(3, ts)", "day takes a column alone"),
    ],
)
def test_what_is_no_partition_is_refused_by_name(text, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        partition_fields(text)
