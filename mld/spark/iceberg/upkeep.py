"""What keeps a commit from becoming slower: snapshots that expire, manifests that are merged. Pure.

The metadata of a table lists all of its snapshots, and each snapshot all manifests, and every commit
reads and writes both. So a commit of ours that finds enough old snapshots of ours removes them from
the metadata in the same step. No file is removed: readers that have begun go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.metadata import TableMetadata

#: Table property: whether it is looked after here; true for tables that are made here.
UPKEEP = "kclMld.upkeep"
#: In the summary of a snapshot of ours.
WRITTEN_BY = "kcl-mld.application"
_AGE, _KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
#: Of a table that is made here. Time travel goes no further back; each snapshot costs a commit some
#: 0.7 ms of CPU.
OF_NEW_TABLE = {UPKEEP: "true", _AGE: "300000", _KEPT: "20"}
#: Iceberg's own defaults.
_DEFAULT_AGE_MS, _DEFAULT_KEPT = 5 * 86_400_000, 1
#: So many at once, at least: removal rewrites all of the metadata's history.
LEAST = 20
#: Of a copy of the metadata, which no commit contains: after so many manifests one is made of them.
#: One of half a megabyte (2,500 files) is left as it is: to write it again costs some 0.4 s of CPU.
MERGING = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": "524288",
}


def is_looked_after(properties: Mapping[str, str]) -> bool:
    """Whether a table's snapshots and manifests are ours to look after."""
    return properties.get(UPKEEP, "false").lower() == "true"


def expirable(found: TableMetadata, now_ms: int) -> list[int]:
    """The snapshots that the next commit removes; none until there are enough.

    Args:
        found: as the commit begins on it.
        now_ms: since 1970.
    """
    properties = found.properties
    if not is_looked_after(properties):
        return []
    oldest_ms = now_ms - int(properties.get(_AGE, _DEFAULT_AGE_MS))
    # The one before the next commit's counts as one that is kept.
    kept = max(1, int(properties.get(_KEPT, _DEFAULT_KEPT)) - 1)
    heads = {each.snapshot_id for each in found.refs.values()}
    old = [
        each.snapshot_id
        for each in sorted(found.snapshots, key=lambda one: one.sequence_number or 0)[:-kept]
        if each.timestamp_ms < oldest_ms
        and each.snapshot_id not in heads
        and each.summary is not None
        and WRITTEN_BY in each.summary.additional_properties
    ]
    return old if len(old) >= LEAST else []
