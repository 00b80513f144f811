"""Frames of an event stream, and a server of one connection at a time that sends what it is told."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl


def frame(payload: bytes, **headers: str) -> bytes:
    """One frame; header names are given with ``_`` for ``-`` and without the colon."""
    encoded = b"".join(
        struct.pack(">B", len(name) + 1)
        + f":{name.replace('_', '-')}".encode()
        + struct.pack(">BH", 7, len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return head + struct.pack(">I", zlib.crc32(head))


INITIAL = frame(b"{}", message_type="event", event_type="initial-response")


def event(payload: bytes) -> bytes:
    """A SubscribeToShardEvent."""
    return frame(payload, message_type="event", event_type="SubscribeToShardEvent")


def exception(code: str, message: str = "why") -> bytes:
    """An exception in the stream."""
    body = json.dumps({"message": message}).encode()
    return frame(body, message_type="exception", exception_type=code)


class EventStreamServer:
    """Accepts connections; what is put into :attr:`script` is done on the one that came last.

    Steps are bytes (a chunk), ``"end"`` (the stream's normal end), ``"cut"`` (the connection is
    reset) or ``("refuse", status, code)`` instead of the head.

    Attributes:
        requests: bodies of the requests, parsed.
        sent: bytes of chunks that the kernel took.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.script: queue.Queue[Any] = queue.Queue()
        self.requests: list[dict[str, Any]] = []
        self.sent = 0
        self.closed_by_client = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; a connection that is open is cut. May be called again."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.script.put("cut")
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                with connection:
                    self._answer(connection)
            except OSError:
                self.closed_by_client.set()

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as reader:
            length = 0
            while (line := reader.readline()) not in {b"\r\n", b""}:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            self.requests.append(json.loads(reader.read(length) or b"{}"))
        is_open = False
        while (step := self.script.get()) != "cut":
            if isinstance(step, tuple):
                _, status, code = step
                body = json.dumps({"__type": code, "message": "why"}).encode()
                head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n"
                connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
                return
            if not is_open:
                head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
                connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
                is_open = True
            if step == "end":
                connection.sendall(b"0\r\n\r\n")
                return
            connection.sendall(f"{len(step):x}\r\n".encode() + step + b"\r\n")
            self.sent += len(step)
        if is_open:  # a reset, not an orderly end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
