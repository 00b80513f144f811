"""Where Spark is: ``spark.master`` and ``spark.remote`` as hosts and ports. Pure."""

from __future__ import annotations

import urllib.parse

_STANDALONE = "spark://"
DEFAULT_PORT = 15002


def is_local_master(master: str) -> bool:
    """True for ``local``, ``local[4]``, ``local[*, 3]``: executors live in the server itself."""
    return master == "local" or master.startswith("local[")


def addresses_of(master: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of ``spark://one:7077,two:7077``; none for a master of another kind.

    Raises:
        ValueError: a host or a port is missing.
    """
    if not master.startswith(_STANDALONE):
        return ()
    return tuple(_address(each) for each in master.removeprefix(_STANDALONE).split(","))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (
        port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    ):
        raise ValueError(f"must look like {_STANDALONE}host:7077")
    return host, int(port)


def connect_address(url: str) -> tuple[str, int]:
    """Host and port of a Connect URL, ``sc://host:port/;name=value``.

    Raises:
        ValueError: it is none; the text says what is expected.
    """
    if not url.startswith("sc://"):
        raise ValueError(f"must begin with sc://, like sc://host:{DEFAULT_PORT}")
    try:
        parsed = urllib.parse.urlparse("http" + url[2:])
        host, port = parsed.hostname, parsed.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from error
    if not host or parsed.path not in ("", "/"):
        raise ValueError(f"must look like sc://host:{DEFAULT_PORT}/;name=value")
    return host, port or DEFAULT_PORT
