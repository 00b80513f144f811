"""A kclpy program that writes down the schema of each record, and its definition from the file."""

import json
import os

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

PATH = os.path.join(os.environ["JOURNAL"], f"journal-{os.getpid()}.jsonl")


def field(record, name):
    try:
        return record.get(name)
    except KeyError:
        return None


def definition(version_id):
    with open(os.path.join(os.environ["KCL_MLD_SCHEMAS"], version_id)) as file:
        return json.load(file)


class App(processor.RecordProcessorBase):
    def initialize(self, start):
        pass

    def process_records(self, batch):
        with open(PATH, "a") as journal:
            for record in batch.records:
                version_id = field(record, "schemaVersionId")
                seen = {
                    "library": kcl.__file__,
                    "data": record.binary_data.hex(),
                    "version": version_id,
                    "name": field(record, "schemaName"),
                    "format": field(record, "dataFormat"),
                    "folder": os.environ.get("KCL_MLD_SCHEMAS"),
                    "definition": definition(version_id) if version_id else None,
                }
                journal.write(json.dumps(seen) + "\n")
        batch.checkpointer.checkpoint()

    def lease_lost(self, lost):
        pass

    def shard_ended(self, end):
        end.checkpointer.checkpoint()

    def shutdown_requested(self, stop):
        stop.checkpointer.checkpoint()


kcl.KCLProcess(App()).run()
