"""Watches what people ask of workers, what is carried out afterwards, and who gets what is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.leases.model.lease_request import PAUSED_UNTIL, REQUEST, STEERED, request_from
from tests.sim.ports import EPOCH_S
from tests.sim.rows import text_of

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from tests.sim.court import Court
    from tests.sim.rows import Item


#: What a leader writes, it has planned by a scan that may be so old.
PLANNED_S = 10.0


class RequestJudge:
    """S17, S18."""

    def __init__(self, court: Court) -> None:
        self._court = court
        #: By id of a request: why nobody may carry it out any more.
        self._void: dict[str, str] = {}
        self._paused_s: dict[str, float] = {}

    def withdrawn(self, request_id: str) -> None:
        """A command has ended and says that nothing of this is asked any more."""
        self._void.setdefault(request_id, "its command withdrew it")

    def wrote(self, key: str, before: Item | None, after: Item) -> None:
        """A row changed."""
        if before is not None:
            self._check_pause(key, before, after)
        note, request = _text(after, STEERED), _text(before, REQUEST)
        if note is not None and note != _text(before, STEERED):
            why = self._void.get(note.request_id)
            if why is not None:
                text = f"{self._court.actor} carried out {note.verb} of {key}: {why}"
                self._court.convict("S17", text)
            return
        actor = self._court.actor
        is_its_own = actor == text_of(after, "leaseOwner") and "checkpointOwner" not in after
        if request is not None and actor != request.holder and is_its_own:
            self._void.setdefault(request.request_id, f"{actor} has had the lease since")

    def _check_pause(self, key: str, before: Item, after: Item) -> None:
        """S18: a worker of ours that gives a lease to another one."""
        court, until = self._court, text_of(after, PAUSED_UNTIL)
        if until != text_of(before, PAUSED_UNTIL):
            self._paused_s[key] = court.now()
        new = text_of(after, "leaseOwner")
        is_given = new is not None and new not in (text_of(before, "leaseOwner"), court.actor)
        is_paused = EPOCH_S + court.now() < float(until or 0)
        if not is_given or not is_paused or court.now() - self._paused_s[key] < PLANNED_S:
            return
        court.counts["paused lease given away"] += 1
        if new in court.foreigners and court.actor not in court.foreigners:
            court.convict("S18", f"{court.actor} gave {key}, which is paused, to {new}")


def _text(item: Item | None, name: str) -> LeaseRequest | None:
    return None if item is None else request_from(text_of(item, name))
