"""``kcl-mld-spark new-epoch TABLE WORD``: marks for exactly the rows that a RESTORE has left.

A RESTORE takes rows back, but not the marks. The log's entry of the version that was restored still
has the marks of just those rows, so they are written once more, as those of a new epoch: its shards
begin behind the rows that are there, and each record is in the table once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mld.spark.errors import SinkRefused
from mld.spark.model import ShardKey
from mld.spark.sinks.delta import OUTPUTS_MARK
from mld.spark.table.delta_log import commits, entry_name, open_table
from mld.spark.table.epoch import TableEpoch, epochs_of
from mld.spark.table.log_entries import numbers_in
from mld.spark.table.marks import guard_id, read_mark, shard_of, transactions
from mld.spark.table.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.spark.table.store import Store

_LOG, _TRANSACTION = "_delta_log", "txn"


def new_epoch(store: Store, word: str, application: str | None, version: int | None) -> list[str]:
    """Begin an epoch that stands where the table's rows do; no worker may run.

    Args:
        store: of the table.
        word: the new epoch's.
        application: name of the KCL application; None = the only one in the table.
        version: whose rows the table has; None = as its newest RESTORE says.

    Returns:
        lines that say where each shard stands, and what to do next.

    Raises:
        SinkRefused: it can't be told which marks belong to the rows; the message says what to do.
    """
    if store.above().has(OUTPUTS_MARK):
        raise SinkRefused(
            f"{store.name} is one of several outputs, which get the same batches: name a new directory in "
            f"spark.sink.path, and set the checkpoints back"
        )
    table = _snapshot(store)
    shards = _shards(store)
    names = sorted({shard.application for shard in shards})
    if application is None and len(names) == 1:
        application = names[0]
    if application not in names:
        raise SinkRefused(f"{store.name}: --application names none of: {', '.join(names)}")
    ours = [shard for shard in shards if shard.application == application]
    epoch = TableEpoch(store.name, application, word)
    if epoch.is_known(table) or any(shard.epoch == word for shard in ours):
        raise SinkRefused(f"{store.name} has had an epoch {word} already: choose another word")
    restore, target = _restored(store, table, version)
    since = _at(store, restore)
    if moved := [each for each in ours if _guard(since, each) != _guard(table, each)]:
        raise SinkRefused(
            f"{store.name}: rows of {moved[0].shard_id} were committed after the RESTORE, in version "
            f"{restore}. Stop all workers, RESTORE the table to version {restore}, then again"
        )
    then = _at(store, target)
    return _begin(table, then, ours, epoch, word)


def _begin(
    table: Snapshot, then: Snapshot, ours: list[ShardKey], epoch: TableEpoch, word: str
) -> list[str]:
    """Write the marks of that version as those of the new epoch, in one step."""
    numbers: dict[str, int] = {}
    lines = []
    begun = epochs_of(ours[0].application, then.configuration)
    newest = [each for each in begun if any(shard.epoch == each for shard in ours)][-1:]
    for shard in sorted(each for each in ours if each.epoch in newest):
        mark = read_mark(shard, then.number_of)
        if mark.position is not None and mark.guard is not None:
            renamed = ShardKey(shard.application, shard.stream, shard.shard_id, word)
            numbers |= transactions(renamed, mark.position, mark.guard)
            lines.append(f"{shard.stream} {shard.shard_id} stands at {mark.position}")
    epoch.begin(table, numbers)
    return [
        *lines,
        f"1. Set spark.sink.epoch = {word}.",
        (
            "2. Set the checkpoints back to these positions, or before them. Without the lease table "
            "all shards begin at initialPositionInStream, and what the table has is dropped."
        ),
        "3. Start the workers.",
    ]


def _restored(store: Store, table: Snapshot, given: int | None) -> tuple[int, int]:
    """The version of the newest RESTORE, and the version whose rows the table has since then.

    Args:
        store: of the table.
        table: as it is now.
        given: what the user says of the second; None = as the log says.
    """
    versions: dict[int, int | None] = {}
    for version, about in commits(store, table.version):
        if about.get("operation") == "RESTORE":
            number = (about.get("operationParameters") or {}).get("version")
            versions[version] = None if number is None else int(number)
    if not versions:
        raise SinkRefused(
            f"{store.name}: its log tells of no RESTORE, so its marks are right, or nobody can tell which "
            f"are: then name a new directory, and set the checkpoints back"
        )
    newest = target = max(versions)
    if given is not None:
        return newest, given
    while target in versions:  # a RESTORE to a RESTORE
        if (before := versions[target]) is None:
            raise SinkRefused(
                f"{store.name} was restored to a time: name the version that it had then, which "
                f"kcl-mld-spark history shows, by --version"
            )
        target = before
    return newest, target


def _shards(store: Store) -> list[ShardKey]:
    """Every shard of which the log has a mark."""
    found: set[ShardKey | None] = set()
    log = store.below(_LOG)
    for name in log.names(""):
        found.update(map(shard_of, _ids_in(log, name)))
    return [shard for shard in found if shard is not None]


def _ids_in(log: Store, name: str) -> Iterable[str]:
    """Application ids in one file of a log: an entry, or a log checkpoint of any kind."""
    if name.endswith(".json"):
        if (numbers := numbers_in(log.get(name) or "")) is None:
            raise SinkRefused(f"{log.name}: {name} is no entry of a log that can be understood")
        return numbers
    if ".checkpoint." not in name or not name.endswith(".parquet"):
        return ()
    with pq.ParquetFile(log.source(name)) as file:  # one of several parts may have no such column
        if _TRANSACTION not in file.schema_arrow.names:
            return ()
        column = file.read(columns=[_TRANSACTION]).column(_TRANSACTION)
        return [each["appId"] for each in column.to_pylist() if each]


def _snapshot(store: Store, version: int | None = None) -> Snapshot:
    return Snapshot(open_table(store, version), lambda number: store.get(entry_name(number)))


def _at(store: Store, version: int) -> Snapshot:
    try:
        return _snapshot(store, version)
    except Exception as error:
        raise SinkRefused(
            f"{store.name}: the log no longer has version {version}, whose marks belong to the rows: name "
            f"a new directory in spark.sink.path, and set the checkpoints back"
        ) from error


def _guard(table: Snapshot, shard: ShardKey) -> int | None:
    return table.number_of(guard_id(shard))
