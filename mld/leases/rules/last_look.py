"""How a stopping worker treats rows that name it after it has released its leases.

Leaders and other stopping workers name it as the next owner of leases for as long as they see its
item of worker metrics, and some write that a moment later. No worker reads those leases until they
expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from kcl_mld.leases.model.lease import Lease


@dataclass(frozen=True, slots=True)
class LastLook:
    """The result of one check of the table.

    Attributes:
        to_release: rows that this worker owns and does not hold.
        are_coming: other workers are still about to hand leases over to this one.
    """

    to_release: tuple[Lease, ...]
    are_coming: bool


def last_look(rows: Iterable[Lease], worker_id: str, held: Container[str]) -> LastLook:
    """Evaluate the rows of a consistent scan.

    Args:
        rows: every lease of the table.
        worker_id: of the worker that stops; its item of worker metrics is gone.
        held: keys of leases that it still holds, which are released elsewhere.
    """
    mine = [row for row in rows if row.lease_key not in held]
    return LastLook(
        to_release=tuple(row for row in mine if row.actual_owner == worker_id),
        are_coming=any(row.is_handed_over and row.lease_owner == worker_id for row in mine),
    )
