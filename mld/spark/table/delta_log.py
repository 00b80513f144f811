"""The log of one Delta table through delta-rs: snapshots, commits, log checkpoints.

Three rules, each of which, broken in a trial, doubled rows or gave a wrong answer:

* A commit is made on the very object whose marks were compared. A refresh in between would make
  others' commits known to it, and then they are no conflict.
* An object does not advance by its own commit, so each commit begins with a refreshed one.
* An exception says nothing about the commit. Log checkpoints and clean-up are never part of it:
  one that fails raises although the commit stands.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from kcl_mld.spark.errors import MissingPart, SinkUnavailable, SparkChildError
from kcl_mld.spark.table.disk import sync
from kcl_mld.spark.table.rules import fields_in, index_property
from kcl_mld.spark.table.snapshot import (
    LOG,
    NO_HOOKS,
    Snapshot,
    actions_in,
    entry_name,
    information_in,
    numbers_in,
    with_numbers,
)

try:
    import deltalake
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError
except ImportError as missing:  # pragma: no cover - the tests have it
    raise MissingPart("deltalake is missing: pip install 'kcl-mld[spark]'") from missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from kcl_mld.spark.table.own_entry import FollowedTable
    from kcl_mld.spark.table.store import Store

_COLOR = re.compile(r"\x1b\[[0-9;]*m|↳")
_HINT = "_last_checkpoint"
_log = logging.getLogger("mld.spark")
#: Commits between two log checkpoints of this process.
CHECKPOINT_EVERY = 100
#: Of a table that is made here. Each commit lists the log, which has one entry a commit, and some
#: 30,000 a day: a month of them, which is Delta's default, would cost each commit seconds.
_PROPERTIES = {"delta.logRetentionDuration": "interval 3 days"}
#: A log line for each so many files more: delta-rs keeps 2 to 4 KB a file in memory.
_MANY_FILES = 50_000
#: How many of the latest entries a process syncs when it starts: older ones have been there for long.
_SYNC_BACK = 1000


def in_a_line(error: BaseException) -> str:
    """What delta-rs says, which may be a tree over several lines, in colors."""
    return " ".join(_COLOR.sub("", str(error)).split())


def damage_in(log: Path) -> str:
    """What a loss of power has damaged in a table's log, and how to mend it; "" if nothing.

    A log checkpoint repeats what the entries before it say, and the hint names the newest one. A
    file system may keep the names of both and lose what was in them.
    """
    entries = sorted(log.glob("*.json"))
    if len(entries) == 1 and not entries[0].read_bytes().strip(b"\0"):
        return (
            f". Its only entry, {entries[0].name}, is empty: if power was lost when the table was made, "
            f"it has no rows; stop all workers, remove {log}, and start them"
        )
    broken = [path.name for path in sorted(log.glob("*.checkpoint*.parquet")) if not _reads(path)]
    if broken:
        names = ", ".join([*broken, _HINT])
        return (
            f". Not all of its log checkpoints can be read: if power was lost, stop all workers, "
            f"move {names} out of {log}, and start them; its entries say the same"
        )
    try:
        named = int(json.loads((log / _HINT).read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if any(log.glob(f"{named:020}.checkpoint*")):
        return ""
    return (
        f". {_HINT} names a log checkpoint that is not there: if power was lost, stop all workers, "
        f"move {_HINT} out of {log}, and start them; the log's entries say the same"
    )


def _reads(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True


class DeltaLog:
    """A table's log. Safe to use from any thread: each commit has a snapshot of its own.

    Args:
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
        self._files_logged = 0
        self._last_seen: Snapshot | None = None
        self._followed: FollowedTable | None = None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot | None]:
        """The table as it is now, durably; None if it is not there.

        Raises:
            SinkUnavailable: the log can't be read.
        """
        found = self._refreshed() or self._fresh()
        self._last_seen = None if found is None else found[0]
        if found is None:
            yield None
            return
        # The stamp is from before: the table may be exchanged for another one meanwhile.
        snapshot, entry = found
        if self._root is not None:
            self._sync_entries(snapshot.version)
        with self._kept(snapshot, entry):
            yield snapshot

    @contextlib.contextmanager
    def to_append(self) -> Iterator[Snapshot | None]:
        """The table at a version of late, durably, for a plain append; None if it is not there.

        In S3 it may be at a later version by now: the commit finds that out, for less.

        Raises:
            SinkUnavailable: the log can't be read.
        """
        if self._root is not None:
            with self.snapshot() as table:
                yield table
            return
        with self._lock:
            followed, self._followed = self._followed, None
        if followed is None or not followed.is_current():
            if (found := self._refreshed() or self._fresh()) is None:
                self._last_seen = None
                yield None
                return
            followed = self._follow(*found)
            if followed is None:
                self._last_seen = found[0]
                with self._kept(*found) as table:
                    yield table
                return
        self._last_seen = followed
        yield followed
        if followed.is_sound:
            with self._lock:
                self._followed = followed

    def _follow(self, opened: Snapshot, entry: object) -> FollowedTable | None:
        from kcl_mld.spark.table.own_entry import follow  # noqa: PLC0415 - for S3 alone
        from kcl_mld.spark.table.s3_store import Bucket  # noqa: PLC0415

        if entry is None or not isinstance(self._store, Bucket):
            return None
        return follow(self._store, opened, entry)

    @contextlib.contextmanager
    def _kept(self, snapshot: Snapshot, entry: object) -> Iterator[Snapshot]:
        """A snapshot that is brought up to date by whoever needs one next."""
        yield snapshot
        if snapshot.is_sound and entry is not None:
            with self._lock:
                self._idle.append((snapshot, entry))

    def last_seen(self) -> Snapshot | None:
        """What this process saw last, to read in it only; None = nothing yet."""
        return self._last_seen

    def tells(self, version: int, transactions: Mapping[str, int]) -> bool:
        """True if the commit of a version wrote these numbers, durably.

        One small file, where a look at the table lists all entries of its log.

        Args:
            version: of which this process just made a commit.
            transactions: numbers by application id.

        Raises:
            OSError: the entry can't be read, or the disk refuses it.
        """
        if (text := self._text(version)) is None:
            return False
        if not transactions.items() <= (numbers_in(text) or {}).items():
            return False
        if self._root is not None:
            self._sync_entries(version)
        return True

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
            configuration={
                **_PROPERTIES,
                **dict(filter(None, [index_property({}, fields_in(schema), partitions)])),
                **configuration,
            },
            storage_options=_options(self._store),
            commit_properties=with_numbers(transactions, most_retries=0),
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
            log = self._root / LOG
            for path in (*log.glob("*.checkpoint*.parquet"), log / "_last_checkpoint"):
                _sync(path)
            _sync(log)
        table.cleanup_metadata()
        self._log_files(table.get_add_actions().num_rows)
        return True

    def _log_files(self, count: int) -> None:
        before, self._files_logged = self._files_logged, count // _MANY_FILES
        if self._files_logged > before:
            _log.warning(
                "%s: the table has %d files, which each commit looks through and this process holds "
                "in memory: run kcl-mld-spark optimize, best once a day",
                self._uri,
                count,
            )

    def _fresh(self) -> tuple[Snapshot, object] | None:
        """An object that was just opened, and what tells its entry; None if there is no table."""
        if (table := self._opened()) is None:
            return None
        snapshot = Snapshot(table, self._text)
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
        return Snapshot(earlier.table, self._text, earlier.numbers, earlier.opened_at), newest

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
            damage = "" if self._root is None else damage_in(self._root / LOG)
            text = f"{self._uri} can't be opened: {in_a_line(error)}{damage}"
            raise SinkUnavailable(text) from error

    def _entry(self, version: int) -> object | None:
        """What tells a log's entry from one of the same name in another table."""
        try:
            return self._store.stamp(entry_name(version))
        except OSError:
            return None

    def _sync_entries(self, version: int) -> None:
        """What is seen is durable: its writer may have been killed before its disk answered."""
        assert self._root is not None
        log = self._root / LOG
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
            text = entry.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        changed: set[Path] = set()
        for action in actions_in(text):
            if action.get("add") is not None:
                path = self._root / unquote(action["add"]["path"])
                _sync(path)
                changed.update(each for each in path.parents if each.is_relative_to(self._root))
        for directory in changed:
            _sync(directory)


def open_table(store: Store, version: int | None = None) -> DeltaTable:
    """The table that lies in a store; ``version`` None = the newest.

    Raises:
        Exception: of delta-rs; ``TableNotFoundError`` if it is none.
    """
    return DeltaTable(store.name, version=version, storage_options=_options(store))


def _options(store: Store) -> dict[str, str] | None:
    return dict(store.options()) or None


def _sync(path: Path) -> None:
    """As ``sync``; quiet if it is gone."""
    with contextlib.suppress(FileNotFoundError):
        sync(path)


def commits(store: Store, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Version and information (``commitInfo``) of each commit, until one whose entry is gone.

    The newest first, whatever their writers say of them. delta-rs has such a list as well, which
    one commit with an odd information makes impossible.

    Args:
        version: its newest one.
    """
    for number in range(version, -1, -1):
        if (text := store.get(entry_name(number))) is None:
            return
        yield number, information_in(text)
