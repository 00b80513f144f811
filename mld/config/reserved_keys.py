"""Primary keys of the lease table that a worker's id may not be: its metrics are an item there."""

from __future__ import annotations

import re

#: Primary keys of items of which there is one.
LEADER_KEY = "Leader"
MIGRATION_KEY = "Migration3.0"
TABLE_MIGRATION_KEY = "TableMigration3.5"
RESERVED_KEYS = frozenset({LEADER_KEY, MIGRATION_KEY, TABLE_MIGRATION_KEY})
#: Beginning of the keys of items of ours beside the metrics of workers, see
#: :mod:`kcl_mld.fleet.model.worker_life`.
FAILED_LIFE = "kclMldFailedLife:"
_SHARD_ID = re.compile(r"shardId-[0-9]+\Z")
_STREAM_KEY = re.compile(r"[0-9]+:[^:]+:[0-9]+(:[^:]+)?\Z")


def key_taken_by_others(worker_id: str, stream_names: tuple[str, ...] = ()) -> str | None:
    """Why a worker may not have this id where its metrics are an item of the lease table.

    Args:
        worker_id: would be the primary key of that item.
        stream_names: of this worker's streams; in single-stream mode an item of that key tells of
            the stream.

    Returns:
        What else has such a key, for people; None = nothing.
    """
    if worker_id in RESERVED_KEYS:
        return "the key of an item that KCL 3.x keeps in the lease table"
    if _SHARD_ID.match(worker_id):
        return "the form of the key of a lease"
    if worker_id.startswith(FAILED_LIFE):
        return "the form of the key of an item that kcl-mld keeps in the lease table"
    if _STREAM_KEY.match(worker_id):
        return "the form of the key of a stream or of a lease of several streams"
    if worker_id in stream_names:
        return "the name of the stream, which KCL 3.x may use as a key in the lease table"
    return None
