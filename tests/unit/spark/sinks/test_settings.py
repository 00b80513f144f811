"""What sinks need: jars and settings, URLs, statements, and what they say of Spark's errors."""

from __future__ import annotations

import os

import pytest

from mld.spark.config import read_properties
from mld.spark.errors import BatchFailed, SparkConfigError
from mld.spark.rows.decode import AVRO_COORDINATE
from mld.spark.sinks.foreach import ForeachSink
from mld.spark.sinks.merge_statement import merge_statement
from mld.spark.sinks.packages import (
    DELTA_CATALOG,
    DELTA_EXTENSION,
    POSTGRES_COORDINATE,
    delta_coordinate,
    sinks_conf,
)
from mld.spark.sinks.postgres_url import connection_arguments
from mld.spark.sinks.spark_errors import condition, first_line, refuse_none, retry_conflicts
from mld.spark.sinks.write_tasks import write_tasks
from tests.unit.spark.batches import batch, config_of, shard

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"


def conf_of(**more: str) -> dict[str, str]:
    return sinks_conf(config_of(**more), "4.2.1")


def test_merge_brings_the_package_extension_and_catalog_of_delta():
    assert conf_of(sink="merge") == {
        "spark.jars.packages": DELTA,
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def test_the_avro_decoder_brings_its_package_beside_that_of_the_sink():
    assert conf_of(sink="delta", decoder="avro") == {"spark.jars.packages": AVRO_COORDINATE}
    both = conf_of(sink="merge", decoder="avro")
    assert both["spark.jars.packages"] == f"{DELTA},{AVRO_COORDINATE}"
    assert both["spark.sql.extensions"] == DELTA_EXTENSION


def test_an_avro_package_of_the_users_is_kept():
    named = "org.apache.spark:spark-avro_2.13:4.0.1"
    for place in ("spark.jars.packages", "spark.jars"):
        assert conf_of(sink="delta", decoder="avro", **{f"conf__{place}": named}) == {}
    assert conf_of(sink="delta", decoder="avro", remote="sc://there:15002") == {}


@pytest.mark.parametrize("more", [{"sink": "delta"}, {"sink": "foreach"}, {"sink": "jdbc"}])
def test_other_sinks_need_nothing(more):
    assert conf_of(**more) == {}


def test_a_server_that_is_not_ours_gets_nothing():
    assert conf_of(sink="merge", remote="sc://h:15002") == {}


def test_what_the_user_names_stays_and_is_joined():
    more = {
        "conf__spark__jars__packages": "a:b:1",
        "conf__spark__sql__extensions": "x.Y",
        "conf__spark__databricks__delta__snapshotPartitions": "9",
    }
    assert conf_of(sink="merge", conf__spark__sql__catalog__spark_catalog="my.Cat", **more) == {
        "spark.jars.packages": f"a:b:1,{DELTA}",
        "spark.sql.extensions": f"x.Y,{DELTA_EXTENSION}",
    }


@pytest.mark.parametrize("key", ["conf__spark__jars__packages", "conf__spark__jars"])
def test_a_jar_of_delta_that_the_user_names_is_the_one(key):
    found = conf_of(sink="merge", **{key: "x/delta-spark_4.2_2.13-4.4.0.jar"})
    assert "spark.jars.packages" not in found
    assert found["spark.sql.extensions"] == DELTA_EXTENSION


def test_an_extension_that_the_user_names_is_not_doubled():
    found = conf_of(sink="merge", conf__spark__sql__extensions=DELTA_EXTENSION)
    assert "spark.sql.extensions" not in found


def test_a_cluster_keeps_its_own_number_of_tasks_for_the_state_of_a_table():
    assert "spark.databricks.delta.snapshotPartitions" not in conf_of(sink="merge", master="yarn")


def test_postgresql_brings_its_driver():
    url = "jdbc:postgresql://h/d"
    assert conf_of(sink="jdbc", sink__url=url) == {"spark.jars.packages": POSTGRES_COORDINATE}
    assert conf_of(sink="jdbc", sink__url=url, conf__spark__jars="/x/postgresql-42.jar") == {}
    assert conf_of(sink="jdbc", sink__url="jdbc:mysql://h/d") == {}


def test_the_coordinate_follows_the_version_of_spark():
    assert delta_coordinate("4.0.3") == "io.delta:delta-spark_4.0_2.13:4.4.0"


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
    ],
)
def test_a_url_of_postgresql_is_understood(url, arguments):
    assert connection_arguments(url, {}, {}) == arguments


def test_user_and_password_come_from_the_options_then_the_url_then_the_environment():
    url, environ = "jdbc:postgresql:d?password=url", {"PGUSER": "env", "PGPASSWORD": "env"}
    found = connection_arguments(url, {"password": "option"}, environ)
    assert found == {"dbname": "d", "user": "env", "password": "option"}
    assert connection_arguments(url, {}, environ)["password"] == "url"


def test_another_database_is_refused():
    with pytest.raises(SparkConfigError, match="writes to PostgreSQL only"):
        connection_arguments("jdbc:mysql://h/d", {}, {})


def statement(columns: str, target: str, **more: bool) -> str:
    switches = {"updates": True, "evolves": False, **more}
    return merge_statement("db.t", "v", ["a", "b`c"], columns.split(), target.split(), **switches)


def test_a_merge_names_key_and_columns():
    assert statement("a b`c n", "a b`c n more") == (
        "MERGE INTO db.t t USING v s ON t.`a` = s.`a` AND t.`b``c` = s.`b``c` "
        "WHEN MATCHED THEN UPDATE SET t.`a` = s.`a`, t.`b``c` = s.`b``c`, t.`n` = s.`n` "
        "WHEN NOT MATCHED THEN INSERT (`a`, `b``c`, `n`) VALUES (s.`a`, s.`b``c`, s.`n`)"
    )


def test_an_insert_only_merge_updates_nothing():
    assert "UPDATE" not in statement("a b`c", "a b`c", updates=False)


def test_new_columns_are_let_in_by_the_statement():
    text = statement("a", "a", evolves=True)
    assert text.startswith("MERGE WITH SCHEMA EVOLUTION INTO db.t t USING v s ON ")
    assert text.endswith("WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")


def test_a_row_does_not_go_back_where_rows_and_table_have_the_position():
    assert "length(s.sequence_number) > length(t.sequence_number)" in statement(
        "a sequence_number", "a Sequence_Number"
    )
    full = "a sequence_number sub_sequence_number shard_id"
    text = statement(full, full)
    assert "s.sub_sequence_number >= t.sub_sequence_number" in text
    assert "t.shard_id <> s.shard_id" in text
    assert "length" not in statement("a sequence_number", "a")


class SparkError(Exception):
    """As pyspark's: a condition beside the text."""

    def getCondition(self):  # noqa: N802
        return "DELTA_CONCURRENT_APPEND.WITH_HINT"


def test_the_condition_is_read_from_the_text_where_the_error_has_none():
    text = "(io.delta.exceptions.X) [DELTA_PROTOCOL_CHANGED] changed\n\nJVM stacktrace:\nat a"
    assert condition(RuntimeError(text)) == "DELTA_PROTOCOL_CHANGED"
    assert condition(SparkError()) == "DELTA_CONCURRENT_APPEND.WITH_HINT"
    assert condition(RuntimeError("[x] y")) == ""
    assert first_line(RuntimeError(text)) == text.splitlines()[0]
    assert first_line(RuntimeError()) == "RuntimeError"


class Conflicts:
    def __init__(self, times: int, error: Exception) -> None:
        self.left = times
        self.pauses: list[float] = []
        self._error = error

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise self._error
        return "done"


def test_a_commit_that_meets_others_is_repeated():
    call = Conflicts(10, SparkError("x"))
    assert retry_conflicts("t", call, call.pauses.append) == "done"
    assert len(call.pauses) == 10
    assert call.pauses == sorted(call.pauses)


def test_a_commit_that_always_meets_others_is_given_up():
    call = Conflicts(99, SparkError("x"))
    with pytest.raises(BatchFailed, match="came between 11 times"):
        retry_conflicts("t", call, call.pauses.append)


@pytest.mark.parametrize("times", [1, 99])
def test_another_error_is_not_repeated(times):
    call = Conflicts(times, ValueError("x"))
    with pytest.raises(ValueError, match="x"):
        retry_conflicts("t", call, call.pauses.append)
    assert (call.left, call.pauses) == (times - 1, [])


def test_another_error_in_the_last_try_is_told_as_it_is():
    errors: list[Exception] = [SparkError("x")] * 10 + [ValueError("last")]

    def call() -> None:
        raise errors.pop(0)

    with pytest.raises(ValueError, match="last"):
        retry_conflicts("t", call, lambda _: None)


def test_a_missing_frame_is_fine_only_where_there_are_no_rows():
    refuse_none([batch(shard(), 3, 3)], "delta")
    with pytest.raises(BatchFailed, match=r"shardId-000000000001: .*spark\.sink=delta"):
        refuse_none([batch(shard(), 3, 3), batch(shard(1), 3, 4)], "delta")


@pytest.mark.parametrize(("store", "uses"), [("none", False), ("lease", True), ("file", True)])
def test_foreach_numbers_its_batches_unless_there_is_no_store(store, uses):
    sink = ForeachSink(config_of(sink="foreach", intent__store=store), "app")
    assert sink.uses_intents is uses
    assert sink.coalesces is False


def test_foreach_leaves_everything_to_the_function():
    sink = ForeachSink(config_of(sink="foreach"), "app")
    one = batch(shard(), None, 3, 1)
    sink.prepare(None)
    assert sink.mark(one.shard) is None
    staged = sink.write(None, [one])
    sink.commit(staged, one)
    sink.discard(staged)


def test_a_frame_that_nobody_would_write_is_refused():
    sink = ForeachSink(config_of(sink="foreach"), "app")
    with pytest.raises(BatchFailed, match="write by itself and return None"):
        sink.write(object(), [batch(shard(), None, 3, 1)])


@pytest.mark.parametrize(
    ("properties", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4,2]"}, 4),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "yarn"}, None),
        ({"spark.remote": "sc://host"}, None),
        ({"spark.master": "local[2]", "spark.sink.options.writeTasks": "0"}, 0),
    ],
)
def test_a_job_is_written_by_as_many_tasks_as_there_are_cores(properties, tasks):
    assert write_tasks(read_properties(properties)) == tasks


def test_a_number_of_tasks_that_is_none_is_named():
    with pytest.raises(SparkConfigError, match="writeTasks: 'many' is not a whole number"):
        write_tasks(read_properties({"spark.sink.options.writeTasks": "many"}))
