"""``kcl-mld-spark history | optimize | vacuum | new-epoch TABLE``: looking after a Delta table while workers run.

Compaction is no conflict for the commits of workers. Theirs are none for it, but for the one in a
hundred that changes the table's properties (``TableEpoch.testify``): what was merged since its last
commit is merged again. Vacuum takes what
the log says was removed, and old files that it never named, but none in the directories of jobs: so
it never sees the files of a job that is not committed yet.

``kcl-mld-spark new-epoch TABLE WORD``: marks for exactly the rows that a RESTORE has left.

A RESTORE takes rows back, but not the marks. The log's entry of the version that was restored still
has the marks of just those rows, so they are written once more, as those of a new epoch: its shards
begin behind the rows that are there, and each record is in the table once.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from kcl_mld.kernel.model.masking import printable
from kcl_mld.spark.errors import MissingPart, SinkRefused, SparkChildError
from kcl_mld.spark.model import ShardKey
from kcl_mld.spark.sinks.delta import OUTPUTS_MARK
from kcl_mld.spark.table.delta_log import DeltaLog, commits, in_a_line, open_table
from kcl_mld.spark.table.epoch import TableEpoch, epochs_of
from kcl_mld.spark.table.marks import guard_id, read_mark, shard_of, transactions
from kcl_mld.spark.table.rules import fields_in
from kcl_mld.spark.table.snapshot import (
    LOG,
    NO_HOOKS,
    Snapshot,
    entry_name,
    numbers_in,
    writer_properties,
)
from kcl_mld.spark.table.store import open_store
from kcl_mld.spark.table.upkeep_options import UNNAMED_H, parse

try:
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
except ImportError as missing:  # pragma: no cover - the tests have it
    raise MissingPart("deltalake is missing: pip install 'kcl-mld[spark]'") from missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from deltalake import DeltaTable

    from kcl_mld.spark.table.store import Store

_TRANSACTION = "txn"
_MIB = 1024 * 1024
#: A worker changes the table's properties once in a hundred commits.
_MOST_TRIES = 10
#: What was merged for so long is committed, so that no conflict costs more.
_COMMIT_INTERVAL = timedelta(minutes=1)
#: Names of a commit's custom metadata, and of what it says of files.
_RUN, _FILES = "kcl-mld.optimize", ("numFilesAdded", "numFilesRemoved")


def new_epoch(store: Store, word: str, application: str | None, version: int | None) -> list[str]:
    """Begin an epoch that stands where the table's rows do; no worker may run.

    Args:
        application: name of the KCL application; None = the only one in the table.
        version: whose rows the table has; None = as its newest RESTORE says.

    Returns:
        lines that say where each shard stands, and what to do next.

    Raises:
        SinkRefused: which marks belong to the rows is not known; the message says what to do.
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
    log = store.below(LOG)
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


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Returns:
        exit code: 0, 2 = wrong arguments or no table, 70 = it failed; rows are as they were.
    """
    options = parse(argv)
    try:
        store = open_store(options.table, key="TABLE")
        table = _open(store)
        match options.command:
            case "history":
                lines = history(table, store, options.limit)
            case "optimize":
                lines = [optimize(table, store, options.target_mib)]
            case "new-epoch":
                lines = new_epoch(store, options.word, options.application, options.version)
            case _:
                lines = [vacuum(table, store, options.retention_hours, is_trial=options.dry_run)]
    except SparkChildError as error:
        sys.stderr.write(f"kcl-mld-spark {options.command}: {error}\n")
        return error.exit_code
    except (DeltaError, OSError) as error:
        sys.stderr.write(f"kcl-mld-spark {options.command}: {options.table}: {in_a_line(error)}\n")
        return 70
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def history(table: DeltaTable, store: Store, limit: int) -> list[str]:
    """A line a commit, the newest first."""
    return [
        f"{version:>8}  {_moment(about):23}  {printable(str(about.get('operation', '?')))}"
        for version, about in islice(commits(store, table.version()), limit)
    ]


def _moment(about: Mapping[str, Any]) -> str:
    """When a commit was made, by its own word; not every writer says so."""
    try:
        moment = datetime.fromtimestamp(int(about["timestamp"]) / 1000, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "?"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def optimize(table: DeltaTable, store: Store, target_mib: int | None) -> str:
    """Merge small files; what was done.

    Args:
        target_mib: how large files become, in MiB; None = as the table or Delta says.
    """
    begin, run = table.version(), secrets.token_hex(8)
    for left in reversed(range(_MOST_TRIES)):
        try:
            if Snapshot(table, lambda _: None).sets_index():
                table.update_incremental()
                begin = table.version()
            table.optimize.compact(
                writer_properties=writer_properties(fields_in(table.schema().to_json())),
                target_size=None if target_mib is None else target_mib * _MIB,
                min_commit_interval=_COMMIT_INTERVAL,
                commit_properties=CommitProperties(custom_metadata={_RUN: run}),
                post_commithook_properties=NO_HOOKS,
            )
            break
        except CommitFailedError:
            if not left:
                raise
            table.update_incremental()
    added, removed = _merged(table, store, begin, run)
    if not removed:
        return "nothing to merge"
    if store.directory is not None:
        with DeltaLog(store, syncs_files=True).snapshot():
            pass  # what delta-rs has written is on the disk now
    return f"{removed} files were merged into {added}"


def _merged(table: DeltaTable, store: Store, begin: int, run: str) -> tuple[int, int]:
    """How many files one run of ``optimize`` has added and removed, in all its commits."""
    table.update_incremental()
    counts = [
        about["operationMetrics"]
        for _, about in takewhile(lambda each: each[0] > begin, commits(store, table.version()))
        if about.get(_RUN) == run
    ]
    added, removed = (sum(int(each[name]) for each in counts) for name in _FILES)
    return added, removed


def vacuum(table: DeltaTable, store: Store, retention_hours: int | None, *, is_trial: bool) -> str:
    """Remove files that have not been part of the table for long; what was done.

    Args:
        retention_hours: how long; None = as the table says, a week by default.
        is_trial: True = only count them.
    """
    paths = table.vacuum(
        retention_hours=retention_hours,
        dry_run=is_trial,
        enforce_retention_duration=False,
        full=False,
        post_commithook_properties=NO_HOOKS,
    )
    unnamed = _unnamed(table, store, retention_hours)
    if not is_trial:
        for path in unnamed:
            store.drop(path)
        if store.directory is not None:
            _drop_empty_jobs(store.directory)
    return f"{len(paths) + len(unnamed)} files {'would be' if is_trial else 'were'} removed"


def _unnamed(table: DeltaTable, store: Store, retention_hours: int | None) -> list[str]:
    """Old data files that the log never named: of merges that were refused.

    They lie where delta-rs writes a table's own. What lies elsewhere below it, in our jobs or in
    another table, is no leftover.
    """
    found = table.vacuum(
        retention_hours=None if retention_hours is None else max(retention_hours, UNNAMED_H),
        dry_run=True,
        enforce_retention_duration=False,
        full=True,
    )
    depth = len(table.metadata().partition_columns)
    paths = [each for each in found if _is_own(each.split("/")[:-1], depth)]
    return [path for path in paths if path.endswith(".parquet") and store.has(path)]


def _is_own(directories: Sequence[str], depth: int) -> bool:
    """True for directories as delta-rs makes them for a table with so many partition columns."""
    return len(directories) == depth and all("=" in each for each in directories)


def _open(store: Store) -> DeltaTable:
    try:
        return open_table(store)
    except TableNotFoundError as error:
        raise SinkRefused(f"{store.name} is no Delta table") from error


def _drop_empty_jobs(root: Path) -> None:
    """Remove directories of jobs of which no file is left; a job that still runs keeps its own."""
    for job in root.glob("kcl-mld-*/job-*"):
        if (job.parent / job.name.replace("job-", "pending-")).exists():
            continue
        for folder, _, _ in os.walk(job, topdown=False):
            with suppress(OSError):  # it has files
                Path(folder).rmdir()
