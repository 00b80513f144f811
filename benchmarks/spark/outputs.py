"""What is committed in a run's output: a Delta table, or the chain of directories before it."""

import contextlib
import dataclasses
import json
import pathlib
import re

from kcl_mld.spark.model import ShardKey
from kcl_mld.spark.table.marks import read_mark

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclasses.dataclass(frozen=True)
class Commit:
    """What became visible in one step.

    Attributes:
        at: seconds since 1970.
        files: in it.
        ends: the last sequence number by shard.
        job: of Spark, whose files they are.
    """

    at: float
    files: int
    ends: dict
    job: str


def commits(path, application, stream, shards):
    """All commits in the order of time.

    Args:
        application: whose marks are read.
    """
    if (pathlib.Path(path) / "_delta_log").is_dir():
        keys = [ShardKey(application, stream, each) for each in shards]
        return sorted(_of_log(pathlib.Path(path), keys), key=lambda each: each.at)
    return sorted(_of_chain(pathlib.Path(path)), key=lambda each: each.at)


def _of_log(path, shards):
    for entry in path.glob("_delta_log/*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        numbers = {
            each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each
        }
        adds = [each["add"] for each in actions if "add" in each]
        marks = {each.shard_id: read_mark(each, numbers.get) for each in shards}
        ends = {name: mark.position.sequence for name, mark in marks.items() if mark.position}
        if ends:
            yield Commit(entry.stat().st_mtime, len(adds), ends, entry.name)


def _of_chain(path):
    """A directory a shard and batch, which ``--before`` may have written."""
    for marker in path.glob("epoch=*/stream=*/shard=*/after=*/_kcl.json"):
        with contextlib.suppress(OSError):
            said = json.loads(marker.read_text())
            files = list(marker.parent.glob("part-*.parquet"))
            shard = marker.parent.parent.name.partition("=")[2]
            job = next((found[0] for one in files if (found := _UUID.search(one.name))), "")
            end = {shard: int(said["to"].partition(".")[0])}
            yield Commit(marker.stat().st_mtime, len(files), end, job)
