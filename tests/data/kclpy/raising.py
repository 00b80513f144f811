"""Processors whose first batch raises: ``raising.py VERSION FILE``; FILE is made by the one that did.

Each says on stderr how many records a batch has that it processes.
"""

import sys
from pathlib import Path

from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3

VERSION, MARK = sys.argv[1], Path(sys.argv[2])


def process(records, checkpointer):
    if not MARK.exists():
        MARK.touch()
        print("50 %", end="", file=sys.stderr)
        raise ValueError("no such customer")
    print("processed", len(records), file=sys.stderr)
    checkpointer.checkpoint()


class V1(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        pass

    def process_records(self, records, checkpointer):
        process(records, checkpointer)

    def shutdown(self, checkpointer, reason):
        pass

    def shutdown_requested(self, checkpointer):
        pass


class V2(v2.RecordProcessorBase):
    def initialize(self, given):
        pass

    def process_records(self, given):
        process(given.records, given.checkpointer)

    def shutdown(self, given):
        pass

    def shutdown_requested(self, given):
        pass


class V3(v3.RecordProcessorBase):
    initialize = V2.initialize
    process_records = V2.process_records
    shutdown_requested = V2.shutdown_requested

    def lease_lost(self, given):
        pass

    def shard_ended(self, given):
        given.checkpointer.checkpoint()


kcl.KCLProcess({"1": V1, "2": V2, "3": V3}[VERSION]()).run()
