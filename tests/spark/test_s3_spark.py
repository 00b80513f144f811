"""Spark writes to S3 by Hadoop's client, and the table there has each row once."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from mld.local.embedded import EmbeddedAws
from mld.spark.ports import CommitOutcome
from mld.spark.server.launcher import EmbeddedServer
from mld.spark.server.s3 import s3_conf
from mld.spark.sinks import make_sink
from mld.spark.table.s3_look import require_buckets
from tests.spark.conftest import spark_config
from tests.spark.jars import WHY_NOT, s3_jars
from tests.spark.sink_server import batch, frame, open_sessions, shard

pytestmark = [pytest.mark.spark, pytest.mark.untraced]


def test_spark_writes_a_table_in_s3(tmp_path, monkeypatch):
    if (jars := s3_jars()) is None:
        pytest.skip(WHY_NOT)
    config = spark_config(sink__path="s3://tables/flights", sink__partitionBy="shard_id")
    with EmbeddedAws() as aws:
        for name, text in aws.environment.items():
            monkeypatch.setenv(name, text)
        aws.client("s3").create_bucket(Bucket="tables")
        conf = {}
        for bucket, reach in require_buckets(config).items():
            conf |= s3_conf(bucket, reach, {}, tmp_path / "parts")
        conf["spark.jars"] = ",".join(map(str, jars))
        with_client = replace(config, conf={**config.conf, **conf})
        server = EmbeddedServer.launch(with_client, tmp_path / "server", os.environ)
        try:
            server.wait_ready(180)
            with open_sessions(server, config) as sessions:
                spark = sessions.get()
                sink = make_sink(config, "app")
                sink.prepare(spark)
                for ends in ((0, 3), (3, 5)):
                    batches = [batch(shard(number), *ends) for number in range(2)]
                    for each in batches:
                        sink.mark(each.shard)
                    staged = sink.write(frame(spark, batches), batches)
                    found = sink.commit_all(staged, batches)
                    assert set(found.values()) == {CommitOutcome.STANDS}
        finally:
            server.stop()
        options = {"aws_endpoint": aws.moto_url, "aws_allow_http": "true"}
        rows = DeltaTable("s3://tables/flights", storage_options=options).to_pyarrow_table()
        found = sorted(zip(rows["shard_id"].to_pylist(), rows["n"].to_pylist(), strict=True))
        assert found == [(shard(number).shard_id, n) for number in range(2) for n in range(1, 6)]
