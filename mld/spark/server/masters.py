"""Whether a standalone cluster's master is there, seen before a server is started for it.

Spark asks three times and gives up after a minute, with the traces of three exceptions. A
connection that is refused says the same at once.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mld.spark.errors import SparkConfigError, SparkUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "spark://"
_PROBE_TIMEOUT_S = 3.0


def addresses_of(master: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of ``spark://one:7077,two:7077``; none for a master of another kind.

    Raises:
        SparkConfigError: a host or a port is missing.
    """
    if not master.startswith(_PREFIX):
        return ()
    return tuple(_address(each, master) for each in master.removeprefix(_PREFIX).split(","))


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
    addresses = addresses_of(master)
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


def _address(text: str, master: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (
        port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    ):
        raise SparkConfigError(f"spark.master={master} must look like {_PREFIX}host:7077")
    return host, int(port)
