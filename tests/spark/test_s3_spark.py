"""Rows of a server that knows nothing of S3, in a table there."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.spark.ports import CommitOutcome
from tests.spark.sink_server import batch, frame, open_sink, shard

pytestmark = [pytest.mark.spark, pytest.mark.untraced]


def test_rows_of_spark_are_in_a_table_in_s3(spark, monkeypatch):
    with EmbeddedAws() as aws:
        for name, text in aws.environment.items():
            monkeypatch.setenv(name, text)
        aws.client("s3").create_bucket(Bucket="tables")
        sink = open_sink(spark, sink__path="s3://tables/flights", sink__partitionBy="shard_id")
        for ends in ((0, 3), (3, 5)):
            batches = [batch(shard(number), *ends) for number in range(2)]
            for each in batches:
                sink.mark(each.shard)
            staged = sink.write(frame(spark, batches), batches)
            found = sink.commit_all(staged, batches)
            assert set(found.values()) == {CommitOutcome.STANDS}
        options = {"aws_endpoint": aws.moto_url, "aws_allow_http": "true"}
        rows = DeltaTable("s3://tables/flights", storage_options=options).to_pyarrow_table()
        found = sorted(zip(rows["shard_id"].to_pylist(), rows["n"].to_pylist(), strict=True))
        assert found == [(shard(number).shard_id, n) for number in range(2) for n in range(1, 6)]
