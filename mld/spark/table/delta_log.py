"""The log of one Delta table through delta-rs: snapshots, commits, log checkpoints.

Three rules, each of which was broken in a trial and doubled rows or told a lie:

* A commit is made on the very object whose marks were compared. A refresh in between would make
  others' commits known to it, and then they are no conflict.
* An object does not advance by its own commit, so each commit begins with a refreshed one.
* An exception says nothing about the commit. Log checkpoints and clean-up are never part of it:
  one that fails raises although the commit stands.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mld.spark.errors import MissingPart, SinkUnavailable, SparkChildError
from mld.spark.table.app_numbers import AppNumbers
from mld.spark.table.disk import sync
from mld.spark.table.rules import fields_in

try:
    import deltalake
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
    from deltalake.exceptions import TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as missing:  # pragma: no cover - the tests have it
    raise MissingPart("deltalake is missing: pip install 'kcl-mld[spark]'") from missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from mld.spark.table.footers import DataFile
    from mld.spark.table.store import Store

_LOG = "_delta_log"
#: Commits between two log checkpoints of this process.
CHECKPOINT_EVERY = 100
#: How many of the latest entries a process syncs when it starts: older ones have been there for long.
_SYNC_BACK = 1000
_COLOR = re.compile(r"\x1b\[[0-9;]*m|↳")
#: What may follow a commit is done apart from it.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Snapshot:
    """A table at one version. Used by one thread; a commit on it is the last thing done with it."""

    def __init__(
        self, table: DeltaTable, numbers: AppNumbers | None = None, opened_at: int | None = None
    ) -> None:
        """Look at what a table says of itself.

        Args:
            table: the object, as it is now.
            numbers: of this very version; None = nothing is known of them.
            opened_at: the version at which it was opened; None = this one.
        """
        self.table = table
        self.is_sound = True
        self.version = table.version()
        self.opened_at = self.version if opened_at is None else opened_at
        self.numbers = numbers or AppNumbers(self.version)
        metadata = table.metadata()
        self.table_id = str(metadata.id)
        self.configuration: dict[str, str] = dict(metadata.configuration)
        self.partitions: list[str] = list(metadata.partition_columns)
        self.schema: str = table.schema().to_json()

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Of the table's schema."""
        return fields_in(self.schema)

    def number_of(self, application_id: str) -> int | None:
        """The newest number of an application id; None if there is none."""
        return self.numbers.get(application_id, self.table.transaction_version)

    def still_has(self, application_id: str) -> bool:
        """Whether readers still find a number of the id: a log checkpoint may have dropped it."""
        return self.table.transaction_version(application_id) is not None

    def commit(self, files: Iterable[DataFile], transactions: Mapping[str, int]) -> None:
        """One commit on exactly this version; it may stand although this raises.

        Args:
            files: appended.
            transactions: numbers by application id.
        """
        adds: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.partition_values,
                modification_time=file.modified_ms,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        self.is_sound = False  # after an exception it is opened anew
        self.table.create_write_transaction(
            adds,
            "append",
            self.table.schema(),
            partition_by=self.partitions,
            commit_properties=_with(transactions),
            post_commithook_properties=NO_HOOKS,
        )
        self.is_sound = True

    def merge(
        self,
        rows: pa.RecordBatchReader,
        *,
        on: str,
        columns: Mapping[str, str],
        newer: str | None,
        updates: bool,
        transactions: Mapping[str, int],
    ) -> None:
        """One MERGE of rows into exactly this version; it may stand although this raises.

        delta-rs commits nothing if no row is changed; then the numbers are committed alone.

        Args:
            rows: the source ``s`` of the table ``t``; read once, and held by delta-rs, which
                looks in the table only at files whose keys are in their range.
            on: condition of a match.
            columns: what is written into each column.
            newer: further condition of an update.
            updates: False = what matches stays as it is.
            transactions: numbers by application id.
        """
        self.is_sound = False
        merger = self.table.merge(
            rows,
            on,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=_with(transactions),
            post_commithook_properties=NO_HOOKS,
        )
        if updates:
            merger = merger.when_matched_update(dict(columns), predicate=newer)
        found = merger.when_not_matched_insert(dict(columns)).execute()
        if not found["num_target_files_added"] and not found["num_target_files_removed"]:
            self.commit((), transactions)

    def set_property(self, name: str, text: str, transactions: Mapping[str, int]) -> None:
        """Set one table property and write numbers, in one step."""
        self.is_sound = False
        self.table.alter.set_table_properties(
            {name: text},
            raise_if_not_exists=False,
            commit_properties=_with(transactions),
            post_commithook_properties=NO_HOOKS,
        )

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Add columns at the end of the schema."""
        self.is_sound = False
        added = deltalake.Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))
        self.table.alter.add_columns(added.fields, post_commithook_properties=NO_HOOKS)

    def restored_after(self, version: int) -> bool:
        """True if a RESTORE is among the commits after a version, of which the log still tells."""
        if (count := self.version - version) <= 0:
            return False
        return any(
            each.get("operation") == "RESTORE" and int(each.get("version", self.version)) > version
            for each in self.table.history(count)
        )

    def live_paths(self) -> set[str]:
        """Paths of the table's files below its directory."""
        column = self.table.get_add_actions(flatten=True).column("path")
        return {str(each) for each in column.to_pylist()}


class DeltaLog:
    """A table's log. Safe to use from any thread: each commit has a snapshot of its own.

    Args:
        store: where it lies.
        syncs_files: True = the files of new entries are synced as well, since delta-rs wrote them.
    """

    def __init__(self, store: Store, *, syncs_files: bool = False) -> None:
        self._store = store
        self._uri = store.name
        self._root = store.directory
        self._syncs_files = syncs_files
        self._lock = threading.Lock()
        self._idle: list[tuple[Snapshot, object]] = []
        self._synced = -1
        self._checkpointed = -1
        self._shortened_at = -1

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot | None]:
        """The table as it is now, durably; None if it is not there.

        Raises:
            SinkUnavailable: the log can't be read.
        """
        found = self._refreshed() or self._fresh()
        if found is None:
            yield None
            return
        # The stamp is from before: the table may be exchanged for another one meanwhile.
        snapshot, entry = found
        if self._root is not None:
            self._sync_entries(snapshot.version)
        yield snapshot
        if snapshot.is_sound and entry is not None:
            with self._lock:
                self._idle.append((snapshot, entry))

    def create(
        self,
        schema: str,
        partitions: Sequence[str],
        configuration: Mapping[str, str],
        transactions: Mapping[str, int],
    ) -> None:
        """Create the table, with properties and numbers, in one step.

        delta-rs looks whether there is a table before it commits, and would repeat the commit
        behind another one that came between: the second table in one log.

        Raises:
            Exception: of delta-rs; also if somebody else has just created it.
        """
        DeltaTable.create(
            self._uri,
            deltalake.Schema.from_json(schema),
            mode="error",
            partition_by=list(partitions),
            configuration=dict(configuration),
            storage_options=_options(self._store),
            commit_properties=_with(transactions, most_retries=0),
            post_commithook_properties=NO_HOOKS,
            raise_if_key_not_exists=False,
        )

    def live_paths(self) -> set[str]:
        """Paths of the files of the table as it is now, below its directory; none without a table.

        Raises:
            SinkUnavailable: the log can't be read.
        """
        with self.snapshot() as table:
            return set() if table is None else table.live_paths()

    def keep_short(self, version: int) -> bool:
        """Write a log checkpoint if many commits were made since the last one, and clean up.

        Apart from any commit: what fails here concerns none.

        Args:
            version: that the log has reached.

        Returns:
            True if it was due.
        """
        with self._lock:
            if self._checkpointed < 0:
                self._checkpointed = version - version % CHECKPOINT_EVERY
            if version - self._checkpointed < CHECKPOINT_EVERY:
                return False
            self._checkpointed = version
        if (table := self._opened()) is None:
            return False
        table.create_checkpoint()
        with self._lock:
            self._shortened_at = table.version()
        if self._root is not None:
            log = self._root / _LOG
            for path in (*log.glob("*.checkpoint*.parquet"), log / "_last_checkpoint"):
                _sync(path)
            _sync(log)
        table.cleanup_metadata()
        return True

    def _fresh(self) -> tuple[Snapshot, object] | None:
        """An object that was just opened, and what tells its entry; None if there is no table."""
        if (table := self._opened()) is None:
            return None
        snapshot = Snapshot(table)
        return snapshot, self._entry(snapshot.version)

    def _refreshed(self) -> tuple[Snapshot, object] | None:
        """The object of an earlier commit, brought up to date; None if there is no good one.

        An object keeps each entry that it was brought up to date with apart, and looks through all
        of them each time. So after a log checkpoint it is opened anew, which makes them one.

        Its former entry is looked at twice: if it is the same before and after, the table was not
        exchanged for another one in between, so numbers and the newest entry are of one table.
        """
        with self._lock:
            earlier, entry = self._idle.pop() if self._idle else (None, None)
            shortened_at = self._shortened_at
        if earlier is None or earlier.opened_at < shortened_at:
            return None
        if entry != self._entry(earlier.version):
            return None
        try:
            earlier.table.update_incremental()
            version = earlier.table.version()
            newest = self._entry(version)
            earlier.numbers.advance(version, self._text)
        except Exception:  # noqa: BLE001 - e.g. the log was cleaned in between: open it anew
            return None
        if entry != self._entry(earlier.version):
            return None
        return Snapshot(earlier.table, earlier.numbers, earlier.opened_at), newest

    def _text(self, version: int) -> str | None:
        return self._store.get(entry_name(version))

    def _opened(self) -> DeltaTable | None:
        try:
            return open_table(self._store)
        except TableNotFoundError:
            return None
        except SparkChildError:
            raise
        except Exception as error:
            raise SinkUnavailable(f"{self._uri} can't be opened: {in_a_line(error)}") from error

    def _entry(self, version: int) -> object | None:
        """What tells a log's entry from one of the same name in another table."""
        try:
            return self._store.stamp(entry_name(version))
        except OSError:
            return None

    def _sync_entries(self, version: int) -> None:
        """What is seen is durable: whoever wrote it may have been killed before its disk answered."""
        assert self._root is not None
        log = self._root / _LOG
        if self._synced >= version:
            return
        begin = self._synced + 1 if self._synced >= 0 else max(0, version - _SYNC_BACK)
        for number in range(begin, version + 1):
            entry = self._root / entry_name(number)
            if self._syncs_files:
                self._sync_files(entry)
            _sync(entry)
        _sync(log)
        self._synced = version

    def _sync_files(self, entry: Path) -> None:
        """The files that an entry of the log adds, and the names on the way to them."""
        assert self._root is not None
        try:
            lines = entry.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return
        changed: set[Path] = set()
        for action in map(json.loads, filter(str.strip, lines)):
            if "add" in action:
                path = self._root / unquote(action["add"]["path"])
                _sync(path)
                changed.update(each for each in path.parents if each.is_relative_to(self._root))
        for directory in changed:
            _sync(directory)


def entry_name(version: int) -> str:
    """Where the log's entry of a version lies, from the table on."""
    return f"{_LOG}/{version:020}.json"


def open_table(store: Store, version: int | None = None) -> DeltaTable:
    """The table that lies in a store; ``version`` None = the newest.

    Raises:
        Exception: of delta-rs; ``TableNotFoundError`` if it is none.
    """
    return DeltaTable(store.name, version=version, storage_options=_options(store))


def _options(store: Store) -> dict[str, str] | None:
    return dict(store.options()) or None


def in_a_line(error: BaseException) -> str:
    """What delta-rs says, which may be a tree over several lines, in colors."""
    return " ".join(_COLOR.sub("", str(error)).split())


def _with(transactions: Mapping[str, int], most_retries: int | None = None) -> CommitProperties:
    numbers = [Transaction(name, number) for name, number in transactions.items()]
    return CommitProperties(app_transactions=numbers, max_commit_retries=most_retries)


def _sync(path: Path) -> None:
    """As ``sync``; quiet if it is gone."""
    with contextlib.suppress(FileNotFoundError):
        sync(path)
