"""Delta tables without Spark: rows that are written as Spark writes them, batches, readers."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.sinks.delta import UPKEEP_THREAD, DeltaSink

BASE = 49590338271490256608559692538361571095921575989136588898
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(38,18)": pa.decimal128(38, 18),
}
COLUMNS = {"shard_id": "string", "n": "long"}


def shard(number=0, epoch="0"):
    return ShardKey("app", "flights", f"shardId-{number:012d}", epoch)


def batch(key, after, to):
    """Records after+1 … to; after 0 is the beginning."""
    rows = tuple(Row(Position(BASE + n), "k", b"%d" % n, None) for n in range(after + 1, to + 1))
    return ShardBatch(key, Position(BASE + after) if after else None, Position(BASE + to), rows)


def at(number):
    """The position of a record."""
    return Position(BASE + number)


def field(name, kind="string", *, nullable=True, **metadata):
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def spark_schema(columns):
    fields = [
        kind if isinstance(kind, dict) else field(name, kind) for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


class Frame:
    """What the sink is given: rows with columns, as Spark Connect hands them over.

    Args:
        rows: dictionaries.
        columns: Spark's types by name, or whole fields.
    """

    def __init__(self, rows, columns=COLUMNS):
        self.rows, self.given = rows, columns
        self.schema = SimpleNamespace(json=lambda: spark_schema(columns))
        self.before_answer = lambda: None

    def toArrow(self):  # noqa: N802 - Spark's name
        self.before_answer()
        return arrow(self.rows, self.given)


def arrow(rows, columns):
    """Rows in Arrow's types."""
    kinds = {
        name: TYPES[kind["type"] if isinstance(kind, dict) else kind]
        for name, kind in columns.items()
    }
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], k) for name, k in kinds.items()}
    )


def frame(*batches, **more):
    return Frame(
        [
            {"shard_id": each.shard.shard_id, "n": row.position.sequence - BASE}
            for each in batches
            for row in each.rows
        ],
        **more,
    )


def open_sink(path, application="app", **properties):
    """A sink over a directory; ``properties`` have ``__`` for a dot, without ``spark``."""
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    config = read_properties({"spark.sink": "delta", "spark.sink.path": str(path), **more})
    sink = DeltaSink(config, application)
    sink.prepare(None)
    return sink


def write(sink, *batches, **more):
    """As the engine does it; what became of each shard."""
    for each in batches:
        sink.mark(each.shard)
    return commit(sink, sink.write(frame(*batches, **more), batches), *batches)


def commit(sink, staged, *batches):
    """A staged job's commit with what follows it; what became of each shard."""
    outcomes = sink.commit_all(staged, batches)
    for thread in threading.enumerate():
        # One that another thread is just starting is listed already, and can't be joined.
        if thread.name == UPKEEP_THREAD and thread.is_alive():
            thread.join()
    sink.discard(staged)
    return [str(outcomes[each.shard]) for each in batches]


def log_entries(path):
    """The actions of the table's log, in order, read without any library."""
    for file in sorted((Path(path) / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            yield json.loads(line)


def rows_in(path):
    """How often each row is in the table, by its log alone."""
    live = {}
    for action in log_entries(path):
        if "add" in action:
            live[action["add"]["path"]] = action["add"]
        if "remove" in action:
            live.pop(action["remove"]["path"])
    found = Counter()
    for name in live:
        table = pq.ParquetFile(Path(path) / name).read()
        found.update(
            (each["shard_id"][-1], each["n"])
            for each in table.select(["shard_id", "n"]).to_pylist()
        )
    return found


def expected(**counts):
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))
