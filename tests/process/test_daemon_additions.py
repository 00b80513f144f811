"""A real daemon and a real child that uses ticks; a row with an attribute of former versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

CHILD = Path(__file__).resolve().parents[1] / "data" / "ticking_child.py"


def told(run: Running) -> list[dict[str, Any]]:
    """What the children of a worker were told."""
    lines = [
        line.split(" ", 2)
        for path in run.folder.glob("lines-*.txt")
        for line in path.read_text().splitlines()
    ]
    return [json.loads(text) for _, direction, text in lines if direction == ">>"]


def ticks(run: Running) -> int:
    return sum(message.get("records") == [] for message in told(run))


#: As a child of a former version had it stored.
FORMER = {"M": {"n": {"N": "1"}, "after": {"S": "x"}, "to": {"S": "y"}, "appId": {"S": "a"}}}


def test_a_child_gets_ticks_and_a_row_with_a_former_attribute_is_served(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    program = (sys.executable, str(CHILD))
    spark = {"spark.sink": "jdbc", "spark.sink.options.password": "hunter2"}
    spark |= {"spark.sink.url": "jdbc:postgresql:d", "spark.sink.table": "rows"}
    first = app.start(executable=program, **spark)
    app.put(3)
    wait_until(lambda: ticks(first) >= 3, "an idle child hears something")
    first.kill()
    app.dynamodb.update_item(
        TableName=app.name,
        Key={"leaseKey": {"S": shard_id(0)}},
        UpdateExpression="SET kclMldIntent = :former",
        ExpressionAttributeValues={":former": FORMER},
    )
    second = app.start(executable=program, **spark)
    wait_until(lambda: ticks(second) >= 2, "the next child hears something")
    start = told(second)[0]
    assert set(start) == {"action", "shardId", "sequenceNumber", "subSequenceNumber"}
    assert second.stop() == 0, second.output
    assert app.owners() == {shard_id(0): None}
    assert "kclMldIntent" in app.items()[shard_id(0)]
    assert "capabilities ['log', 'tick']" in second.output
    assert "hunter2" not in first.output + second.output
