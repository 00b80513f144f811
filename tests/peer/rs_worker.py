"""A worker of kcl-rs that keeps journals as ``tests/data/kclpy/journal.py`` does.

``rs_worker.py OPTIONS``: a JSON object with the arguments of its Scheduler, and ``journal``, a
folder. Its programs are not told of which stream a shard is; the records say it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time

from kcl_rs import CheckpointError, RecordProcessorBase, Scheduler

OPTIONS = json.loads(sys.argv[1])
JOURNAL = OPTIONS.pop("journal")
NUMBERS = itertools.count(1)


class Journaling(RecordProcessorBase):
    def __init__(self):
        self.path = os.path.join(JOURNAL, f"journal-{next(NUMBERS)}.jsonl")

    def note(self, what, **details):
        details.update(at=time.time(), saw=what, stream=None)
        with open(self.path, "a") as journal:
            journal.write(json.dumps(details) + "\n")

    def checkpoint(self, checkpointer):
        try:
            checkpointer.checkpoint()
            self.note("checkpoint")
        except CheckpointError as error:
            self.note("refused", error=error.value)

    def initialize(self, given):
        self.note(
            "initialize",
            shard=given.shard_id,
            position=[given.sequence_number, given.sub_sequence_number],
        )

    def process_records(self, given):
        if given.records:
            self.note(
                "records",
                records=[
                    [r.sequence_number, r.sub_sequence_number, r.partition_key, r.data.decode()]
                    for r in given.records
                ],
            )
            self.checkpoint(given.checkpointer)

    def lease_lost(self, given):
        self.note("lease_lost")

    def shard_ended(self, given):
        self.note("shard_ended")
        self.checkpoint(given.checkpointer)

    def shutdown_requested(self, given):
        self.note("shutdown_requested")
        self.checkpoint(given.checkpointer)


def main():
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    scheduler = Scheduler(record_processor_factory=Journaling, **OPTIONS)
    scheduler.start()
    while not stopping.wait(0.2):
        pass
    scheduler.shutdown()


if __name__ == "__main__":
    main()
