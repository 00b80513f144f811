"""The table of promises names tests that exist, and promises that are too small for a file."""

import ast
import inspect
import re
import threading
from functools import cache
from pathlib import Path

import pytest

from mld.model.config import Config
from mld.spark.model import Position, Row, ShardBatch, ShardKey
from mld.spark.shard.session import ShardSession
from tests.unit.spark.shard_kit import WAIT_S, Bench, MemorySink

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "tests" / "spark" / "README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README)))
ROWS = dict(re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE))


@cache
def names_in(path):
    """Names of the test functions of a file."""
    found = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return {each.name for each in found if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_table_names_exists(path, name):
    assert name.startswith("test_")
    assert name in names_in(path)


def test_each_invariant_has_a_row_of_its_own_and_a_test():
    assert len(ROWS) >= 35
    assert sorted(ROWS, key=int) == list(ROWS)
    assert all("::test_" in row for row in ROWS.values())


def test_every_test_in_the_table_is_spelled_as_a_reference():
    assert len(re.findall(r"::test_", README)) == len(
        re.findall(r"`tests/[\w/]+\.py::test_\w+`", README)
    )


def test_a_shutdown_flushes_for_less_time_than_the_daemon_gives():
    """Invariant 12: or the daemon would kill a child that is about to checkpoint."""
    flush_s = inspect.signature(ShardSession).parameters["shutdown_s"].default
    grace_s = inspect.signature(Config).parameters["shutdown_grace_s"].default
    assert 0 < flush_s < grace_s


def test_no_more_jobs_run_than_max_in_flight():
    """Invariant 22."""
    sink = MemorySink(coalesces=False)
    running, most, changed = [], [], threading.Condition()
    write = sink.write

    def counted(frame, batches):
        with changed:
            running.append(batches)
            most.append(len(running))
            changed.notify_all()
        try:
            return write(frame, batches)
        finally:
            with changed:
                running.remove(batches)

    sink.write = counted
    sink.gate.clear()
    bench = Bench(sink=sink, batch__maxInFlight="2")
    rows = (Row(Position(1), "key", b"x", None),)
    keys = [ShardKey("app", "stream", f"shard-{number}") for number in range(6)]
    futures = [
        bench.engine.submit(ShardBatch(key, None, Position(1), rows), lambda: True) for key in keys
    ]
    with changed:
        assert changed.wait_for(lambda: len(running) == 2, WAIT_S)
    sink.gate.set()
    assert [future.exception(WAIT_S) for future in futures] == [None] * 6
    assert max(most) == 2
    bench.engine.close()
