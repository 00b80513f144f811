"""Stands before moto: keeps versions of Glue's tables, counts requests, and loses answers.

moto's Glue takes every ``UpdateTable``, whatever ``VersionId`` it names, so two writers would lose
commits there that the real one refuses.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "expect"})


class AwsProxy:
    """A server on loopback; use it as a context.

    Attributes:
        counts: requests since the last ``counts.clear()``: ``S3 PUT``, ``Glue UpdateTable``.
        key_ids: with which requests to each service were signed.
        lose: how many of the next answers to ``UpdateTable`` get lost, after it was carried out.
    """

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")
        self.counts: Counter[str] = Counter()
        self.key_ids: dict[str, set[str]] = {"S3": set(), "Glue": set()}
        self.lose = 0
        self._versions: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

            def _serve(self) -> None:
                proxy.serve(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - theirs

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = _body_of(request)
        target = request.headers.get("X-Amz-Target", "")
        operation = target.removeprefix("AWSGlue.")
        service, what = ("Glue", operation) if target else ("S3", request.command)
        self.counts[f"{service} {what}"] += 1
        signed = request.headers.get("Authorization", "")
        self.key_ids[service].add(signed.partition("Credential=")[2].partition("/")[0])
        if target:
            status, headers, answer = self._glue(request, operation, json.loads(body), body)
        else:
            status, headers, answer = self._forward(request, body)
        if status is None:
            request.close_connection = True
            return
        request.send_response(status)
        is_head = request.command == "HEAD"
        for name, text in headers.items():
            if name.lower() not in _HOP or (is_head and name.lower() == "content-length"):
                request.send_header(name, text)
        if not is_head:
            request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        if not is_head:
            request.wfile.write(answer)

    def _glue(self, request: Any, operation: str, asked: dict[str, Any], body: bytes) -> Any:
        database = asked.get("DatabaseName", "")
        name = asked.get("Name") or asked.get("TableInput", {}).get("Name", "")
        key = database, name
        with self._lock:
            if operation == "UpdateTable":
                if asked.get("VersionId") != str(self._versions[key]):
                    said = {
                        "__type": "ConcurrentModificationException",
                        "Message": f"the table has version {self._versions[key]}",
                    }
                    headers = {"Content-Type": "application/x-amz-json-1.1"}
                    return 400, headers, json.dumps(said).encode()
                found = self._forward(request, body)
                if found[0] == 200:
                    self._versions[key] += 1
                if self.lose:
                    self.lose -= 1
                    return None, {}, b""
                return found
            status, headers, answer = self._forward(request, body)
            if operation == "GetTable" and status == 200:
                table = json.loads(answer)
                table["Table"]["VersionId"] = str(self._versions[key])
                answer = json.dumps(table).encode()
            return status, headers, answer

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> Any:
        headers = {name: text for name, text in request.headers.items() if name.lower() not in _HOP}
        connection = http.client.HTTPConnection(self._host)
        try:
            connection.request(request.command, request.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(request.rfile.readline().partition(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)
