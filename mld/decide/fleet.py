"""Whether a lease table belongs to a fleet that this worker can serve.

3.x fleets keep their state in an item ``Migration3.0``, in the lease table (3.5 and later) or in
the table ``<application>-CoordinatorState`` (3.0 to 3.4). From ``CLIENT_VERSION_3X`` and
``CLIENT_VERSION_3X_WITH_ROLLBACK`` on a leader assigns the leases; a worker that takes leases for
itself would fight it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mld.errors import UnservableFleet
from mld.model.lease_item import is_moving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mld.model.lease import Lease

_MULTI_STREAM_KEY = re.compile(r"[0-9]+:[^:]+:[0-9]+:[^:]+\Z")
_WAYS_OUT = (
    "Keep the Java daemon for this application, give kcl-mld another applicationName, or look for a "
    "version of kcl-mld that knows it"
)


def refuse_unreadable(key: str, why: str) -> UnservableFleet:
    """The error of a worker that can't tell what its fleet does: it could work against a leader.

    Args:
        key: of the item.
        why: what is wrong with it.
    """
    return UnservableFleet(f"the item {key} says what kcl-mld does not know: {why}. " + _WAYS_OUT)


def refuse_two_fleets(tables: Iterable[str]) -> UnservableFleet:
    """The error of a worker that finds two fleets with one set of leases, each with a leader.

    Args:
        tables: in which each keeps its items.
    """
    names = " and ".join(tables)
    return UnservableFleet(
        f"the leases belong to two fleets, whose items are in the tables {names}: a worker of KCL "
        "3.0 to 3.4 was probably started on an application of 3.5 or later. Stop every worker that "
        "is older than 3.5, delete its coordinator table and start again"
    )


def check_not_moving(items: Mapping[str, Mapping[str, Any]], table: str) -> None:
    """Make sure that the table's rows are not on their way to other keys.

    Args:
        items: key -> item of everything in the table that is no lease.
        table: its name.

    Raises:
        UnservableFleet: some are; until they are valid their shards would be read from the start.
    """
    moving = sorted(key for key, item in items.items() if is_moving(item))
    if moving:
        raise UnservableFleet(
            f"{len(moving)} rows of the lease table {table} are on their way to other keys "
            f"({moving[0]}): finish the move with kcl-mld leases migrate, or take it back with the "
            "other --to"
        )


def check_stream_mode(leases: Iterable[Lease], *, is_multi_stream: bool) -> None:
    """Make sure that the table's keys are of the kind that this worker writes.

    Args:
        leases: all rows.
        is_multi_stream: this worker writes keys ``account:stream:epoch:shardId``, not ``shardId``.

    Raises:
        UnservableFleet: the table was written in the other mode. Its leases would be invisible, so
            all records would be read again.
    """
    for lease in leases:
        is_multi = lease.stream_identifier is not None or bool(
            _MULTI_STREAM_KEY.match(lease.lease_key)
        )
        if is_multi and not is_multi_stream:
            raise UnservableFleet(
                f"the lease table has rows of a multi-stream application ({lease.lease_key}), but "
                "this configuration is for a single stream. Give it an applicationName of its own, "
                "or move the rows with kcl-mld leases migrate --to single-stream"
            )
        if not is_multi and is_multi_stream:
            raise UnservableFleet(
                f"the lease table has rows of a single-stream application ({lease.lease_key}), but "
                f"this configuration writes keys like account:stream:epoch:{lease.lease_key}. Give "
                "it an applicationName of its own, configure it for a single stream, or move the "
                "rows with kcl-mld leases migrate --to multi-stream"
            )
