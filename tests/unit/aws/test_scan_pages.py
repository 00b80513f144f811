"""Pages of a scan are read without botocore's parser, to what its parser makes of them."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld import errors
from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.kernel.adapters.calls import CallPool
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = {
    "leaseKey": {"S": "shardId-ü\U0001f600"},
    "leaseCounter": {"N": "7"},
    "parentShardId": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2.5"]},
    "nothing": {"NULL": True},
    "flag": {"BOOL": False},
    "deep": {"M": {"list": {"L": [{"S": ""}, {"M": {}}]}}},
}


class Server:
    """Says a body to every request."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(answers.status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(answers.body)))
                for name, value in answers.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answers.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.listener = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.01,))
        self.thread.start()

    def client(self) -> Any:
        return make_client(
            quick_session(),
            ClientSettings(
                service="dynamodb",
                region="eu-west-1",
                endpoint=f"http://127.0.0.1:{self.listener.server_port}",
                threads=1,
                connect_timeout_s=2.0,
                read_timeout_s=5.0,
            ),
        )

    def by_botocore(self, operation: str) -> dict[str, Any]:
        client = self.client()
        answer: dict[str, Any] = getattr(client, operation)(TableName="t")
        client.close()
        answer.pop("ResponseMetadata")
        return answer

    def by_the_port(self, operation: str) -> dict[str, Any]:
        client, pool = self.client(), CallPool("leases", 1)
        dynamodb = BotocoreDynamoDb(client, pool)
        try:
            answer: dict[str, Any] = asyncio.run(getattr(dynamodb, operation)(TableName="t"))
        finally:
            pool.close()
            client.close()
        answer.pop("ResponseMetadata")
        return answer


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.listener.shutdown()
    server.thread.join()
    server.listener.server_close()


@pytest.mark.parametrize("operation", ["scan", "query"])
@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"Items": [ROW, {"k": {}}], "Count": 2, "ScannedCount": 2}).encode(),
        json.dumps({"Items": [ROW]}, ensure_ascii=False, indent=1).encode(),
        json.dumps({"Items": [], "LastEvaluatedKey": {"leaseKey": {"S": "x"}}}).encode(),
        json.dumps({"Items": [{"a": {"B": "AP8="}}]}).encode(),
        json.dumps({"Items": [{"a": {"BS": ["AP8=", "AA=="]}}]}).encode(),
        json.dumps({"Items": [{"a": {"M": {"b": {"B": "AP8="}}}}]}, indent=2).encode(),
        b'{"Items": [{"a": {"\\u0042": "AP8="}, "b": {"\\u0042\\u0053": ["AP8="]}}]}',
        b'{"Items": [{"a": {"S": "\\ud800"}}]}',
        b'{"Items": [], "NewMember": 1}',
        b'{"Items": [], "Count": null}',
    ],
)
def test_a_page_is_what_botocore_reads(server: Server, body: bytes, operation: str) -> None:
    server.body = body
    assert server.by_the_port(operation) == server.by_botocore(operation)


def test_the_parser_is_spared_the_rows(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.body = json.dumps({"Items": [ROW]}, ensure_ascii=False).encode()
    monkeypatch.setattr("botocore.parsers.BaseJSONParser._handle_map", None)
    assert server.by_the_port("scan") == {"Items": [ROW]}


def test_a_page_that_is_damaged_is_refused(server: Server) -> None:
    server.body = json.dumps({"Items": [ROW]}).encode()
    server.headers["x-amz-crc32"] = "1"
    with pytest.raises(errors.AwsError, match="checksum"):
        server.by_the_port("scan")


def test_a_refusal_is_told_as_ever(server: Server) -> None:
    server.status = 400
    server.body = b'{"__type": "x#ProvisionedThroughputExceededException", "message": "why"}'
    with pytest.raises(errors.Throttled):
        server.by_the_port("scan")
