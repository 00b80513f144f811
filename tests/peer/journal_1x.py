"""A child of a 1.x daemon that keeps the journal of ``tests/data/kclpy/journal.py``.

The library for Python of that time does not run on the Pythons of today.
"""

import base64
import json
import os
import sys
import time

PATH = os.path.join(os.environ["JOURNAL"], f"journal-{os.getpid()}.jsonl")


def note(what, **details):
    with open(PATH, "a") as journal:
        journal.write(
            json.dumps({"at": time.time(), "saw": what, "stream": None, **details}) + "\n"
        )


def say(**message):
    print(json.dumps(message), flush=True)


def checkpoint():
    """Of all records."""
    say(action="checkpoint", sequenceNumber=None)
    answer = json.loads(sys.stdin.readline())
    note("refused" if answer.get("error") else "checkpoint", error=answer.get("error"))


def answer(message):
    match message["action"]:
        case "initialize":
            position = [message.get("sequenceNumber"), message.get("subSequenceNumber")]
            note("initialize", shard=message["shardId"], position=position)
        case "processRecords":
            records = message["records"]
            data = [base64.b64decode(one["data"]).decode() for one in records]
            numbers = [one["sequenceNumber"] for one in records]
            note("records", records=[[n, 0, None, d] for n, d in zip(numbers, data, strict=True)])
            checkpoint()
        case "shutdown":
            note("shard_ended" if message["reason"] == "TERMINATE" else "lease_lost")
            if message["reason"] == "TERMINATE":
                checkpoint()
        case "shutdownRequested":
            note("shutdown_requested")
            checkpoint()
    say(action="status", responseFor=message["action"])


for line in sys.stdin:
    answer(json.loads(line))
note("EOF")
