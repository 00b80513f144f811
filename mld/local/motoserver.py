"""moto's DynamoDB, CloudWatch, STS and S3 in a thread of this process, with our faults in front.

DynamoDB Streams are ours, see :mod:`kcl_mld.local.streamed_tables`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import threading
import time
import uuid
from html import escape
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

from kcl_mld.local.streamed_tables import TARGET, StreamedTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.local.dynamodb_streams import TableStreams
    from kcl_mld.local.faultplan import FaultPlan, FaultRule
    from kcl_mld.local.streamed_tables import Environ

    StartResponse = Callable[[str, list[tuple[str, str]]], Any]

_SCOPE = re.compile(r"Credential=[^/]*/\d+/([^/]*)/([^/]+)/")
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")
#: Seconds between two checks whether the server has to stop.
_POLL_S = 0.1
#: Services loaded before the first request asks for them.
_WANTED = ("dynamodb", "monitoring", "sts")


class _QuietHandler(MotoRequestHandler):
    """Keeps connections open, which saves a connection per request, and writes no access log."""

    protocol_version = "HTTP/1.1"
    # Without this every answer waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The date of an answer."""
        app = self.server.app
        target = self.headers.get("X-Amz-Target", "")
        if isinstance(app, _FaultyApp) and target.startswith(TARGET):
            timestamp = app.clock()
        return super().date_time_string(timestamp)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


class _FaultyApp:
    """WSGI application: applies the plan, then hands the request to moto."""

    def __init__(self, plan: FaultPlan, streams: TableStreams) -> None:
        self._plan = plan
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._tables = StreamedTables(self._moto, streams)
        #: Date of answers of DynamoDB Streams, in epoch seconds.
        self.clock = streams.clock
        # moto puts a new row with its key alone and fills it afterwards, and compares a condition
        # before it writes: threads in between see half of a row, or both meet one condition.
        # Its S3 does the same with an object that must be new.
        self._one_at_a_time = streams.lock

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        service, operation = _named(environ, body)
        stamp = environ.get("HTTP_X_AMZ_DATE", "")
        rule = self._plan.pick(service, operation, body, stamp)
        if rule is None:
            return self._forward(service, environ, start_response)
        if rule.delay_s > 0:
            time.sleep(rule.delay_s)
        if not rule.spoils:
            return self._forward(service, environ, start_response)
        if rule.when == "after":
            list(self._forward(service, environ, lambda *_args: None))
        if rule.drop:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        return _error(rule, environ, start_response)

    def load(self, service: str) -> None:
        """Import a service's backend and make its routes."""
        credential = f"AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/{service}/aws4_request, x=y"
        self._moto.get_application(
            {
                "PATH_INFO": "/",
                "HTTP_AUTHORIZATION": credential,
                "HTTP_X_AMZ_TARGET": "DynamoDB_20120810.ListTables"
                if service == "dynamodb"
                else "",
            }
        )

    def _forward(
        self, service: str, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        if service in {"dynamodb", "dynamodbstreams"}:
            with self._one_at_a_time:
                return self._of_tables(environ, start_response)
        with self._one_at_a_time if "HTTP_IF_NONE_MATCH" in environ else contextlib.nullcontext():
            answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer

    def _of_tables(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = dict(environ)  # moto changes it
        ours = self._tables.answer(request, _region(environ))
        if ours is None:
            begun: list[str] = []

            def begin(status: str, *rest: Any) -> Any:
                begun.append(status)
                return start_response(status, *rest)

            answer: Iterable[bytes] = self._moto(environ, begin)
            self._tables.follow(request, is_refused=not begun[-1].startswith("200"))
            return answer
        status, body = ours
        start_response(
            str(status),
            [
                ("Content-Type", "application/x-amz-json-1.0"),
                ("Content-Length", str(len(body))),
                ("x-amzn-RequestId", str(uuid.uuid4())),
            ],
        )
        return [body]


def _region(environ: Environ) -> str:
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    return scope[1] if scope else ""


def _named(environ: Environ, body: bytes) -> tuple[str, str]:
    """Service and operation of a request in any of the protocols in use."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    service = scope[2].lower() if scope else "unknown"
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target.startswith(TARGET):  # it is signed as DynamoDB
        service = "dynamodbstreams"
    if target:
        return service, target.rpartition(".")[2]
    path = environ.get("PATH_INFO", "")
    if "/operation/" in path:
        return service, path.rpartition("/")[2]
    if service == "s3":
        return service, _of_object(environ)
    action = _ACTION.search(body)
    return service, action[1].decode() if action else "unknown"


def _of_object(environ: Environ) -> str:
    """The operation on an object of S3, as far as the method shows it."""
    method = environ.get("REQUEST_METHOD", "GET").capitalize()
    return f"{method}Object"


def _error(rule: FaultRule, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """The error in the protocol of the request, JSON or query."""
    code, message = rule.code or "", rule.message
    if environ.get("HTTP_X_AMZ_TARGET"):
        kind = "application/x-amz-json-1.0"
        body = json.dumps({"__type": code, "message": message}).encode()
    else:
        kind = "text/xml"
        shown = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        body = f"<ErrorResponse><Error>{shown}</Error></ErrorResponse>".encode()
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("x-amzn-RequestId", str(uuid.uuid4())),
    ]
    start_response(f"{rule.http_status} injected", headers)
    return [body]


class MotoServer:
    """moto behind HTTP on one port, in threads of this process.

    Args:
        port: 0 = any free one; see :attr:`port`.
    """

    def __init__(self, host: str, port: int, plan: FaultPlan, streams: TableStreams) -> None:
        self._app = _FaultyApp(plan, streams)
        self._server: BaseWSGIServer = make_server(
            host, port, self._app, threaded=True, request_handler=_QuietHandler
        )
        self.port = self._server.server_port

    def start(self) -> None:
        """Serve from now on, and load the services wanted in the background."""
        threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True).start()
        threading.Thread(target=self._load, daemon=True).start()

    def stop(self) -> None:
        """Stop accepting; requests under way may still be answered."""
        self._server.shutdown()
        self._server.server_close()

    def _load(self) -> None:
        for service in _WANTED:
            self._app.load(service)
