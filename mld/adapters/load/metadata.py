"""Metadata of ECS tasks and EC2 instances: small answers of a server at hand, without a proxy."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

#: Java waits 5 s; these servers are on the same host and answer within milliseconds.
TIMEOUT_S = 1.0
MAX_BYTES = 1 << 20


class NoMetadata(OSError):
    """The server answered, but not what it should."""


def get_json(url: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        OSError: there is no such server, or its answer is another one.
    """
    try:
        answer = json.loads(exchange("GET", url, {}))
    except ValueError as error:
        raise NoMetadata(f"{url} did not answer with JSON: {error}") from None
    if not isinstance(answer, dict):
        raise NoMetadata(f"{url} did not answer with a JSON object")
    return answer


def exchange(method: str, url: str, headers: dict[str, str]) -> bytes:
    """The body of an answer 200.

    Raises:
        OSError: there is no such server, or its answer is another one.
    """
    parts = urlsplit(url)
    path = parts.path or "/"
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES)
    except http.client.HTTPException as error:
        raise NoMetadata(f"{url} did not answer as HTTP: {error!r}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise NoMetadata(f"{url} answered {answer.status}")
    return body
