#!/usr/bin/env python3
"""A search index of a DynamoDB table, kept equal to the table by its stream: a kclpy program.

The index is the SQLite file ``$SEARCH_INDEX`` (``search.db``), which all shards of a machine share:

    SELECT item FROM items JOIN search ON search.rowid = items.id WHERE search MATCH 'tea'

``items`` has each item as the stream has it, with the types of DynamoDB, ``search`` the texts in
it. The stream needs new images (``NEW_IMAGE`` or ``NEW_AND_OLD_IMAGES``).

Changes may come twice: after a crash, or where two workers have a shard for a moment. So each row
keeps the number of its change, and no older change replaces it. A deleted item stays as a row
without content, or an older change would bring it back.

A stream that replaces a disabled one may begin at lower numbers. So the time when the stream was
created stands before the number; kcl-mld names the stream in ``KCL_STREAM_NAME``. Under another
daemon only numbers are compared: begin a new file for a new stream.
"""

import contextlib
import json
import os
import sqlite3
import sys
import traceback

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

SCHEMA = """
    CREATE TABLE IF NOT EXISTS items (
        id INTEGER PRIMARY KEY, key TEXT UNIQUE, change TEXT NOT NULL, item TEXT
    );
    CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5 (text);
"""
#: A change, unless a newer one of its item is there.
UPSERT = """
    INSERT INTO items (key, change, item) VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET change = excluded.change, item = excluded.item
    WHERE excluded.change > change
    RETURNING id
"""
#: Of a number of DynamoDB Streams: texts of this length compare as numbers do.
DIGITS = 40


class SearchIndex:
    """The index in a file.

    Args:
        stream: with the time of its creation at the end, ``<region>$<account>$<table>$<time>``;
            empty = unknown.
    """

    def __init__(self, path, stream):
        self.created = stream.rpartition("$")[2]
        self.database = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.database.executescript(SCHEMA)

    @contextlib.contextmanager
    def transaction(self):
        """All or nothing; other shards wait until it has ended."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    def apply(self, change):
        """Take a change over, in a transaction.

        Args:
            change: the data of a record; with number 0 it replaces no change of its stream.
        """
        content = change["dynamodb"]
        item = None if change["eventName"] == "REMOVE" else content["NewImage"]
        key = json.dumps(content["Keys"], sort_keys=True)
        number = content["SequenceNumber"].zfill(DIGITS)
        row = (key, f"{self.created} {number}", None if item is None else json.dumps(item))
        for (found,) in self.database.execute(UPSERT, row).fetchall():
            self.database.execute("DELETE FROM search WHERE rowid = ?", (found,))
            if item is not None:
                text = "\n".join(texts({"M": item}))
                self.database.execute(
                    "INSERT INTO search (rowid, text) VALUES (?, ?)", (found, text)
                )


def texts(value):
    """The texts in a value with the types of DynamoDB."""
    ((kind, content),) = value.items()
    if kind == "S":
        yield content
    elif kind == "SS":
        yield from content
    elif kind in {"L", "M"}:
        for each in content.values() if kind == "M" else content:
            yield from texts(each)


class Processor(processor.RecordProcessorBase):
    """Takes the changes of a shard over: a transaction and a checkpoint for each batch."""

    def initialize(self, start):
        path = os.environ.get("SEARCH_INDEX", "search.db")
        self.index = SearchIndex(path, os.environ.get("KCL_STREAM_NAME", ""))

    def process_records(self, batch):
        try:
            with self.index.transaction():
                for record in batch.records:
                    self.index.apply(json.loads(record.binary_data))
        except Exception:  # noqa: BLE001 - the next checkpoint would pass over this batch
            traceback.print_exc()
            sys.exit(1)
        checkpoint(batch.checkpointer)

    def lease_lost(self, lost):
        """Another worker reads the shard now."""

    def shard_ended(self, end):
        checkpoint(end.checkpointer)

    def shutdown_requested(self, stop):
        checkpoint(stop.checkpointer)


def checkpoint(checkpointer):
    """Say that all up to here is done; what stays unsaid comes again."""
    try:
        checkpointer.checkpoint()
    except kcl.CheckpointError as error:
        print(f"no checkpoint: {error.value}", file=sys.stderr)


if __name__ == "__main__":
    kcl.KCLProcess(Processor()).run()
