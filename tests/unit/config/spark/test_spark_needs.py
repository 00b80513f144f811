"""What the keys of Spark need of one another."""

import pytest

from kcl_mld.config.spark.needs import need_faults

JDBC = {
    "spark.sink": "jdbc",
    "spark.sink.url": "jdbc:postgresql:d",
    "spark.sink.table": "rows",
}


def keys(written):
    return [fault.key for fault in need_faults(written)]


@pytest.mark.parametrize(
    "written",
    [
        JDBC,
        {"spark.sink": "foreach"},
        {"spark.sink": "merge", "spark.sink.path": "out", "spark.sink.key": "a, b"},
        {"spark.sink": "iceberg", "spark.sink.path": "out", "spark.sink.table": "a.b"},
        {
            "spark.sink": "iceberg",
            "spark.sink.table": "a.b",
            "spark.sink.catalog.type": "glue",
            "spark.sink.partitionBy": "day(ts), bucket(4, user)",
        },
        {"spark.sink.path": "out", "spark.decoder": "json"},  # the app may give the schema
        {
            "spark.sink.path": "out",
            "spark.remote": "sc://far",
            "spark.conf.spark.driver.memory": "2g",
        },
    ],
    ids=str,
)
def test_what_fits_together_is_not_told_of(written):
    assert need_faults(written) == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, ["spark.sink.path"]),
        ({"spark.sink": "merge"}, ["spark.sink.path", "spark.sink.key"]),
        (
            {"spark.sink": "merge", "spark.sink.path": "out", "spark.sink.key": " , "},
            ["spark.sink.key"],
        ),
        ({"spark.sink": "jdbc"}, ["spark.sink.url", "spark.sink.table"]),
        ({"spark.sink": "iceberg"}, ["spark.sink.path", "spark.sink.table"]),
        (
            {"spark.sink": "iceberg", "spark.sink.catalog.type": "rest", "spark.sink.table": "t"},
            ["spark.sink.table"],
        ),
        (
            {
                "spark.sink": "iceberg",
                "spark.sink.catalog.type": "rest",
                "spark.sink.path": "out",
                "spark.sink.table": "n.t",
                "spark.sink.partitionBy": "week(ts)",
            },
            ["spark.sink.path", "spark.sink.partitionBy"],
        ),
        (
            {"spark.sink.path": "out", "spark.sink.catalog.type": "rest"},
            ["spark.sink.catalog.type"],
        ),
    ],
    ids=str,
)
def test_what_is_missing_is_told_of_all_at_once(written, expected):
    assert keys(written) == expected


def test_a_password_in_a_url_is_not_shown():
    (fault,) = need_faults(JDBC | {"spark.sink.url": "jdbc:postgresql://kcl:geheim@h/d"})
    assert fault.text.startswith("has user and password, which have no place before the host")
    assert "geheim" not in str(fault)


@pytest.mark.parametrize("sink", ["delta", "foreach"])
def test_a_table_is_created_by_a_key_with_jdbc_alone(sink):
    written = {"spark.sink": sink, "spark.sink.path": "out", "spark.sink.createTable": "true"}
    assert "spark.sink.createTable" in keys(written)
    assert "spark.sink.createTable" not in keys(JDBC | {"spark.sink.createTable": "true"})
