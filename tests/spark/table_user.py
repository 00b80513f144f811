"""A user who works in a Delta table, in a directory or in S3, while workers write it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random

    from deltalake import DeltaTable


class Opens(Protocol):
    """Opens the table."""

    def __call__(self, version: int | None = None) -> DeltaTable:
        """As of a version, or as it is now."""


#: In ``shard_id`` of the rows that the user adds, and deletes again.
USER = "user"
_log = logging.getLogger(__name__)


def disturb(opened: Opens, rng: random.Random) -> str | None:
    """One statement, drawn; what the workers' commits come between fails and is left.

    Args:
        opened: opens a table with the rows of the chaos program.
        rng: draws.

    Returns:
        which; None if there is no table yet, or it failed.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415

    what = rng.choice((delete, update, alter, optimize, clean))
    try:
        what(opened(), rng)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        _log.info("the user's %s failed: %s", what.__name__, error)
        return None
    return what.__name__


def delete(table: DeltaTable, rng: random.Random) -> None:
    """Rows of the user's own are added and deleted: two commits, a file that goes."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)
    from deltalake import write_deltalake  # noqa: PLC0415 (slow to import)

    row = {"shard_id": USER, "sequence_number": str(rng.randrange(99)), "id": 1}
    schema = pa.schema(table.schema().to_arrow())
    write_deltalake(
        table, pa.Table.from_pylist([row | {"sub_sequence_number": 0}], schema), mode="append"
    )
    table.delete(f"shard_id = '{USER}'")


def update(table: DeltaTable, rng: random.Random) -> None:
    """Files with the workers' rows are written anew, with the same rows in them."""
    table.update({"id": "id"}, predicate=f"id % 100 = {rng.randrange(100)}")


def alter(table: DeltaTable, rng: random.Random) -> None:
    """The table's metadata changes under a commit."""
    days = rng.randrange(7, 60)
    table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {days} days"})


def clean(table: DeltaTable, rng: random.Random) -> None:
    """A log checkpoint is written, and the entries before it go, however young they are."""
    table.create_checkpoint()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.update_incremental()
    table.cleanup_metadata()


def restore(opened: Opens, rng: random.Random) -> bool:
    """The table goes back to one of the versions of which the log still has all; False if none."""
    now = opened().version()
    versions = []
    for version in range(max(0, now - 8), now):
        try:
            opened(version)
        except Exception:  # noqa: BLE001 - it was cleaned
            continue
        versions.append(version)
    for _ in range(5):  # a worker's commit may come between
        try:
            if versions:
                opened().restore(rng.choice(versions))
                return True
        except Exception as error:  # noqa: BLE001 - whatever a user's tool may raise
            _log.info("the user's restore failed: %s", error)
    return False


def optimize(table: DeltaTable, rng: random.Random) -> None:
    """Small files become one."""
    table.optimize.compact()
