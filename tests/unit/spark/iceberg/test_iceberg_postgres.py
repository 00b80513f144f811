"""A SQL catalog in PostgreSQL, which workers of several machines may share."""

from __future__ import annotations

import threading

import pytest
from pyiceberg.catalog import load_catalog

from tests.spark import postgres
from tests.unit.spark.iceberg.test_iceberg_aws import counted, open_sink
from tests.unit.spark.iceberg.test_iceberg_sink import write
from tests.unit.spark.table_kit import batch, expected, shard

pytestmark = pytest.mark.process


def test_two_workers_at_once_write_each_row_once(tmp_path):
    if (why := postgres.why_not()) is not None:
        pytest.skip(why)
    with postgres.running_postgres() as server:
        where = f"127.0.0.1:{server.port}/postgres"
        catalog = {
            "type": "sql",
            "uri": f"postgresql+psycopg://kcl:{server.password}@{where}",
            "warehouse": f"file://{tmp_path}",
        }
        theirs = load_catalog("prod", **catalog)
        theirs.create_namespace("ns")
        sinks = [open_sink("ns.rows", name="prod", **catalog) for _ in range(2)]
        assert write(sinks[0], batch(shard(), 0, 1)) == ["stands"]

        def work(number):
            key, begin = shard(number), 1 if number == 0 else 0
            for n in range(begin, 8):
                assert write(sinks[number], batch(key, n, n + 1)) == ["stands"]
            done.append(number)

        done = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(done) == [0, 1]
        rows = theirs.load_table(("ns", "rows")).scan().to_arrow()
        assert counted(rows) == expected(s0=8, s1=8)
        for each in (theirs, *(sink._catalog for sink in sinks)):
            each.close()
