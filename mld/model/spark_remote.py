"""``spark.remote``: host and port of a Spark Connect server. Pure."""

from __future__ import annotations

import urllib.parse

DEFAULT_PORT = 15002


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
