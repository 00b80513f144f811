"""What sinks need: jars, URLs, and what they say of Spark's errors."""

from __future__ import annotations

import pytest

from mld.spark.errors import SparkConfigError
from mld.spark.ports import CommitOutcome
from mld.spark.rows.decode import AVRO_COORDINATE
from mld.spark.sinks.foreach import ForeachSink
from mld.spark.sinks.jdbc_staging import first_line
from mld.spark.sinks.packages import POSTGRES_COORDINATE, sinks_conf
from mld.spark.sinks.postgres_url import connection_arguments, driver_url
from tests.unit.spark.batches import batch, config_of, shard


def conf_of(**more: str) -> dict[str, str]:
    return sinks_conf(config_of(**more))


def test_the_avro_decoder_brings_its_package_beside_that_of_the_sink():
    assert conf_of(sink="merge", decoder="avro") == {"spark.jars.packages": AVRO_COORDINATE}
    both = conf_of(sink="jdbc", sink__url="jdbc:postgresql:d", decoder="avro")
    assert both == {"spark.jars.packages": f"{POSTGRES_COORDINATE},{AVRO_COORDINATE}"}


def test_an_avro_package_of_the_users_is_kept():
    named = "org.apache.spark:spark-avro_2.13:4.0.1"
    for place in ("spark.jars.packages", "spark.jars"):
        assert conf_of(sink="delta", decoder="avro", **{f"conf__{place}": named}) == {}
    assert conf_of(sink="delta", decoder="avro", remote="sc://there:15002") == {}


@pytest.mark.parametrize("sink", ["delta", "merge", "foreach", "jdbc"])
def test_other_sinks_need_nothing(sink):
    assert conf_of(sink=sink) == {}


def test_a_server_that_is_not_ours_gets_nothing():
    assert conf_of(sink="jdbc", sink__url="jdbc:postgresql:d", remote="sc://h:1") == {}


def test_postgresql_brings_its_driver():
    url = "jdbc:postgresql://h/d"
    assert conf_of(sink="jdbc", sink__url=url) == {"spark.jars.packages": POSTGRES_COORDINATE}
    assert conf_of(sink="jdbc", sink__url=url, conf__spark__jars="/x/postgresql-42.jar") == {}
    assert conf_of(sink="jdbc", sink__url="jdbc:mysql://h/d") == {}


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("jdbc:postgresql:orders", {"dbname": "orders"}),
        ("jdbc:postgresql:", {}),
        ("jdbc:postgresql:///orders", {"dbname": "orders"}),
        ("jdbc:postgresql://h/", {"host": "h", "port": "5432"}),
        (
            "jdbc:postgresql://h1:1,[::1]:2,[::2]/a%20b",
            {"host": "h1,::1,::2", "port": "1,2,5432", "dbname": "a b"},
        ),
        (
            "jdbc:postgresql://h/d?user=u&password=p%26q&sslmode=require&connectTimeout=3&foo=1",
            {
                "host": "h",
                "port": "5432",
                "dbname": "d",
                "user": "u",
                "password": "p&q",
                "sslmode": "require",
                "connect_timeout": "3",
            },
        ),
        (
            "jdbc:postgresql:d?ssl=true&currentSchema=s&targetServerType=primary",
            {
                "dbname": "d",
                "sslmode": "verify-full",
                "options": "-csearch_path=s",
                "target_session_attrs": "read-write",
            },
        ),
        (
            "jdbc:postgresql:d?currentSchema=My%20own\\&options=-c%20statement_timeout=5s",
            {"dbname": "d", "options": "-c statement_timeout=5s -csearch_path=My\\ own\\\\"},
        ),
    ],
)
def test_a_url_of_postgresql_is_understood(url, arguments):
    assert connection_arguments(url, {}, {}) == arguments


def test_user_and_password_come_from_the_options_then_the_url_then_the_environment():
    url, environ = "jdbc:postgresql:d?password=url", {"PGUSER": "env", "PGPASSWORD": "env"}
    found = connection_arguments(url, {"password": "option"}, environ)
    assert found == {"dbname": "d", "user": "env", "password": "option"}
    assert connection_arguments(url, {}, environ)["password"] == "url"


def test_what_the_driver_takes_from_the_options_holds_for_both_connections():
    options = {"sslmode": "verify-full", "currentSchema": "a", "batchsize": "5"}
    found = connection_arguments("jdbc:postgresql:d?currentSchema=b", options, {})
    assert found == {"dbname": "d", "sslmode": "verify-full", "options": "-csearch_path=b"}


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("jdbc:postgresql:d?a=%20b", {"user": "u", "batchsize": "5"}, "jdbc:postgresql:d?a=%20b"),
        ("jdbc:postgresql:d?user=u&password=p%26q", {}, "jdbc:postgresql:d"),
        (
            "jdbc:postgresql://h/d?user=u&sslmode=require&options=-c%20a%3Db",
            {"password": "x", "currentSchema": "My own", "sslmode": "disable"},
            "jdbc:postgresql://h/d?sslmode=require&options=-c+a%3Db&currentSchema=My+own",
        ),
    ],
)
def test_the_url_for_spark_says_what_ours_does(url, options, expected):
    assert driver_url(url, options) == expected


def test_a_password_before_the_host_is_refused_and_not_shown():
    with pytest.raises(SparkConfigError, match="have no place before the host") as caught:
        connection_arguments("jdbc:postgresql://kcl:geheim@h/d", {}, {})
    assert "geheim" not in str(caught.value)


def test_another_database_is_refused():
    with pytest.raises(SparkConfigError, match="writes to PostgreSQL only"):
        connection_arguments("jdbc:mysql://h/d", {}, {})


def test_of_an_error_of_spark_the_first_line_is_told():
    assert first_line(RuntimeError("[X] what\n\nJVM stacktrace:\nat a")) == "[X] what"
    assert first_line(RuntimeError()) == "RuntimeError"


def test_foreach_leaves_everything_to_the_function():
    sink = ForeachSink(config_of(sink="foreach"), "app")
    both = [batch(shard(), None, 3), batch(shard(1), 3, 4)]
    sink.prepare(None)
    assert sink.mark(shard()) is None
    staged = sink.write(None, both)
    outcomes = sink.commit_all(staged, both)
    assert outcomes == {each.shard: CommitOutcome.STANDS for each in both}
    sink.discard(staged)
