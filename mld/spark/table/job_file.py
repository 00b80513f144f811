"""A file of a job, as a commit names it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that Spark wrote, as a commit names it.

    Attributes:
        path: on the disk, from the table's directory on; not quoted.
        size: in bytes.
        modified_ms: since 1970.
        rows: in it, >= 1.
        partition_values: text by column, not quoted; None = null.
        fields: of its schema, as Spark wrote them into its footer.
        nulls: top columns that may hold nulls.
    """

    path: str
    size: int
    modified_ms: int
    rows: int
    partition_values: Mapping[str, str | None]
    fields: Sequence[Mapping[str, Any]]
    nulls: Sequence[str]
