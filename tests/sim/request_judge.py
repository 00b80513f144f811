"""Watches what people ask of workers, and what is carried out afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.model.leases.lease_request import REQUEST, STEERED, request_from
from tests.sim.rows import text_of

if TYPE_CHECKING:
    from mld.model.leases.lease_request import LeaseRequest
    from tests.sim.court import Court
    from tests.sim.rows import Item


class RequestJudge:
    """S17."""

    def __init__(self, court: Court) -> None:
        self._court = court
        #: By id of a request: why nobody may carry it out any more.
        self._void: dict[str, str] = {}

    def withdrawn(self, request_id: str) -> None:
        """A command has ended and says that nothing of this is asked any more."""
        self._void.setdefault(request_id, "its command withdrew it")

    def wrote(self, key: str, before: Item | None, after: Item) -> None:
        """A row changed."""
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


def _text(item: Item | None, name: str) -> LeaseRequest | None:
    return None if item is None else request_from(text_of(item, name))
