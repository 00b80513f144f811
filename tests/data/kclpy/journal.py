"""A kclpy program that keeps a journal: ``journal.py VERSION [batch|each|integer|never]``.

Every callback becomes a JSON line in ``$JOURNAL/journal-PID.jsonl`` with the time; checkpoints are
made after every batch, after every record with its own position, after every batch with the number
of its last record as an integer, or at no batch at all. Further arguments are noted.
"""

import json
import os
import sys
import time

from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3

VERSION = sys.argv[1]
WHEN = sys.argv[2] if len(sys.argv) > 2 else "batch"
REST = sys.argv[3:]
PATH = os.path.join(os.environ["JOURNAL"], f"journal-{os.getpid()}.jsonl")


def note(what, **details):
    stream, program = os.environ.get("KCL_STREAM_NAME"), [os.path.basename(sys.argv[0]), *REST]
    details.update(at=time.time(), saw=what, library=kcl.__file__, stream=stream, program=program)
    with open(PATH, "a") as journal:
        journal.write(json.dumps(details) + "\n")


def checkpoint(checkpointer, *position):
    try:
        checkpointer.checkpoint(*position)
        note("checkpoint", position=position)
    except kcl.CheckpointError as error:
        note("refused", error=error.value)


def batch(records, checkpointer):
    note(
        "records",
        records=[
            [r.sequence_number, r.sub_sequence_number, r.partition_key, r.binary_data.decode()]
            for r in records
        ],
    )
    for record in records if WHEN == "each" else ():
        checkpoint(checkpointer, record.sequence_number, record.sub_sequence_number)
    if WHEN == "integer":
        checkpoint(checkpointer, str(int(records[-1].sequence_number)), 0)
    if WHEN == "batch":
        checkpoint(checkpointer)


class V1(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        note("initialize", shard=shard_id)

    def process_records(self, records, checkpointer):
        batch(records, checkpointer)

    def shutdown(self, checkpointer, reason):
        note("shutdown", reason=reason)
        if reason == "TERMINATE":
            checkpoint(checkpointer)

    def shutdown_requested(self, checkpointer):
        note("shutdown_requested")
        checkpoint(checkpointer)


class V2(v2.RecordProcessorBase):
    def initialize(self, given):
        note(
            "initialize",
            shard=given.shard_id,
            position=[given.sequence_number, given.sub_sequence_number],
        )

    def process_records(self, given):
        batch(given.records, given.checkpointer)

    def shutdown(self, given):
        note("shutdown", reason=given.reason)
        if given.reason == "TERMINATE":
            checkpoint(given.checkpointer)

    def shutdown_requested(self, given):
        note("shutdown_requested")
        checkpoint(given.checkpointer)


class V3(v3.RecordProcessorBase):
    initialize = V2.initialize
    process_records = V2.process_records
    shutdown_requested = V2.shutdown_requested

    def lease_lost(self, given):
        note("lease_lost")

    def shard_ended(self, given):
        note("shard_ended")
        checkpoint(given.checkpointer)


if __name__ == "__main__":
    kcl.KCLProcess({"1": V1, "2": V2, "3": V3}[VERSION]()).run()
    note("EOF")
