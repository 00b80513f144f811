"""Children on a real host: what their daemon says and hears, and the servers that run."""

import base64
import contextlib
import json
import sys
from pathlib import Path

from tests.spark.small_server import SMALL_SERVER
from tests.spark.stubs import is_alive, wait_for

START_S = 90.0
#: A small server, and batches that do not wait.
PROPERTIES = {
    **SMALL_SERVER,
    "spark.master": "local[2]",
    "spark.batch.maxDelay": "500ms",
    "spark.log.level": "INFO",
}


def jvms(worker):
    """Servers that were started for the worker's folder, by its marker in their environment."""
    marker = f"FAKE_DIR={worker.folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = marker in (path / "environ").read_bytes().split(b"\0")
            if is_ours and b"SparkConnectServer" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


def start(worker, shard, before=()):
    argv = [*before, sys.executable, "-m", "kcl_mld.spark.stub", str(worker.app)]
    child = worker.child(shard, argv=argv)
    # One that refuses its properties may have ended before it is asked.
    with contextlib.suppress(BrokenPipeError):
        child.say("initialize", shardId=shard, sequenceNumber="TRIM_HORIZON", subSequenceNumber=0)
    return child


def converse(child, action, patience_s, **more):
    """One message up to its status; checkpoints are granted. Every line is a message."""
    if action == "processRecords":
        more = {"records": [], "millisBehindLatest": 0, **more}
    child.say(action, **more)
    return hear_status(child, patience_s)


def hear_status(child, patience_s):
    checkpoints = []
    while True:
        line = child.hear(patience_s)
        assert line, child.end()
        message = json.loads(line)
        if message["action"] == "status":
            return checkpoints
        if message["action"] == "checkpoint":
            checkpoints.append(message["sequenceNumber"])
            child.say(
                "checkpoint", **{k: v for k, v in message.items() if k != "action"}, error=None
            )


def record(number, data=None):
    data = json.dumps({"id": number}).encode() if data is None else data
    return {
        "action": "record",
        "data": base64.b64encode(data).decode(),
        "partitionKey": "key",
        "sequenceNumber": str(number),
        "subSequenceNumber": 0,
        "approximateArrivalTimestamp": 1_700_000_000_000,
    }


def feed(child, numbers):
    """Deliver records and go on with empty batches until they are checkpointed."""
    records = [record(number) for number in numbers]
    found = converse(child, "processRecords", START_S, records=records)

    def more():
        found.extend(converse(child, "processRecords", START_S))
        return str(numbers[-1]) in found

    wait_for(more, "the checkpoint follows the commit", START_S)
    return found
