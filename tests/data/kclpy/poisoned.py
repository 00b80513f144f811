"""Processors that raise at the payload ``bad``: ``poisoned.py VERSION [number]``.

They checkpoint each record, with ``number`` by its sequence number alone.
"""

import os
import sys

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor as v3


def process(records, checkpointer):
    for record in records:
        text = record.binary_data.decode()
        if text == "bad":
            raise ValueError("no such customer")
        with open(os.path.join(os.environ["JOURNAL"], "processed"), "a") as journal:
            journal.write(f"{text}\n")
        sub = None if sys.argv[2:] == ["number"] else record.sub_sequence_number
        checkpointer.checkpoint(record.sequence_number, sub)


class V1(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        pass

    def process_records(self, records, checkpointer):
        process(records, checkpointer)

    def shutdown(self, checkpointer, reason):
        pass


class V3(v3.RecordProcessorBase):
    def initialize(self, given):
        pass

    def process_records(self, given):
        process(given.records, given.checkpointer)

    def lease_lost(self, given):
        pass

    def shard_ended(self, given):
        given.checkpointer.checkpoint()

    def shutdown_requested(self, given):
        pass


kcl.KCLProcess({"1": V1, "3": V3}[sys.argv[1]]()).run()
