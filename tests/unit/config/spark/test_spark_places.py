"""What a file names on this machine, looked at before anything is started."""

from __future__ import annotations

import pytest

from kcl_mld.config.spark.addresses import connect_address
from kcl_mld.config.spark.keys import check
from kcl_mld.config.spark.places import PathChecks, local_path, missing_packages, spark_faults

DIRECTORIES = {"/", "/data", "/data/ours", "/data/theirs", "/srv/app", "/closed"}
FILES = {"/data/file"}
CHECKS = PathChecks(
    (DIRECTORIES | FILES).__contains__,
    DIRECTORIES.__contains__,
    {"/data/ours", "/data", "/data/theirs", "/srv/app"}.__contains__,
    names=lambda path: ["a.parquet"] if path == "/data/theirs" else [],
)
FINE = {"spark.sink": "delta", "spark.sink.path": "/data/ours"}
#: What these sinks need besides.
ALSO = {
    "merge": {"spark.sink.key": "id"},
    "iceberg": {"spark.sink.table": "ns.rows"},
    "jdbc": {"spark.sink.url": "jdbc:postgresql:d", "spark.sink.table": "rows"},
}


def told(**more):
    texts = {f"spark.{key.replace('__', '.')}": text for key, text in more.items()}
    texts = FINE | ALSO.get(more.get("sink"), {}) | texts
    texts = {key: text for key, text in texts.items() if text is not None}
    return [
        f"{each.key} {each.text}: {each.advice}" for each in spark_faults(texts, "/srv/app", CHECKS)
    ]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sink__path": "/data/new/deep"},
        {"sink__path": "out"},
        {"sink__path": "file:///data/ours"},
        {"sink": "delta", "sink__partitionBy": "day", "sink__schema": "addColumns"},
        {"sink__partitionBy": "", "sink__schema": "fixed"},
        {"sink": "merge", "sink__schema": "addColumns"},
        {"sink": "foreach", "sink__path": None},
        {"sink": "iceberg"},
        {"sink": "iceberg", "sink__path": "/data/theirs"},
        {"sink": "iceberg", "sink__path": None, "sink__catalog__type": "glue"},
        {"sink": "jdbc", "sink__path": "/closed"},
        {"deadletter__path": "/closed/bad", "remote": "sc://far:15002"},
        {"decoder": "avro", "decoder__schema": '{"type": "record"}'},
        {"decoder": "json", "decoder__schema": "user string, amount double"},
    ],
    ids=str,
)
def test_what_can_be_used_is_not_told_of(more):
    assert told(**more) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"sink__path": "/data/file"},
            "spark.sink.path /data/file is not a directory: name a directory that can be made",
        ),
        (
            {"sink__path": "/data/file/x/y"},
            "spark.sink.path /data/file/x/y lies below /data/file, a file: name a directory",
        ),
        (
            {"sink__path": "/closed"},
            "spark.sink.path /closed can't be written: let this user write /closed, or name",
        ),
        (
            {"sink": "delta", "sink__path": "file:/closed/x/y"},
            "spark.sink.path file:/closed/x/y (/closed/x/y) can't be made: /closed is not ours:",
        ),
        ({"sink__path": "../closed/x"}, "spark.sink.path ../closed/x (/srv/app/../closed/x) can't"),
        (
            {"sink__path": None},
            "spark.sink.path is missing: the delta sink writes there: name a directory",
        ),
        (
            {"sink": "merge", "sink__outputs": "a, b"},
            "spark.sink.outputs is for spark.sink=delta; merge has one output: take the line out",
        ),
        (
            {"sink": "merge", "sink__path": " "},
            "spark.sink.path is missing: the merge sink writes there: name a directory",
        ),
        (
            {"sink__path": "/data/theirs"},
            "spark.sink.path /data/theirs has Parquet files, but is no Delta table: name another",
        ),
        ({"deadletter__path": "/data/file"}, "spark.deadletter.path /data/file is not a dir"),
        ({"decoder__onError": "deadletter"}, "spark.deadletter.path is missing: bad records go"),
        (
            {"function__onError": "deadletter"},
            "spark.function.deadletter.path is missing: records go there of which the function",
        ),
        (
            {"function__deadletter__path": "/data/ours"},
            "spark.function.deadletter.path /data/ours is, holds or lies in the directory /data/ours",
        ),
        (
            {"function__deadletter__path": "/closed/x"},
            "spark.function.deadletter.path /closed/x can't be made: /closed is not ours",
        ),
        (
            {"function__deadletter__path": "gs://bucket/bad"},
            "spark.function.deadletter.path gs://bucket/bad is neither a directory nor in S3",
        ),
        (
            {"sink": "delta", "sink__path": "s3a://bucket"},
            "spark.sink.path s3a://bucket: it names the bucket alone, and a prefix in it is needed",
        ),
        (
            {"sink": "merge", "sink__path": "s3://Bucket/t"},
            "spark.sink.path s3://Bucket/t: 'Bucket' is no name of a bucket: write it like s3://",
        ),
        (
            {"sink": "merge", "sink__path": "s3://bucket/a b/*"},
            "spark.sink.path s3://bucket/a b/*: the prefix 'a b/*' has other characters than",
        ),
        (
            {"sink": "delta", "sink__table": "rows"},
            "spark.sink.table is for jdbc: delta writes its table without a catalog: take",
        ),
        (
            {"sink": "merge", "sink__table": "rows"},
            "spark.sink.table is for jdbc: merge writes its table without a catalog: take the",
        ),
        (
            {"sink": "iceberg", "sink__path": "s3://bucket/t"},
            "spark.sink.path s3://bucket/t is no directory of this machine: name one, or a catalog",
        ),
        (
            {"sink": "iceberg", "function__deadletter__path": "/data/ours/x"},
            "spark.function.deadletter.path /data/ours/x is, holds or lies in the directory",
        ),
        (
            {"sink": "jdbc", "sink__partitionBy": "day"},
            "spark.sink.partitionBy is for spark.sink=delta, merge and iceberg; jdbc has no such",
        ),
        (
            {"sink": "foreach", "sink__schema": "addColumns"},
            "spark.sink.schema is for spark.sink=delta, merge and iceberg; foreach has no such",
        ),
        (
            {"decoder": "avro", "decoder__schema": "flight.avsc"},
            "spark.decoder.schema flight.avsc is the name of a file, and the schema itself is",
        ),
        (
            {"decoder": "avro", "decoder__schema": "{type: record}"},
            "spark.decoder.schema is no Avro schema, which is JSON: Expecting property name",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_told_with_the_way_out(more, expected):
    more = {"sink__path": "/data/ours", **more}
    if more["sink__path"] and "../closed" in more["sink__path"]:
        look = CHECKS._replace(exists=lambda path: path in {"/srv/app/../closed", "/"})
        look = look._replace(is_directory=lambda _: True)
        faults = spark_faults({"spark.sink.path": "../closed/x"}, "/srv/app", look)
        (found,) = [f"{each.key} {each.text}" for each in faults]
    else:
        (found,) = told(**more)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "more",
    [
        {"function__deadletter__path": "/data/ours/"},
        {"function__deadletter__path": "/data/x/..//ours/./"},
        {"function__deadletter__path": "file:///data/ours"},
        {"function__deadletter__path": "../../data/ours"},
        {"function__deadletter__path": "/data/ours/letters"},
        {"function__deadletter__path": "/data"},
        {"function__deadletter__path": "/data/link"},
        {"deadletter__path": "/data/ours/bad"},
        {"sink": "merge", "deadletter__path": "/data/ours"},
        {"function__deadletter__path": "/data/a", "deadletter__path": "/data/a/b"},
        {"sink__path": "s3://bucket/t", "function__deadletter__path": "s3a://bucket/t/bad"},
        {"sink__outputs": "a, errors", "function__deadletter__path": "/data/ours/errors"},
        {"sink__outputs": "a, errors", "function__deadletter__path": "/data/ours"},
    ],
    ids=str,
)
def test_places_in_one_another_are_told_of_however_they_are_spelled(more):
    real = CHECKS.real
    look = CHECKS._replace(
        real=lambda path: {"/data/link": "/data/ours"}.get(real(path), real(path)),
        is_directory=lambda _: True,
        may_write=lambda _: True,
    )
    texts = FINE | {f"spark.{key.replace('__', '.')}": text for key, text in more.items()}
    told = " ".join(each.text for each in spark_faults(texts, "/srv/app", look))
    assert "is, holds or lies in the directory" in told


@pytest.mark.parametrize(
    "more",
    [
        {"function__deadletter__path": "/data/ours-bad", "deadletter__path": "/data/ours2"},
        {"sink__outputs": "a, b", "function__deadletter__path": "/data/ours/letters"},
        {"sink": "jdbc", "function__deadletter__path": "/data/ours/letters"},
        {"sink__path": "s3://bucket/t", "function__deadletter__path": "/data/ours"},
        {"sink__path": "s3://bucket/t", "function__deadletter__path": "s3://bucket/t-bad"},
    ],
    ids=str,
)
def test_places_beside_one_another_are_fine(more):
    assert told(**more) == []


def test_of_a_machine_without_a_root_nothing_is_said():
    nothing = PathChecks(lambda _: False, lambda _: False, lambda _: False)
    assert spark_faults(FINE, "/srv/app", nothing) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a", "/a"),
        ("a/b:c", "a/b:c"),
        ("a:b", "a:b"),
        ("file:/a", "/a"),
        ("file:///a", "/a"),
        ("s3a://b/c", None),
        ("hdfs:/c", None),
    ],
)
def test_a_path_is_known_from_a_url_of_another_store(text, path):
    assert local_path(text) == path


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("spark://host:7077", "must begin with sc://, like sc://host:15002"),
        ("sc://host:port", "is not a URL: "),
        ("sc://", "must look like sc://host:15002/;name=value"),
        ("sc://host/path", "must look like sc://host:15002/;name=value"),
    ],
)
def test_a_server_that_is_written_wrongly_is_told_with_its_key(url, why):
    assert (check("spark.remote", url) or "").startswith(why)


def test_a_server_is_host_and_port():
    assert connect_address("sc://a.b:7/;token=x") == ("a.b", 7)
    assert connect_address("sc://a") == ("a", 15002)
    assert check("spark.remote", " sc://a ") is None


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({"spark.sink.path": "out"}, {"pyiceberg", "sqlalchemy"}),
        ({"spark.sink.catalog.type": "glue"}, {"pyiceberg"}),
        (
            {"spark.sink.catalog.type": "glue", "spark.sink.partitionBy": "day(ts)"},
            {"pyiceberg", "pyiceberg_core"},
        ),
    ],
)
def test_the_packages_of_an_iceberg_table_come_with_its_extra(more, needed):
    given = {"spark.sink": "iceberg", "spark.sink.table": "a.b", **more}
    there = {"pyspark", "pyarrow", "pandas", "grpc"}
    missing = dict(missing_packages(given, there.__contains__))
    assert missing.keys() == needed
    assert set(missing.values()) == {"pip install 'kcl-mld[iceberg]'"}
