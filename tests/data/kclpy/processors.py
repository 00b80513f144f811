"""Record processors of all three versions: ``processors.py VERSION MODE``.

They say on stderr what they see, one line each, so that two implementations can be compared.
"""

import sys

from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3

VERSION, MODE = sys.argv[1], sys.argv[2]


def say(*what):
    print("saw:", *what, file=sys.stderr, flush=True)


def checkpoint(checkpointer, *position):
    try:
        checkpointer.checkpoint(*position)
        say("checkpoint", *position)
    except kcl.CheckpointError as error:
        say("refused", error.value, str(error))


def act(checkpointer):
    """What every callback does besides saying what it got."""
    if MODE == "checkpoint" and checkpointer is not None:
        checkpoint(checkpointer)
    elif MODE == "raise":
        raise ValueError("as told")
    elif MODE == "print":
        print("no message", end="")
    elif MODE == "exit":
        sys.exit(9)


def extra(record):
    """A field that only some batches have: ``get`` takes no default."""
    try:
        return record.get("extra")
    except KeyError:
        return None


def records_seen(records, checkpointer):
    for record in records:
        say(
            record.sequence_number,
            record.sub_sequence_number,
            record.partition_key,
            record.data,
            record.binary_data,
            record.timestamp_millis,
            record.approximate_arrival_timestamp.isoformat(),
            record["partitionKey"],
            extra(record),
        )
        if MODE == "each":
            checkpoint(checkpointer, record.sequence_number, record.sub_sequence_number)


class V1(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        say("initialize", shard_id)
        act(None)

    def process_records(self, records, checkpointer):
        say("process_records", len(records), type(checkpointer).__name__)
        records_seen(records, checkpointer)
        act(checkpointer)

    def shutdown(self, checkpointer, reason):
        say("shutdown", reason, type(checkpointer).__name__)
        act(checkpointer)

    def shutdown_requested(self, checkpointer):
        say("shutdown_requested", type(checkpointer).__name__)
        act(checkpointer)


class V2(v2.RecordProcessorBase):
    def initialize(self, given):
        say("initialize", given.shard_id, given.sequence_number, given.sub_sequence_number)
        act(None)

    def process_records(self, given):
        say("process_records", len(given.records), given.millis_behind_latest, given.action)
        records_seen(given.records, given.checkpointer)
        act(given.checkpointer)

    def shutdown(self, given):
        say("shutdown", given.reason, type(given.checkpointer).__name__, given.action)
        act(given.checkpointer)

    def shutdown_requested(self, given):
        say("shutdown_requested", type(given).__name__, given.action)
        act(given.checkpointer)


class V3(v3.RecordProcessorBase):
    initialize = V2.initialize
    process_records = V2.process_records
    shutdown_requested = V2.shutdown_requested

    def lease_lost(self, given):
        say("lease_lost", type(given).__name__, given.action)
        act(None)

    def shard_ended(self, given):
        say("shard_ended", type(given).__name__, given.action)
        act(given.checkpointer)


class Bare(kcl.RecordProcessorBase):
    """Only inherits: each callback of the base class but one is missing."""


if __name__ == "__main__":
    kcl.KCLProcess({"1": V1, "2": V2, "3": V3, "bare": Bare}[VERSION]()).run()
