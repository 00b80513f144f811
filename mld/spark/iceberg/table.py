"""An Iceberg table whose commits carry the marks of shards: whether it may be written, where a shard stands.

:mod:`kcl_mld.spark.iceberg.commit` has the proof that each record's rows are there once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.refs import MAIN_BRANCH

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.iceberg.marks import History, SnapshotLink, history, read_marks

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from kcl_mld.spark.iceberg.marks import TableMark
    from kcl_mld.spark.model import Position, ShardKey

NEW_EPOCH = (
    "stop all workers, see which rows are there, and choose a new spark.sink.epoch, which goes on "
    "behind the checkpoints"
)
_FORMAT = 2
_FILES, _PARQUET = "write.format.default", "parquet"


class IcebergTable:
    """The table of one application and epoch. Safe to use from any thread.

    Args:
        identifier: namespaces and name.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        application: str,
        epoch: str,
    ) -> None:
        self.name = ".".join(identifier)
        self._catalog = catalog
        self._identifier = identifier
        self.application = application
        self._epoch = epoch
        self._lock = threading.Lock()
        self._seen: Table | None = None
        self._uuid: str | None = None

    def look(self) -> Table | None:
        """The table as it is now; None if there is none.

        Raises:
            SinkRefused: it may not be written, or its marks can't be trusted.
            Exception: of the catalog.
        """
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            self.saw(None)
            return None
        if why := self._refusal(table):
            raise SinkRefused(f"{self.name} can't be written: {why}")
        self._uuid = str(table.metadata.table_uuid)
        self.saw(table)
        return table

    def present(self) -> Table:
        """The table as it is now.

        Raises:
            SinkRefused: it is gone; or as ``look``.
            Exception: of the catalog.
        """
        if (table := self.look()) is None:
            raise SinkRefused(f"{self.name}: the table is gone; {NEW_EPOCH}")
        return table

    def last_seen(self) -> Table | None:
        """The table as it was after the last look or commit of this process."""
        with self._lock:
            return self._seen

    def saw(self, table: Table | None) -> None:
        """Keep what was seen, for the next commit: if it is old, that one is refused."""
        with self._lock:
            self._seen = table

    def mark(self, shard: ShardKey) -> Position | None:
        """Where a shard stands, durably; None = no commit of this epoch names it."""
        table = self.look()
        mark = None if table is None else self.marks(table).get(shard)
        return None if mark is None else mark.position

    def marks(self, table: Table) -> dict[ShardKey, TableMark]:
        """All marks that a table has of this application and epoch.

        Raises:
            SinkRefused: one can't be read.
        """
        try:
            return read_marks(table.metadata.properties, self.application, self._epoch)
        except ValueError as error:
            raise SinkRefused(f"{self.name}: {error}; {NEW_EPOCH}") from error

    def _refusal(self, table: Table) -> str:
        """Why it may not be written, or why its marks can't be trusted; "" if neither."""
        found = table.metadata
        if found.format_version != _FORMAT:
            return (
                f"it has version {found.format_version} of Iceberg's format, and {_FORMAT} is "
                f"needed: ALTER TABLE ... SET TBLPROPERTIES ('format-version'='{_FORMAT}') where "
                f"it is older, or name another table"
            )
        if (files := found.properties.get(_FILES, _PARQUET)).lower() != _PARQUET:
            return f"its property {_FILES} asks for {files}, and only Parquet is written here"
        if self._uuid is not None and str(found.table_uuid) != self._uuid:
            return f"it is another table now (uuid {found.table_uuid}); {NEW_EPOCH}"
        links = {
            each.snapshot_id: SnapshotLink(each.parent_snapshot_id, each.sequence_number or 0)
            for each in found.snapshots
        }
        main = found.refs.get(MAIN_BRANCH)
        match history(self.marks(table), links, None if main is None else main.snapshot_id):
            case History.SET_BACK:
                return (
                    "it was rolled back or replaced: rows are gone whose marks are still there; "
                    f"{NEW_EPOCH}, without the rows that are gone"
                )
            case History.EXPIRED:
                return (
                    "it was replaced, or the snapshots are expired that would tell whether it was "
                    f"rolled back since the last commit of this application; {NEW_EPOCH}"
                )
            case History.WHOLE:
                return ""
