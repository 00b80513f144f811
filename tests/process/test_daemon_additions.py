"""A real daemon and a real child that uses ticks and intents, across a crash of the daemon."""

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

CHILD = Path(__file__).resolve().parents[1] / "data" / "intending_child.py"


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


def intent(app: Application) -> Any:
    return app.items()[shard_id(0)].get("kclMldIntent")


def test_a_daemon_that_dies_leaves_what_its_child_intended_to_the_next(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    program = (sys.executable, str(CHILD))
    spark = {"spark.sink": "jdbc", "spark.sink.options.password": "hunter2"}
    spark |= {"spark.sink.url": "jdbc:postgresql:d", "spark.sink.table": "rows"}
    first = app.start(executable=program, **spark)
    app.put(3)
    wait_until(lambda: app.items().get(shard_id(0)) and intent(app), "an intent is stored")
    wait_until(lambda: ticks(first) >= 3, "an idle child hears something")
    stored = intent(app)
    first.kill()
    second = app.start(executable=program, **spark)
    wait_until(lambda: told(second), "the next child is told")
    start = told(second)[0]
    assert start["intentNumber"] == 1
    assert start["intentAfter"] == "TRIM_HORIZON"
    assert start["intentAppId"] == f"app/{shard_id(0)}"
    assert start["intentTo"].startswith(start["sequenceNumber"])
    assert intent(app) == stored
    app.put(2)
    wait_until(lambda: intent(app) != stored, "the next intent is stored")
    wait_until(lambda: ticks(second) >= 2, "the next child hears something")
    assert second.stop() == 0, second.output
    assert app.owners() == {shard_id(0): None}
    assert intent(app) is not None
    assert "capabilities ['intent', 'tick']" in second.output
    assert "hunter2" not in first.output + second.output
