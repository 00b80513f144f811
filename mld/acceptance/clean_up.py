"""Deletes what a journal names, if it is this run's, and says what is left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.acceptance.rules.resource import (
    STAYS_IN_S3,
    Found,
    Resource,
    ResourceKind,
    why_foreign,
)
from kcl_mld.errors import AwsError, Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.acceptance.account import Account
    from kcl_mld.acceptance.rules.resource import JournalEntry

#: AWS takes so long at most to delete a table or a stream, most of the time seconds.
PATIENCE_S = 600.0
_WAIT_S = 1.0
_WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Remains:
    """A journalled name under which there is something.

    Attributes:
        why_kept: why it may not be deleted; None = it may.
    """

    entry: JournalEntry
    why_kept: str | None

    @property
    def resource(self) -> Resource:
        """What the journal says."""
        return self.entry.resource


class CleanUp:
    """The clean-up of one journal.

    Attributes:
    Args:
        entries: from the journal.
        limit_s: of the run.
        progress: gets a line for people.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        account: Account,
        entries: Iterable[JournalEntry],
        run_id: str,
        limit_s: float,
        progress: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        order = list(ResourceKind)
        self._account = account
        self._entries = sorted(entries, key=lambda one: order.index(one.resource.kind))
        self._run_id = run_id
        self._limit_s = limit_s
        self._progress = progress
        self._clock = clock
        self._sleep = sleep
        self._logged: set[Resource] = set()
        self._deleted: set[Resource] = set()
        self._failures: dict[Resource, str] = {}

    @property
    def deleted(self) -> int:
        """Number of resources whose deletion has begun."""
        return len(self._deleted)

    def look(self) -> tuple[Remains, ...]:
        """What is there under the journalled names; changes nothing.

        Raises:
            AwsError: it could not be found out.
        """
        found = []
        for entry in self._entries:
            one = self._account.find(entry.resource)
            if one is not None:
                found.append(Remains(entry, self._why_kept(entry, one)))
        return tuple(found)

    def _why_kept(self, entry: JournalEntry, found: Found) -> str | None:
        return why_foreign(entry, found, self._run_id, self._limit_s)

    def run(self) -> tuple[Remains, ...]:
        """Delete what is this run's, and wait until it is gone.

        A failed call does not keep the rest from being deleted.

        Returns:
            What is left, foreign things under journalled names included.
        """
        until_s = self._clock() + PATIENCE_S
        left = self._delete(until_s)
        if self._clock() < until_s:
            # What a worker was creating when it was killed may be there only now.
            self._sleep(_WAIT_S)
            left = self._delete(until_s)
        for entry in self._entries:
            if entry.resource.kind is ResourceKind.OBJECTS:
                self._progress(f"Below {entry.resource.name} {STAYS_IN_S3}")
        return left

    def _delete(self, until_s: float) -> tuple[Remains, ...]:
        """Delete what is there, and wait until it is gone, or time is up; what is left."""
        asked: set[Resource] = set()
        kept: list[Remains] = []
        waiting = self._entries
        while waiting:
            looked = [Remains(entry, why) for entry in waiting if (why := self._step(entry, asked))]
            kept += [one for one in looked if one.why_kept != _WAITING]
            waiting = [one.entry for one in looked if one.why_kept == _WAITING]
            if waiting and self._clock() >= until_s:
                return (*kept, *(Remains(one, self._why_late(one)) for one in waiting))
            if waiting:
                self._sleep(_WAIT_S)
        return tuple(kept)

    def _step(self, entry: JournalEntry, asked: set[Resource]) -> str | None:
        """Look at one, and delete it once: None = it is gone, else why it is there."""
        resource = entry.resource
        try:
            found = self._account.find(resource)
            if found is None:
                return None
            if resource not in asked:
                if why := self._why_kept(entry, found):
                    return why
                if not found.is_going:
                    if resource not in self._logged:
                        self._logged.add(resource)
                        self._progress(f"Deleting {resource}")
                    self._account.delete(resource)
                    self._deleted.add(resource)
                self._failures.pop(resource, None)
                asked.add(resource)
        except Denied as error:
            return str(error)
        except AwsError as error:  # such as that it is still being created: tried again
            self._failures[resource] = str(error)
        return _WAITING

    def _why_late(self, entry: JournalEntry) -> str:
        why = self._failures.get(entry.resource, "it is being deleted")
        return f"it is still there after {PATIENCE_S:.0f} s: {why}"
