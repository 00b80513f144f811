"""One of several children of a shard, in the manners of kclpy's sample: ``sibling.py timer|each``.

``timer`` checkpoints its largest position inside ``process_records`` once a second has passed,
``each`` every record. ``$JOURNAL/journal-PID.jsonl`` has what it saw. A key that it has is locked
in ``$LOCKS`` until it is told to stop, so two living children of a key find each other. The record
``$HANG`` is never done.
"""

import fcntl
import json
import os
import sys
import time
import zlib

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

WHEN = sys.argv[1]
EVERY_S = 1.0
RECORD_S = 0.002


class Sibling(processor.RecordProcessorBase):
    def initialize(self, given):
        path = os.path.join(os.environ["JOURNAL"], f"journal-{os.getpid()}.jsonl")
        self.journal = open(path, "a")  # noqa: SIM115
        self.largest, self.checkpointed_at, self.locks = None, time.time(), {}
        self.note(
            "initialize",
            shard=given.shard_id,
            position=[given.sequence_number, given.sub_sequence_number],
            child=os.environ.get("KCL_MLD_CHILD"),
            children=os.environ.get("KCL_MLD_CHILDREN"),
            arguments=sys.argv[2:],
            library=kcl.__file__,
        )

    def note(self, what, **details):
        self.journal.write(json.dumps({"at": time.time(), "saw": what, **details}) + "\n")
        self.journal.flush()

    def process_records(self, given):
        for record in given.records:
            self.lock(record.partition_key)
        self.note(
            "records",
            records=[
                [r.sequence_number, r.sub_sequence_number, r.partition_key, r.binary_data.decode()]
                for r in given.records
            ],
        )
        for record in given.records:
            while record.binary_data.decode() == os.environ.get("HANG"):
                time.sleep(60)
            time.sleep(RECORD_S)
            self.largest = record.sequence_number, record.sub_sequence_number
            if WHEN == "each":
                self.checkpoint(given.checkpointer, *self.largest)
        if WHEN == "timer" and time.time() - self.checkpointed_at > EVERY_S:
            self.checkpointed_at = time.time()
            if self.largest:
                self.checkpoint(given.checkpointer, *self.largest)

    def lock(self, key):
        if key in self.locks:
            return
        name = f"{zlib.crc32(key.encode()):08x}.lock"
        path = os.path.join(os.environ["LOCKS"], name)
        self.locks[key] = lock = open(path, "w")  # noqa: SIM115 - until it is told to stop
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.note("doubled", key=key)

    def unlock(self):
        for lock in self.locks.values():
            lock.close()

    def checkpoint(self, checkpointer, *position):
        try:
            checkpointer.checkpoint(*position)
            self.note("checkpoint", position=position or self.largest)
        except kcl.CheckpointError as error:
            self.note("refused", error=error.value)

    def lease_lost(self, given):
        self.unlock()
        self.note("lease_lost")

    def shard_ended(self, given):
        self.unlock()
        self.note("shard_ended")
        self.checkpoint(given.checkpointer)

    def shutdown_requested(self, given):
        self.unlock()
        self.note("shutdown_requested")
        self.checkpoint(given.checkpointer)


if __name__ == "__main__":
    kcl.KCLProcess(Sibling()).run()
