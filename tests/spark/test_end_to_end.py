"""The whole way once: stream, daemon, stubs, host, server, table; a split while it is read."""

import collections
import os
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import Application, alive, shard_id, wait_until
from tests.spark.small_server import SMALL_JVM

pytestmark = [pytest.mark.spark, pytest.mark.process]

STUB = Path(sys.executable).with_name("kcl-mld-spark")
PATIENCE_S = 180.0  # for one step, on a busy machine
MARK = "KCL_MLD_TEST_END_TO_END"
APP = """\
print("noise of an app on its way in")
from kcl_mld.spark import run

def process(df, ctx):
    print("noise of a function", ctx.batch_id)
    return df.selectExpr("cast(decode(data, 'UTF-8') as bigint) as id", "shard_id")

run(process)
"""


@pytest.fixture
def app(tmp_path):
    """An application of two shards; every worker that it started is gone afterwards."""
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        made = Application(
            aws,
            "spark-end-to-end",
            tmp_path,
            shardSyncIntervalMillis="500",
            parentShardPollIntervalMillis="300",
        )
        made.create_stream(2)
        yield made
        made.kill_all()


def ids(output):
    """How often each id is in the table, which is a Delta table by default."""
    if not DeltaTable.is_deltatable(str(output)):
        return collections.Counter()
    table = DeltaTable(output).to_pyarrow_table(columns=["id"])
    return collections.Counter(table.column("id").to_pylist())


def has_ended(app, shard):
    """Whether a shard's end is in the table."""
    return app.items()[shard_id(shard)]["checkpoint"] == "SHARD_END"


def processes():
    """Living processes that inherited our mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}=1".encode() in environment.split(b"\0") and alive(int(folder.name)):
                found.append(int(folder.name))
    return found


def test_every_record_is_one_row_through_a_split_and_nothing_stays_behind(app, tmp_path):
    program, output = tmp_path / "app.py", tmp_path / "rows"
    program.write_text(APP)
    output.mkdir()
    app.put(400)
    run = app.start(
        executable=(str(STUB), str(program)),
        environment={MARK: "1"},
        **{
            "spark.sink.path": str(output),
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            "spark.jvm.options": SMALL_JVM,  # and plans compiled as Spark does by default
            "spark.batch.maxDelay": "500ms",
            "spark.batch.maxRecords": "150",
        },
    )
    assert run.wait_for(lambda _: ids(output), PATIENCE_S), run.output
    app.split(0)
    app.put(400)
    assert run.wait_for(lambda _: len(ids(output)) == 800, PATIENCE_S), run.output
    assert run.wait_for(lambda _: has_ended(app, 0), PATIENCE_S), run.output
    assert run.stop() == 0, run.output
    assert ids(output) == collections.Counter(range(800)), run.output
    wait_until(lambda: not processes(), "host and server are gone")
