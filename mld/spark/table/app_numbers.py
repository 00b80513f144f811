"""The numbers of a table's application ids, read from the log's newest entries.

delta-rs looks for each id in the log anew, entry by entry: a commit of 16 shards took 12 ms after a
log checkpoint, and 45 ms a hundred commits later. What an entry says of an id holds until a later
entry names it, so who knows the numbers of one version needs only the entries since. They are read
for exactly the version that a commit is made on, so comparing them is what it was: a fence.

See "Transaction Identifiers" in the Delta transaction log protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.table.log_entries import numbers_in

if TYPE_CHECKING:
    from collections.abc import Callable

#: Beyond so many entries delta-rs is asked again, which reads a log checkpoint.
MOST_ENTRIES = 50


class AppNumbers:
    """Numbers of one table as of one version; used by one thread.

    Args:
        version: of the table.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._known: dict[str, int | None] = {}

    def get(self, application_id: str, ask: Callable[[str], int | None]) -> int | None:
        """The newest number of an id in this version; None if there is none.

        Args:
            application_id: whose.
            ask: finds it in the same version of the table.
        """
        if application_id not in self._known:
            self._known[application_id] = ask(application_id)
        return self._known[application_id]

    def advance(self, version: int, entry: Callable[[int], str | None]) -> None:
        """Make them those of a later version.

        Args:
            version: of the same table. If it is an earlier one nothing is known any more.
            entry: the text of the log's entry of a version; None if it is not there any more.

        Raises:
            OSError: an entry can't be read.
        """
        known, self._known = self._known, {}  # of no version, until all entries are read
        since, self._version = self._version, version
        if not known or not 0 <= version - since <= MOST_ENTRIES:
            return
        for number in range(since + 1, version + 1):
            if (text := entry(number)) is None or (found := numbers_in(text)) is None:
                return
            known |= found
        self._known = known
