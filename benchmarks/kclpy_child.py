"""A prompt kclpy child: it counts the records of a batch and checkpoints.

With ``BENCH_USE`` it also decodes each record, by ``binary_data`` or from ``data``.
"""

import base64
import os

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

USE = os.environ.get("BENCH_USE", "")


class Counting(processor.RecordProcessorBase):
    """Counts; progress goes to ``$BENCH_OUT/<pid>``."""

    def initialize(self, initialize_input):
        self.seen = 0
        path = f"{os.environ['BENCH_OUT']}/{os.getpid()}"
        self.progress = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.pwrite(self.progress, b"%12d" % 0, 0)

    def process_records(self, process_records_input):
        records = process_records_input.records
        self.seen += len(records)
        if USE == "binary_data":
            self.size = sum(len(record.binary_data) for record in records)
        elif USE == "data":
            self.size = sum(len(base64.b64decode(record.data)) for record in records)
        process_records_input.checkpointer.checkpoint()
        os.pwrite(self.progress, b"%12d" % self.seen, 0)

    def lease_lost(self, lease_lost_input):
        pass

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        pass


if __name__ == "__main__":
    kcl.KCLProcess(Counting()).run()
