"""Whether a standalone cluster's master is there, seen before a server is started for it.

Spark asks three times and gives up after a minute, with the traces of three exceptions. A
connection that is refused says the same at once.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mld.model.spark.addresses import addresses_of
from mld.spark.errors import SparkConfigError, SparkUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

_PROBE_TIMEOUT_S = 3.0


def require_master(
    master: str, connect: Callable[..., socket.socket] = socket.create_connection
) -> None:
    """Return if one of a standalone cluster's masters answers, or if it is no such cluster.

    Args:
        master: of ``spark.master``.
        connect: opens a connection; takes an address and a time-out in s.

    Raises:
        SparkConfigError: the URL is none.
        SparkUnreachable: none answers within 3 s each.
    """
    failures = []
    try:
        addresses = addresses_of(master)
    except ValueError as error:
        raise SparkConfigError(f"spark.master={master} {error}") from error
    for address in addresses:
        try:
            connect(address, _PROBE_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{address[0]}:{address[1]}: {error}")
        else:
            return
    if failures:
        raise SparkUnreachable(
            f"no Spark master answers at spark.master={master} ({'; '.join(failures)}): "
            f"start it, or correct the property"
        )
