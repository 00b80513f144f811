"""A child that fails at some payloads: ``poisoned_child.py HOW PAYLOADS [checkpoint|seldom]``.

It writes the payloads of a batch to ``$JOURNAL/processed`` before it answers. ``checkpoint`` stores
the position of each batch, ``seldom`` of one in four.
"""

import base64
import json
import os
import signal
import sys
import time

HOW, POISON = sys.argv[1], set(sys.argv[2].split(","))
WHEN = sys.argv[3:4]
BATCHES = 0


def say(**message):
    sys.stdout.write("\n" + json.dumps(message) + "\n")
    sys.stdout.flush()


def fail(record):
    print("cannot process a record", file=sys.stderr, flush=True)
    match HOW:
        case "exit":
            os._exit(3)
        case "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(3600)
        case "protocol":
            say(action="status", responseFor="initialize")
            time.sleep(3600)
        case "status":
            say(
                action="status",
                responseFor="processRecords",
                failure="this one",
                failedSequenceNumber=record["sequenceNumber"],
                failedSubSequenceNumber=record["subSequenceNumber"],
            )


def process(records):
    texts = [base64.b64decode(one["data"]).decode() for one in records]
    for record, text in zip(records, texts, strict=True):
        if text in POISON:
            fail(record)
            return False
    with open(os.path.join(os.environ["JOURNAL"], "processed"), "a") as journal:
        journal.write("".join(f"{text}\n" for text in texts))
    return True


def checkpoint():
    say(action="checkpoint", sequenceNumber=None, subSequenceNumber=None)
    sys.stdin.readline()


while line := sys.stdin.readline():
    message = json.loads(line)
    action = message["action"]
    if action == "processRecords":
        if not process(message["records"]):
            continue
        BATCHES += 1
        if "checkpoint" in WHEN or ("seldom" in WHEN and BATCHES % 4 == 0):
            checkpoint()
    elif action in ("shardEnded", "shutdownRequested"):
        checkpoint()
    say(action="status", responseFor=action)
