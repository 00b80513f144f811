"""The commits that a table's log tells of, the newest first, whatever their writers say of them.

delta-rs has such a list as well, which one commit with an odd information makes impossible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.spark.table.delta_log import entry_name
from mld.spark.table.log_entries import information_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.spark.table.store import Store


def commits(store: Store, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Version and information (``commitInfo``) of each commit, until one whose entry is gone.

    Args:
        store: of the table.
        version: its newest one.
    """
    for number in range(version, -1, -1):
        if (text := store.get(entry_name(number))) is None:
            return
        yield number, information_in(text)
