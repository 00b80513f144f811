"""The smallest program for kclpy that does all it has to: the example of the README."""

import sys

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class App(processor.RecordProcessorBase):
    """Prints each record to standard error; standard output belongs to the protocol."""

    def initialize(self, start):
        """Nothing to prepare."""

    def process_records(self, batch):
        """A checkpoint says that all up to here is done."""
        for record in batch.records:
            print(record.partition_key, record.binary_data.decode(), file=sys.stderr)
        batch.checkpointer.checkpoint()

    def lease_lost(self, lost):
        """Another worker reads the shard now: no checkpoint is possible."""

    def shard_ended(self, end):
        """Without this checkpoint the shard's children are never read."""
        end.checkpointer.checkpoint()

    def shutdown_requested(self, stop):
        """The worker stops, or hands the shard over."""
        stop.checkpointer.checkpoint()


kcl.KCLProcess(App()).run()
