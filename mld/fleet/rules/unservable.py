"""Why a worker can't serve its fleet.

3.x fleets keep their state in an item ``Migration3.0``, in the lease table (3.5 and later) or in
the table ``<application>-CoordinatorState`` (3.0 to 3.4). From ``CLIENT_VERSION_3X`` and
``CLIENT_VERSION_3X_WITH_ROLLBACK`` on a leader assigns the leases; a worker that takes leases for
itself would fight it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.errors import UnservableFleet

if TYPE_CHECKING:
    from collections.abc import Iterable

_WAYS_OUT = (
    "Keep the Java daemon for this application, give kcl-mld another applicationName, or look for a "
    "version of kcl-mld that knows it"
)


def refuse_unreadable(key: str, why: str) -> UnservableFleet:
    """The error of a worker that can't read its fleet's state: it could compete with a leader."""
    return UnservableFleet(f"the item {key} says what kcl-mld does not know: {why}. " + _WAYS_OUT)


def refuse_two_fleets(tables: Iterable[str]) -> UnservableFleet:
    """The error of a worker that finds two fleets with one set of leases, each with a leader."""
    names = " and ".join(tables)
    return UnservableFleet(
        f"the leases belong to two fleets, whose items are in the tables {names}: a worker of KCL "
        "3.0 to 3.4 was probably started on an application of 3.5 or later. Stop every worker that "
        "is older than 3.5, delete its coordinator table and start again"
    )
