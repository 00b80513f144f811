"""Spark with Iceberg's own runtime reads what the sink wrote, and changes the table between commits.

Through a REST catalog. ``make test-iceberg-spark`` fetches what it needs; elsewhere it is skipped.
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.server.launcher import EmbeddedServer
from tests.spark import other_spark
from tests.spark.conftest import spark_config
from tests.spark.jars import iceberg_jar
from tests.spark.sink_server import open_sessions
from tests.unit.spark.iceberg.rest_catalog import RestCatalogServer
from tests.unit.spark.iceberg.test_iceberg_aws import open_sink
from tests.unit.spark.iceberg.test_iceberg_sink import COLUMNS, commit_typed, write
from tests.unit.spark.table_kit import batch, shard

pytestmark = [
    pytest.mark.spark,
    pytest.mark.proof,
    pytest.mark.skipif(
        not other_spark.is_there(other_spark.OF_ICEBERG), reason="make test-iceberg-spark"
    ),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A catalog behind a server, and a session of Spark that knows it as ``lake``."""
    folder = tmp_path_factory.mktemp("iceberg")
    catalog = SqlCatalog(
        "behind",
        uri=f"sqlite:///{folder}/c.db?check_same_thread=false",
        warehouse=f"file://{folder}/w",
        **{"py-io-impl": "kcl_mld.spark.iceberg.local_files.LocalFiles"},
    )
    catalog.create_namespace("ns")
    java = "org.apache.iceberg.spark"
    (folder / "server").mkdir()
    with RestCatalogServer(catalog, {}) as rest:
        config = spark_config(conf__spark__jars=str(iceberg_jar()))
        more = {
            "spark.sql.extensions": f"{java}.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": f"{java}.SparkCatalog",
            "spark.sql.catalog.lake.type": "rest",
            "spark.sql.catalog.lake.uri": rest.url,
            "spark.sql.catalog.lake.cache-enabled": "false",
            "spark.sql.session.timeZone": "UTC",
        }
        config = replace(config, conf={**config.conf, **more})
        with other_spark.as_server(other_spark.OF_ICEBERG):
            server = EmbeddedServer.launch(config, folder / "server", os.environ)
        try:
            server.wait_ready(180)
            with open_sessions(server, config) as sessions:
                spark = sessions.get()
                yield SimpleNamespace(
                    url=rest.url,
                    catalog=catalog,
                    rows=lambda query: spark.sql(query).toArrow().to_pylist(),
                )
        finally:
            server.stop()
    catalog.close()


def sink_of(lake, name, **more):
    return open_sink(f"ns.{name}", type="rest", uri=lake.url, **more)


def test_spark_reads_each_of_its_types(lake):
    sink = sink_of(lake, "typed")
    commit_typed(sink, 0, **COLUMNS)
    commit_typed(sink, 1, **{name: (k, a, None) for name, (k, a, _) in COLUMNS.items()})
    found, nothing = lake.rows("select * from lake.ns.typed order by flag is null")
    assert found == {name: value for name, (_, _, value) in COLUMNS.items()}
    assert set(nothing.values()) == {None}


def test_what_spark_changes_between_commits_costs_no_row_and_a_rollback_is_refused(lake):
    sink = sink_of(lake, "changed")
    table = "lake.ns.changed"
    assert write(sink, batch(shard(), 0, 5), batch(shard(1), 0, 2)) == ["stands", "stands"]
    lake.rows(
        f"MERGE INTO {table} t USING (SELECT 1L n, 'user' shard_id) s "
        "ON t.n = s.n AND t.shard_id = s.shard_id "
        "WHEN NOT MATCHED THEN INSERT (n, shard_id) VALUES (s.n, s.shard_id)"
    )
    assert write(sink, batch(shard(), 5, 6)) == ["stands"]
    options = "options => map('rewrite-all', 'true')"
    (did,) = lake.rows(f"CALL lake.system.rewrite_data_files(table => '{table}', {options})")
    assert did["rewritten_data_files_count"] > 1
    assert write(sink, batch(shard(), 6, 7)) == ["stands"]
    lake.rows(f"ALTER TABLE {table} ADD COLUMN more string")
    when = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    (did,) = lake.rows(f"CALL lake.system.expire_snapshots(table => '{table}', {when})")
    assert did["deleted_data_files_count"] > 0
    assert write(sink, batch(shard(), 7, 8)) == ["stands"]
    counts = lake.rows(
        f"select shard_id, count(*) c, count(distinct n) d from {table} group by 1 order by 1"
    )
    assert [(row["c"], row["d"]) for row in counts] == [(8, 8), (2, 2), (1, 1)]
    before = lake.catalog.load_table(("ns", "changed")).current_snapshot().parent_snapshot_id
    lake.rows(f"CALL lake.system.rollback_to_snapshot('{table}', {before})")
    with pytest.raises(SinkRefused, match="was rolled back or replaced"):
        write(sink, batch(shard(), 8, 9))
