#!/usr/bin/env python3
"""Flights per carrier and their mean delay: a program for the unmodified amazon_kclpy.

It knows nothing of kcl-mld: the Java daemon runs it as well. Each record is one flight as JSON
with a row number of its own. What it saw is appended to ``$FLIGHTS_OUT/<shard>-<pid>.jsonl``, one
line a batch, written before the checkpoint, so that a reader can tell lost, doubled and disordered
records apart without asking the daemon.
"""

import json
import os
import pathlib
import sys
import time

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class FlightsProcessor(processor.RecordProcessorBase):
    """Counts flights and sums delays per carrier, a journal line and a checkpoint a batch."""

    def __init__(self):
        self.shard_id = None
        self.journal = None

    def initialize(self, initialize_input):
        self.shard_id = initialize_input.shard_id
        folder = pathlib.Path(os.environ.get("FLIGHTS_OUT", "."))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.shard_id}-{os.getpid()}.jsonl"
        self.journal = path.open("a", encoding="utf-8")

    def process_records(self, process_records_input):
        rows, carriers = [], {}
        for record in process_records_input.records:
            flight = json.loads(record.binary_data)
            rows.append([flight["row"], record.partition_key, record.sequence_number])
            seen = carriers.setdefault(flight["carrier"], [0, 0, 0.0])
            seen[0] += 1
            if flight["dep_delay"] is not None:
                seen[1] += 1
                seen[2] += flight["dep_delay"]
        line = {"at": time.time(), "shard": self.shard_id, "rows": rows, "carriers": carriers}
        self.journal.write(json.dumps(line) + "\n")
        self.journal.flush()
        self.checkpoint(process_records_input.checkpointer)

    def lease_lost(self, lease_lost_input):
        self.journal.close()

    def shard_ended(self, shard_ended_input):
        self.journal.close()
        self.checkpoint(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input):
        self.checkpoint(shutdown_requested_input.checkpointer)

    def checkpoint(self, checkpointer):
        """Checkpoint what was handed out so far; try again while the table is throttled."""
        for attempt in range(5):
            try:
                checkpointer.checkpoint()
            except kcl.CheckpointError as error:
                if error.value == "ShutdownException":
                    print("the lease is gone; another worker goes on", file=sys.stderr)
                    return
                print(f"checkpoint failed with {error.value}", file=sys.stderr)
                time.sleep(0.2 * 2**attempt)
            else:
                return


if __name__ == "__main__":
    kcl.KCLProcess(FlightsProcessor()).run()
