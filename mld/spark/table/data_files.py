"""The files of a table as a commit names them, and the rows that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

#: Names before those of the partitions: the process's and the job's.
_ABOVE = 2


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table.

    Attributes:
        path: on the disk, from the table's directory on; not quoted.
        size: in bytes.
        modified_ms: since 1970.
        rows: in it, >= 1.
        partition_values: text by column, not quoted; None = null.
        fields: of its schema, in Spark's JSON.
        nulls: top columns that have nulls.
    """

    path: str
    size: int
    modified_ms: int
    rows: int
    partition_values: Mapping[str, str | None]
    fields: Sequence[Mapping[str, Any]]
    nulls: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rows:
    """What a function returned, computed.

    Attributes:
        table: the rows, in Arrow's types.
        fields: of their schema, in Spark's JSON, in the order of the columns.
    """

    table: pa.Table
    fields: Sequence[Mapping[str, Any]]

    @property
    def nulls(self) -> list[str]:
        """Columns that have nulls."""
        names = self.table.column_names
        return [name for name in names if self.table.column(name).null_count]


#: What a commit works on: files that are added, or rows that are merged.
Staged: TypeAlias = DataFile | Rows


def jobs_of(paths: Collection[str]) -> set[str]:
    """The jobs that files are of, as paths from the table's directory on."""
    return {"/".join(path.split("/")[:_ABOVE]) for path in paths}
