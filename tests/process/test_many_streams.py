"""Many streams in one worker: real processes, kclpy children of two programs, a reshard, a roll-out."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import JOURNALING, Application, journals, shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Running

pytestmark = pytest.mark.process


class Streams:
    """Three streams of equal shard ids and one table, which has the name of the first."""

    def __init__(self, new_app: Callable[..., Application]) -> None:
        self.table = new_app(1)
        self.of = {"orders": self.table, "clicks": new_app(2), "views": new_app(1)}
        second = self.table.folder / "second.py"
        shutil.copy(JOURNALING, second)
        self.properties = {
            "streamName": None,
            "multiStream": "true",
            "streams": ", ".join(app.name for app in self.of.values()),
            f"stream.{self.of['clicks'].name}.executableName": (
                f"{sys.executable} {second} 2 each {{streamName}} {{shardId}}"
            ),
        }

    def start(self, **changes: Any) -> Running:
        program = (sys.executable, str(JOURNALING), "3", "batch")
        return self.table.start(executable=program, **{**self.properties, **changes})

    def identifier(self, name: str) -> str:
        app = self.of[name]
        summary = app.kinesis.describe_stream_summary(StreamName=app.name)
        found = summary["StreamDescriptionSummary"]
        account = found["StreamARN"].split(":")[4]
        return f"{account}:{app.name}:{int(found['StreamCreationTimestamp'].timestamp())}"

    def read(self, run: Running, name: str) -> list[str]:
        """Payloads that the children of a stream got, in the order of time."""
        entries = [
            entry
            for journal in journals(run).values()
            for entry in journal
            if entry["saw"] == "records" and entry["stream"] == self.of[name].name
        ]
        entries.sort(key=lambda entry: entry["at"])
        return [record[3] for entry in entries for record in entry["records"]]

    def programs(self, run: Running, name: str) -> set[tuple[str, ...]]:
        stream = self.of[name].name
        return {
            tuple(entry["program"])
            for journal in journals(run).values()
            for entry in journal
            if entry["stream"] == stream
        }


def test_each_stream_goes_to_its_program_in_order_through_a_reshard(new_app):
    streams = Streams(new_app)
    put = {name: app.put(40, key="one") for name, app in streams.of.items()}
    with streams.start() as run:
        wait_until(
            lambda: all(len(streams.read(run, name)) == 40 for name in put), "40 of each are read"
        )
        streams.of["orders"].split(0)
        for name, app in streams.of.items():
            put[name] += app.put(40, key="one")
        wait_until(
            lambda: all(len(streams.read(run, name)) == 80 for name in put), "80 of each are read"
        )
        # One partition key, so one lineage of shards: the order is that of the producer.
        assert {name: streams.read(run, name) for name in put} == put
        clicks = streams.of["clicks"].name
        assert streams.programs(run, "orders") == {("journal.py",)}
        assert streams.programs(run, "clicks") == {
            ("second.py", clicks, shard_id(0)),
            ("second.py", clicks, shard_id(1)),
        }
        orders = streams.identifier("orders")
        rows = streams.table.items()
        assert len(rows) == 6
        wait_until(
            lambda: streams.table.items()[f"{orders}:{shard_id(0)}"]["checkpoint"] == "SHARD_END",
            "the shard that was split has ended",
        )
        child = streams.table.items()[f"{orders}:{shard_id(1)}"]
        assert (child["streamName"], child["shardId"]) == (orders, shard_id(1))
        assert child["parentShardId"] == [shard_id(0)]
        assert {row["streamName"] for row in rows.values()} == {
            streams.identifier(name) for name in streams.of
        }
        assert run.stop() == 0
    assert set(streams.table.owners().values()) == {None}


def test_a_stream_that_another_worker_added_is_read_by_one_that_does_not_list_it(new_app):
    streams = Streams(new_app)
    streams.of["extra"] = new_app(1)
    listed = f"{streams.properties['streams']}, {streams.of['extra'].name}"
    with streams.start(worker="old") as old:
        wait_until(lambda: len(streams.table.items()) == 4, "the leases of three streams")
        with streams.start(worker="new", streams=listed) as new:
            wait_until(lambda: len(streams.table.items()) == 5, "a lease of the fourth")
            assert new.stop() == 0
        put = streams.of["extra"].put(5, key="one")
        wait_until(lambda: streams.read(old, "extra") == put, "the old worker reads the fourth")
        assert old.stop() == 0
    assert "but the lease table has leases of it" in old.output


def test_streams_that_are_missing_are_named_and_exit_with_4(new_app):
    streams = Streams(new_app)
    listed = f"{streams.properties['streams']}, lost-a, lost-b"
    with streams.start(streams=listed, arguments=("--log-format", "text")) as run:
        assert run.ends() == 4
    assert "the streams lost-a, lost-b do not exist in" in run.output


def test_a_table_of_the_other_kind_is_refused_with_5(new_app):
    streams = Streams(new_app)
    with streams.table.start() as single:
        wait_until(streams.table.items, "a lease of a single stream")
        assert single.stop() == 0
    with streams.start() as many:
        assert many.ends() == 5
    assert "kcl-mld leases migrate --to multi-stream" in many.output


def test_the_log_tells_shards_of_one_id_apart(new_app):
    streams = Streams(new_app)
    for app in streams.of.values():
        app.put(1)
    with streams.start(arguments=("--log-format", "text")) as run:
        for app in streams.of.values():
            run.wait_for_log(f"[stream={app.name} shard={shard_id(0)}")
        assert run.stop() == 0
