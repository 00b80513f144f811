"""The whole way of a table's changes: DynamoDB Local, daemon, Spark, merge; shards are replaced."""

import sys
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from tests.emulators import CONTROLLED_DYNAMODB_LOCAL, DYNAMODB_LOCAL, Emulator
from tests.process.table_streams import Table
from tests.spark.small_server import SMALL_JVM
from tests.spark.test_recipes import files

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.proof]

STUB = Path(sys.executable).with_name("kcl-mld-spark")
PATIENCE_S = 180.0  # for one step, on a busy machine


class Source(Table):
    """The table that is copied: its key is ``id``, as in the recipe."""

    key = "id"

    def put(self, key, customer, amount):
        item = {"id": {"S": key}, "customer": {"S": customer}, "amount": {"N": amount}}
        self.dynamodb.put_item(TableName=self.name, Item=item)

    def delete(self, key):
        self.dynamodb.delete_item(TableName=self.name, Key={"id": {"S": key}})

    def items(self):
        """Those of the table."""
        found = self.dynamodb.scan(TableName=self.name, ConsistentRead=True)["Items"]
        return {
            item["id"]["S"]: (item["customer"]["S"], Decimal(item["amount"]["N"])) for item in found
        }


@pytest.fixture
def source(tmp_path):
    if not DYNAMODB_LOCAL.missing():
        CONTROLLED_DYNAMODB_LOCAL.fetch_if_missing()
    if reason := CONTROLLED_DYNAMODB_LOCAL.missing():
        pytest.skip(reason)
    with Emulator(CONTROLLED_DYNAMODB_LOCAL) as emulator, EmbeddedAws() as aws:
        made = Source(aws, emulator.url, tmp_path, "Copied")
        yield made
        made.app.kill_all()


def copied(path):
    """The items of the copy."""
    if not DeltaTable.is_deltatable(str(path)):
        return {}
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["customer"], row["amount"]) for row in rows if not row["is_deleted"]}


def test_a_copy_is_equal_to_the_table_through_replaced_shards_and_a_kill(source, tmp_path):
    program, path = tmp_path / "copy.py", tmp_path / "orders_copy"
    program.write_text(files()["copy.py"])

    def start(worker):
        return source.app.start(
            executable=(str(STUB), str(program)),
            worker=worker,
            **{
                "spark.sink": "merge",
                "spark.sink.key": "id",
                "spark.sink.path": str(path),
                "spark.master": "local[1]",
                "spark.driver.memory": "512m",
                "spark.jvm.options": SMALL_JVM,
                "spark.batch.maxDelay": "500ms",
            },
        )

    def is_equal(_run=None):
        return copied(path) == source.items()

    for number in range(20):
        source.put(str(number), "ann", f"{number}.25")
    first = start("w1")
    assert first.wait_for(is_equal, PATIENCE_S), first.output
    source.control(ACTION="ROLLOVER")
    source.delete("3")
    source.put("4", "bob", "4.5")
    assert first.wait_for(is_equal, PATIENCE_S), first.output
    first.kill()
    source.put("3", "eve", "12345678901234567890.75")
    source.delete("4")
    source.control(ACTION="ROLLOVER")
    source.put("20", "zoe", "0")
    second = start("w2")
    assert second.wait_for(is_equal, PATIENCE_S), second.output
    assert copied(path)["3"] == ("eve", Decimal("12345678901234567890.75"))
    assert second.stop() == 0, second.output
    assert len(copied(path)) == 20
