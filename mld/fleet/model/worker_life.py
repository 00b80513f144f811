"""One process under a worker's id, and the item that one leaves in the table when it fails.

A process of ours writes an id of its own and its start into its worker's metrics item. Java keeps
what it does not know there, so a Java worker that goes on under the id would keep both: they count
only together with the ``lut`` that they were written with.

A life that failed leaves an item of its own, under another key than the worker's: a leader of an
older version takes each change of a worker's ``lut`` for a report. It has all that Java needs to
read it as the metrics of a worker, and a ``lut`` so old that Java gives such a worker no lease, and
deletes the item an hour later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import FAILED_LIFE
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.table_item import ENTITY_TYPE, Entity, integer, text_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.leases.model.table_item import Item

#: Entry of ``properties`` of a worker's metrics.
INSTANCE = "kclMldInstance"
#: Entries of ``properties`` of a failed life.
_WORKER, _LIVED, _FAILED_AT = "kclMldWorker", "kclMldLivedSeconds", "kclMldFailedAt"
_WHY, _LEASE, _POSITION = "kclMldWhy", "kclMldLease", "kclMldPosition"
#: ``lut`` is this much older than the failure: Java's leader ignores metrics after a minute and, unless
#: configured otherwise, deletes them after a day (DataHolder.isMetricsEntryStale, 3.5.1).
BACKDATED_S = 23 * 3600
#: Why a life ended of which its leader knows no more.
SILENT = "it stopped renewing its leases"


@dataclass(frozen=True, slots=True)
class Instance:
    """One process under a worker's id.

    Attributes:
        id: made anew by each process.
        began_s: epoch seconds, by its own clock.
    """

    id: str
    began_s: int

    def text(self, updated_at_s: int) -> str:
        """As it stands beside that ``lut``."""
        return f"{updated_at_s} {self.began_s} {self.id}"


def instance_of(text: str | None, updated_at_s: int) -> Instance | None:
    """The process that wrote an item; None if it has none, or another process has written it since.

    Args:
        text: of :data:`INSTANCE`.
        updated_at_s: ``lut`` of the item.
    """
    parts = [] if text is None else text.split(" ", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2]):
        return None
    return Instance(parts[2], int(parts[1])) if parts[0] == str(updated_at_s) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLife:
    """A process that ended by its own failure.

    Attributes:
        instance: id of the process.
        worker_id: under which it ran.
        lived_s: seconds from its start to its end, or to its last report.
        failed_at_s: epoch seconds, by the clock of who noted it.
        why: how it ended, for people.
        lease_key: of the lease whose child failed; None = it is not known, or was none.
        position: the checkpoint of that lease.
    """

    instance: str
    worker_id: str
    lived_s: int
    failed_at_s: int
    why: str = ""
    lease_key: str | None = None
    position: str | None = None

    @property
    def key(self) -> str:
        """Of its item."""
        return f"{FAILED_LIFE}{self.instance}"


def failed_life_to_item(life: FailedLife, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item."""
    texts = (
        (_WORKER, life.worker_id),
        (_LIVED, str(life.lived_s)),
        (_FAILED_AT, str(life.failed_at_s)),
        (_WHY, life.why),
        (_LEASE, life.lease_key),
        (_POSITION, life.position),
    )
    at_s = integer(life.failed_at_s - BACKDATED_S)
    return {
        key_name: {"S": life.key},
        ENTITY_TYPE: {"S": Entity.WORKER_METRIC_STATS.value},
        "lut": at_s,
        "sts": {"M": {}},
        "opr": {"M": {}},
        "sup": integer(1),
        "slu": at_s,
        "properties": {"M": {name: {"S": text} for name, text in texts if text}},
    }


def failed_lives_in(items: Iterable[Item], key_name: str) -> tuple[FailedLife, ...]:
    """The failed lives among the items of a table, the latest last; unreadable ones are left out."""
    found = [life for item in items if (life := _failed_life(item, key_name)) is not None]
    return tuple(sorted(found, key=lambda one: (one.failed_at_s, one.instance)))


def _failed_life(item: Item, key_name: str) -> FailedLife | None:
    key = str(item.get(key_name, {}).get("S", ""))
    if not key.startswith(FAILED_LIFE):
        return None
    try:
        texts = value_of(item, "properties", "M") or {}
        worker_id, lived, failed_at = (
            text_of(texts, name) or "" for name in (_WORKER, _LIVED, _FAILED_AT)
        )
        others = [text_of(texts, name) for name in (_WHY, _LEASE, _POSITION)]
    except MalformedData:
        return None
    if not (worker_id and lived.isdecimal() and failed_at.isdecimal()):
        return None
    return FailedLife(
        instance=key.removeprefix(FAILED_LIFE),
        worker_id=worker_id,
        lived_s=int(lived),
        failed_at_s=int(failed_at),
        why=others[0] or "",
        lease_key=others[1],
        position=others[2],
    )
