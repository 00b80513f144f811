#!/usr/bin/env python3
"""Sends each record to a slow HTTP service: a kclpy program for ``childrenPerShard``.

One call after the other, so a child handles as many records a second as the service lets it; several
children of a shard share its records by key. The service is ``$SERVICE_URL``. It gets the data of a
record as a POST; any answer but 2xx is a failure, and the record is sent again.

Records may come twice, for example after a crash. ``Idempotency-Key`` is the position of a record,
by which the service can know one that it has had.
"""

import os
import sys
import time
import urllib.request

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

CHECKPOINT_EVERY_S = 5.0
TIMEOUT_S = 30.0
#: A call that fails as often ends the program; kcl-mld starts another one for this child.
ATTEMPTS = 5


class Processor(processor.RecordProcessorBase):
    """A call for each record, a checkpoint every few seconds and after each batch."""

    def initialize(self, start):
        self.url = os.environ["SERVICE_URL"]
        self.shard_id = start.shard_id
        # Nothing is kept here by shard: with childrenPerShard others have the same shard id.
        print(f"child {os.environ.get('KCL_MLD_CHILD', '0')} is ready", file=sys.stderr)

    def process_records(self, batch):
        due_at = time.monotonic() + CHECKPOINT_EVERY_S
        for record in batch.records:
            self.send(record)
            if time.monotonic() >= due_at:
                due_at = time.monotonic() + CHECKPOINT_EVERY_S
                position = record.sequence_number, record.sub_sequence_number
                checkpoint(batch.checkpointer, *position)
        checkpoint(batch.checkpointer)

    def send(self, record):
        """Call the service until it has taken the record.

        The program ends if it does not: the next checkpoint would pass over the record.
        """
        position = f"{self.shard_id}/{record.sequence_number}/{record.sub_sequence_number}"
        headers = {"Idempotency-Key": position, "Content-Type": "application/octet-stream"}
        call = urllib.request.Request(self.url, record.binary_data, headers)
        for attempt in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(call, timeout=TIMEOUT_S):
                    return
            except OSError as error:  # an answer that is an error is one, too
                print(f"{position}: {error}", file=sys.stderr)
                time.sleep(0.1 * 2**attempt)
        sys.exit(1)

    def lease_lost(self, lost):
        """Another worker reads the shard now."""

    def shard_ended(self, end):
        checkpoint(end.checkpointer)

    def shutdown_requested(self, stop):
        checkpoint(stop.checkpointer)


def checkpoint(checkpointer, *position):
    """Say that all up to there is done; what stays unsaid comes again."""
    try:
        checkpointer.checkpoint(*position)
    except kcl.CheckpointError as error:
        print(f"no checkpoint: {error.value}", file=sys.stderr)


if __name__ == "__main__":
    kcl.KCLProcess(Processor()).run()
