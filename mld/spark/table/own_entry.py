"""Appends to a table in S3 by an entry of the log that this process writes itself.

A commit of delta-rs reads what is new in the log, so it costs requests for each entry since the last
log checkpoint. A plain append needs none of that: who knows the marks at one version writes the
entry of the next one, if it is not there yet. What others wrote meanwhile is read, entry by entry,
and judged before the next try. So the guards are compared in each version below the one that is
written, which is what the proof of :mod:`kcl_mld.spark.table.marked_table` asks for.

Such a writer has to keep all that a table's protocol asks of it. This one does so for the tables that
:func:`is_served` names; delta-rs makes all other commits.

See "Delta Log Entries" and "Action Reconciliation" in the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from kcl_mld.spark.table.s3_access import TAKEN, StoreError
from kcl_mld.spark.table.snapshot import (
    Overtaken,
    Snapshot,
    actions_in,
    entry_name,
    is_restore,
    numbers_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kcl_mld.spark.table.data_files import DataFile
    from kcl_mld.spark.table.s3_store import Bucket

#: Versions of the protocol before there were features: up to 2 a writer keeps ``appendOnly``, which
#: appends do, and invariants, with which a table is refused.
_WRITER_VERSION, _READER_VERSION = 2, 1
#: Versions from which on a table names features, and those that ask of an append no more than that.
_WITH_FEATURES = (3, 7)
_FEATURES = frozenset({"appendOnly", "invariants"})
#: Actions after which nothing that is known of a table may still be true.
_CHANGES = frozenset({"metaData", "protocol", "domainMetadata"})
_KNOWN = frozenset({"add", "remove", "txn", "commitInfo", "cdc", *_CHANGES})
#: Of a path in the log, beside letters, digits and ``_.-~``: what delta-rs leaves as it is, which
#: compares these texts when it removes a file.
_PLAIN = "!$&'()+,/:;=@"


def is_served(
    reader: int,
    writer: int,
    reader_features: Iterable[str] | None,
    writer_features: Iterable[str] | None,
) -> bool:
    """True for a table whose protocol asks nothing of an append that is not done here.

    Args:
        reader: the least version of the protocol that readers know.
        writer: the same of writers.
    """
    if (reader, writer) == _WITH_FEATURES:
        return not list(reader_features or ()) and set(writer_features or ()) <= _FEATURES
    return reader <= _READER_VERSION and writer <= _WRITER_VERSION


def entry_text(
    files: Iterable[DataFile],
    transactions: Mapping[str, int],
    partitions: Sequence[str],
    now_ms: int,
) -> str:
    """What an entry of the log says of an append.

    Args:
        transactions: numbers by application id.
        partitions: the table's partition columns.
        now_ms: since 1970.
    """
    about = {"mode": "Append", "partitionBy": json.dumps(list(partitions))}
    actions: list[dict[str, object]] = [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "WRITE",
                "operationParameters": about,
                "isBlindAppend": True,
                "engineInfo": "kcl-mld",
            }
        }
    ]
    actions += (
        {
            "add": {
                "path": quote(file.path, safe=_PLAIN),
                "partitionValues": dict(file.partition_values),
                "size": file.size,
                "modificationTime": file.modified_ms,
                "dataChange": True,
                "stats": json.dumps({"numRecords": file.rows}),
            }
        }
        for file in files
    )
    actions += ({"txn": {"appId": name, "version": n}} for name, n in transactions.items())
    return "".join(f"{json.dumps(each)}\n" for each in actions)


class FollowedTable(Snapshot):
    """A table that delta-rs has opened at one version, and this process follows from there.

    Used by one thread at a time. Once it :attr:`is_sound` no more it is of no use.

    Attributes:
        version: that was reached.
    """

    def __init__(self, opened: Snapshot, store: Bucket, stamp: object) -> None:
        """Follow a table.

        Args:
            opened: as delta-rs knows it; nobody else uses it.
            stamp: of its newest entry.
        """
        super().__init__(opened.table, self._no_entry, opened.numbers, opened.opened_at)
        self._opened = opened
        self._store = store
        self._stamp = stamp
        self._since: dict[str, int] = {}
        self._there: dict[str, bool] = {}
        self._is_unsure = False

    @staticmethod
    def _no_entry(version: int) -> str | None:
        raise AssertionError(f"entry {version} was read when it was followed")

    def is_current(self) -> bool:
        """See whether it is still the table that was opened; it may be at a later version.

        Raises:
            OSError: S3 does not answer.
        """
        if self._store.stamp(entry_name(self.version)) != self._stamp:
            return False
        if self._is_unsure:
            self._follow()
        return self.is_sound

    def number_of(self, application_id: str) -> int | None:
        """As ``Snapshot``: of what was followed, or else of the version that was opened."""
        found = self._since.get(application_id)
        return self._opened.number_of(application_id) if found is None else found

    def still_has(self, application_id: str) -> bool:
        """As ``Snapshot``; a table that may drop numbers is another one after its change."""
        if application_id not in self._there:
            self._there[application_id] = self._opened.still_has(application_id)
        return self._there[application_id] or application_id in self._since

    def restored_after(self, version: int) -> bool:
        """As ``Snapshot``: what was followed since it was opened is no RESTORE."""
        return version < self._opened.version and self._opened.restored_after(version)

    def commit(self, files: Iterable[DataFile], transactions: Mapping[str, int]) -> None:
        """As ``Snapshot``, by one conditional put.

        Raises:
            Overtaken: another commit has the next version.
            StoreError: it may stand.
        """
        self.stands, self._is_unsure = False, True
        number = self.version + 1
        text = entry_text(files, transactions, self.partitions, int(time.time() * 1000))
        try:
            stamp = self._store.create(entry_name(number), text.encode())
        except StoreError as error:
            if error.code not in TAKEN:
                raise
            # A put that was repeated may have met itself.
            if not self._follow() or not self._says(transactions):
                raise Overtaken(f"version {number} is another commit's") from error
        else:
            self._reached(number, transactions, stamp)
        self.stands = True

    def _says(self, transactions: Mapping[str, int]) -> bool:
        return transactions.items() <= self._since.items()

    def _follow(self) -> bool:
        """Read the entry of the next version; False if there is none, or nothing is known any more."""
        number = self.version + 1
        found = self._store.read(entry_name(number))
        self._is_unsure = False
        if found is None:
            return False
        content, stamp = found
        if (numbers := followed(content.decode(errors="replace"))) is None:
            self.is_sound = False
            return False
        self._reached(number, numbers, stamp)
        return True

    def _reached(self, version: int, numbers: Mapping[str, int], stamp: object) -> None:
        self.version, self._stamp, self._is_unsure = version, stamp, False
        self._since |= numbers


def followed(text: str) -> dict[str, int] | None:
    """The numbers of application ids in an entry; None if the table has to be opened anew.

    Args:
        text: of the entry.
    """
    try:
        names = {name for action in actions_in(text) for name in action}
    except ValueError:
        return None
    if names & _CHANGES or names - _KNOWN or is_restore(text):
        return None
    return numbers_in(text)


def follow(store: Bucket, opened: Snapshot, stamp: object) -> FollowedTable | None:
    """The table, to be followed from where it was opened; None if delta-rs has to commit.

    Args:
        stamp: of its newest entry.
    """
    found = opened.table.protocol()
    is_ours = is_served(
        found.min_reader_version,
        found.min_writer_version,
        found.reader_features,
        found.writer_features,
    )
    return FollowedTable(opened, store, stamp) if is_ours else None
