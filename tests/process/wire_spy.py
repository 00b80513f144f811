"""What programs ask of AWS, as it goes over the wire: a relay that keeps what clients send."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target: *(\w+)\.(\w+)", re.IGNORECASE)
_PATH = re.compile(rb"^POST (\S+) ")
_SERVICES = {"Kinesis_20131202": "kinesis", "DynamoDB_20120810": "dynamodb"}


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        action: as IAM names it.
        members: of a JSON request; empty for another.
        body: as it was sent, without compression.
    """

    action: str
    members: dict[str, Any]
    body: bytes


class WireSpy:
    """Relays connections to one endpoint; use as a context manager."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sent: list[bytearray] = []
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        for one in (self._listener, *self._open):
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            self._open += [client, server]
            kept = bytearray()
            self._sent.append(kept)
            for pair in ((client, server, kept), (server, client, None)):
                threading.Thread(target=_relay, args=pair, daemon=True).start()

    def asked(self) -> Iterator[Asked]:
        """All whole requests so far."""
        for kept in list(self._sent):
            yield from _requests(bytes(kept))


def _relay(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    try:
        while data := source.recv(65_536):
            if kept is not None:
                kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()


def _requests(data: bytes) -> Iterator[Asked]:
    while (end := data.find(b"\r\n\r\n")) >= 0:
        head = data[:end]
        length = _LENGTH.search(head)
        start = end + 4
        ends_at = start + (int(length[1]) if length else 0)
        if len(data) < ends_at:
            return  # the rest is on its way
        body, data = data[start:ends_at], data[ends_at:]
        if b"gzip" in head.lower().partition(b"content-encoding:")[2][:20]:
            body = gzip.decompress(body)
        target, path = _TARGET.search(head), _PATH.search(head)
        if target is not None and target[1].decode() in _SERVICES:
            action = f"{_SERVICES[target[1].decode()]}:{target[2].decode()}"
            yield Asked(action, json.loads(body), body)
        elif (
            b"PutMetricData" in body
            or (path and b"PutMetricData" in path[1])
            or (target is not None and target[2] == b"PutMetricData")
        ):
            yield Asked("cloudwatch:PutMetricData", {}, body)
        elif b"GetCallerIdentity" in body:
            yield Asked("sts:GetCallerIdentity", {}, body)
        else:
            yield Asked(f"unknown: {head[:80]!r}", {}, body)
