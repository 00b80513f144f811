"""DynamoDB Local as if it were in a region: the adapter refuses its ARNs, whose region is no region.

Source: KinesisMapperUtil (dynamodb-streams-kinesis-adapter 2.0.1).
"""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

_LOCAL = b"arn:aws:dynamodb:ddblocal:000000000000:"
_REGIONAL = b"arn:aws:dynamodb:us-east-1:000000000000:"
#: The checksum of an answer would be that of the answer before.
_DROPPED = ("x-amz-crc32", "content-length", "connection", "transfer-encoding")


class RegionalProxy:
    """Passes requests on, with the ARNs of either side; a context manager.

    Args:
        target: URL of DynamoDB Local.
    """

    def __init__(self, target: str) -> None:
        host = urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sent = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in ("content-length", "host", "connection", "expect")
                }
                target = HTTPConnection(host)
                try:
                    target.request("POST", self.path, body.replace(_REGIONAL, _LOCAL), sent)
                    answer = target.getresponse()
                    content = answer.read().replace(_LOCAL, _REGIONAL)
                    self.send_response(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in _DROPPED:
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                finally:
                    target.close()

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
