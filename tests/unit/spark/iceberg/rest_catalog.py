"""A catalog that speaks Iceberg's REST protocol, as far as the sink asks; it keeps tables in SQLite."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


#: pyiceberg sends what there is, and reads back what must be named.
_LEFT_OUT = dict.fromkeys(("location", "partition-spec", "write-order"))


class RestCatalogServer:
    """A server on loopback; use it as a context.

    Attributes:
        fates: of the next commits: "lost" = it stands, and the answer is 504; "cut" = it stands,
            and there is none; "busy" = 503, nothing was done.
        authorizations: headers that requests had.
    """

    def __init__(self, catalog: Any, config: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._config = dict(config)
        self._lock = threading.Lock()
        self.fates: list[str] = []
        self.authorizations: set[str] = set()
        serve = self._serve

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

            def _serve(self) -> None:
                serve(self)

            do_GET = do_POST = do_HEAD = _serve  # noqa: N815 - theirs

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

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.authorizations.add(request.headers.get("Authorization", ""))
        with self._lock:
            status, answer = self._answer(request, body)
        if status == 0:
            request.close_connection = True
            return
        text = b"" if answer is None else json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def _answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        parts = request.path.partition("?")[0].strip("/").split("/")[1:]
        try:
            return self._carried_out(request.command, parts, body)
        except NoSuchTableError as error:
            return _error(404, error)
        except CommitFailedException as error:
            return _error(409, error)

    def _carried_out(self, verb: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        match verb, parts[1:]:
            case "POST", [namespace, "tables"]:
                asked = CreateTableRequest.model_validate({**_LEFT_OUT, **json.loads(body)})
                made = self._catalog.create_table(
                    (namespace, asked.name),
                    asked.table_schema,
                    partition_spec=asked.partition_spec,
                    properties=asked.properties,
                )
                return 200, self._shown(made)
            case "GET", [namespace, "tables", name]:
                return 200, self._shown(self._catalog.load_table((namespace, name)))
            case "POST", [namespace, "tables", name]:
                return self._commit((namespace, name), body)
            case "GET", [namespace]:
                return 200, {"namespace": [namespace], "properties": {}}
        return 204, None  # reports of what a reader did

    def _commit(self, identifier: tuple[str, str], body: bytes) -> tuple[int, Any]:
        fate = self.fates.pop(0) if self.fates else ""
        if fate == "busy":
            return _error(503, TimeoutError("busy"))
        # Java leaves the name to the path.
        name = {"namespace": identifier[:-1], "name": identifier[-1]}
        asked = CommitTableRequest.model_validate({"identifier": name, **json.loads(body)})
        table = self._catalog.load_table(identifier)
        made = self._catalog.commit_table(table, asked.requirements, asked.updates)
        if fate == "lost":
            return _error(504, TimeoutError("no answer from behind"))
        if fate == "cut":
            return 0, None
        return 200, json.loads(made.model_dump_json())

    def _shown(self, table: Any) -> dict[str, Any]:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": self._config,
        }


def _error(status: int, error: Exception) -> tuple[int, Any]:
    kind = type(error).__name__.replace("TableError", "TableException")  # as Java names it
    said = {"message": str(error), "type": kind, "code": status}
    return status, {"error": said}
