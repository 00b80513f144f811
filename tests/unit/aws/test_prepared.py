"""What is sent from a template is what botocore would have sent, against a loopback server."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError as BotoSslError,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kcl_mld.aws import http_exchange
from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.http_exchange import KeptConnections
from kcl_mld.aws.prepared import (
    TEMPLATE_AGE_S,
    PreparedOperation,
    RequestTemplate,
    request_ids,
)
from kcl_mld.aws.whole_answers import BrokenAnswer, limit_answers
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from botocore.client import BaseClient

UPDATE: dict[str, Any] = {
    "TableName": "t",
    "Key": {"leaseKey": {"S": "a"}},
    "UpdateExpression": "SET leaseCounter = :n",
    "ExpressionAttributeValues": {":n": {"N": "1"}, ":s": {"SS": ["ü", "x"]}},
}
#: Differ from call to call by their nature.
OWN = {"X-Amz-Date", "Authorization", "amz-sdk-invocation-id"}


class Server:
    """Answers all requests alike and remembers them."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.hangs_up = False
        self.sends_bytes: int | None = None
        self.claims: str | None = None
        self.is_chunked = False
        self.may_go_on = threading.Event()
        self.connections = 0
        self.sockets: list[socket.socket] = []
        self.holds_until: threading.Barrier | None = None
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.targets: list[str] = []
        self.url = ""

    def connected(self, connection: socket.socket) -> None:
        self.connections += 1
        self.sockets.append(connection)

    def received(self, target: str, headers: dict[str, str], body: bytes) -> None:
        self.targets.append(target)
        self.requests.append((headers, body))
        if self.holds_until is not None:
            self.holds_until.wait(10)

    def close_idle(self, count: int) -> None:
        """End all connections from this side, once there have been so many."""
        patience = time.monotonic() + 10
        while self.connections < count:  # the client is connected before the server accepts
            assert time.monotonic() < patience, self.connections
            time.sleep(0.01)
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def refuse(self, code: str, **more: Any) -> None:
        self.status = 400
        self.body = json.dumps({"__type": f"x#{code}", "message": "why", **more}).encode()


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no news."""


@contextmanager
def serving(server: Server, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            server.connected(self.request)
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.received(self.path, dict(self.headers), body)
            if server.hangs_up:
                self.close_connection = True
                return
            # Read now: when the answer is out, the test goes on and says what is for the next one.
            ends_here = server.sends_bytes is not None or server.claims is not None
            self.send_response(server.status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            if server.is_chunked:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", server.claims or str(len(server.body)))
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if server.is_chunked:
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(server.body), server.body))
                return
            self.wfile.write(server.body[: server.sends_bytes])
            if ends_here:
                server.may_go_on.wait(20)
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    listener = Listener(("127.0.0.1", 0), Handler)
    if tls is not None:
        # The handshake is a handler's: a client that refuses it must not end the listener.
        listener.socket = tls.wrap_socket(
            listener.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    scheme = "http" if tls is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listener.server_port}"
    try:
        yield
    finally:
        server.may_go_on.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


class Calls:
    """A client with one prepared operation, on a clock of its own."""

    def __init__(
        self,
        server: Server,
        method: str = "update_item",
        *,
        signed: bool = True,
        timeout_s: float = 5.0,
    ) -> None:
        session = quick_session()
        self.credentials: Any = session.get_credentials()
        self.client = make_client(
            session,
            ClientSettings(
                service="kinesis" if method == "get_records" else "dynamodb",
                region="eu-west-1",
                endpoint=server.url,
                threads=1,
                connect_timeout_s=2.0,
                read_timeout_s=timeout_s,
                signed=signed,
            ),
        )
        self.now_s = 0.0
        self.by_botocore = 0
        self.client.meta.events.register("before-call", self._count)
        self.call = PreparedOperation(self.client, method, lambda: self.now_s)

    def _count(self, **_: Any) -> None:
        self.by_botocore += 1


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with serving(server):
        yield server


@pytest.fixture
def calls(server: Server) -> Iterator[Calls]:
    calls = Calls(server)
    yield calls
    calls.client.close()


def signature_of(client: BaseClient, headers: dict[str, str], body: bytes) -> str:
    """What the signature of a received request has to be."""
    url = urlsplit(client.meta.endpoint_url)
    request = AWSRequest("POST", f"{url.scheme}://{url.netloc}/", data=body)
    signed = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    lower = {name.lower(): value for name, value in headers.items()}
    for name in signed:
        if name != "host":
            request.headers[name] = lower[name]
    request.context["timestamp"] = headers["X-Amz-Date"]
    credentials = botocore.session.Session()
    credentials.set_credentials("AKIDEXAMPLE", "secret")
    auth = SigV4Auth(credentials.get_credentials(), "dynamodb", "eu-west-1")
    to_sign = auth.string_to_sign(request, auth.canonical_request(request))
    return str(auth.signature(to_sign, request))


def test_later_requests_are_what_botocore_would_have_sent(calls: Calls, server: Server) -> None:
    for _ in range(3):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1, "botocore has changed: nothing is sent from templates any more"
    (first, body), *others = server.requests
    assert len(others) == 2
    for headers, other in others:
        assert other == body
        assert headers.keys() == first.keys()
        assert {k: v for k, v in headers.items() if k not in OWN} == {
            k: v for k, v in first.items() if k not in OWN
        }


def test_each_request_is_signed_for_itself(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    calls.call(**{**UPDATE, "Key": {"leaseKey": {"S": "other"}}})
    ids = set()
    for headers, body in server.requests:
        signature = headers["Authorization"].rpartition("Signature=")[2]
        assert signature == signature_of(calls.client, headers, body)
        ids.add(headers["amz-sdk-invocation-id"])
    assert len(ids) == 2
    assert json.loads(server.requests[1][1])["Key"] == {"leaseKey": {"S": "other"}}


def test_renewed_credentials_sign_the_next_request(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    calls.credentials.access_key, calls.credentials.token = "AKIDNEXT", "token-2"
    calls.call(**UPDATE)
    headers, _ = server.requests[1]
    assert calls.by_botocore == 1
    assert "AKIDNEXT/" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "token-2"


def test_a_token_that_is_gone_is_not_sent_any_more(calls: Calls, server: Server) -> None:
    calls.credentials.token = "token-1"
    calls.call(**UPDATE)
    calls.credentials.token = None
    calls.call(**UPDATE)
    assert "X-Amz-Security-Token" in server.requests[0][0]
    assert "X-Amz-Security-Token" not in server.requests[1][0]


def test_a_template_is_not_used_for_longer_than_a_minute(calls: Calls) -> None:
    calls.call(**UPDATE)
    calls.now_s = TEMPLATE_AGE_S
    calls.call(**UPDATE)
    assert calls.by_botocore == 1
    calls.now_s = TEMPLATE_AGE_S + 1
    calls.call(**UPDATE)
    assert calls.by_botocore == 2


def test_requests_that_may_go_elsewhere_have_templates_of_their_own(calls: Calls) -> None:
    calls.call(**UPDATE)
    calls.call(**{**UPDATE, "TableName": "u"})
    assert calls.by_botocore == 2
    calls.call(**UPDATE)
    calls.call(**{**UPDATE, "TableName": "u"})
    assert calls.by_botocore == 2


def test_after_a_refusal_botocore_is_asked_again(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.refuse("UnrecognizedClientException")
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 2


def test_errors_are_those_of_botocore(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    item = {"leaseKey": {"S": "a"}, "raw": {"B": "AAE="}}
    server.refuse("ConditionalCheckFailedException", Item=item)
    errors = []
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            calls.call(**UPDATE)
        errors.append(caught.value)
    assert calls.by_botocore == 2
    prepared, own = errors
    assert prepared.operation_name == own.operation_name == "UpdateItem"
    assert prepared.response["Error"] == own.response["Error"]
    assert prepared.response["Item"] == own.response["Item"]
    assert prepared.response["Item"]["raw"]["B"] == b"\0\1"
    status = [error.response["ResponseMetadata"]["HTTPStatusCode"] for error in errors]
    assert status == [400, 400]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"__type":"x#NobodyKnows"}'])
def test_errors_of_any_shape_can_be_read(calls: Calls, server: Server, body: bytes) -> None:
    calls.call(**UPDATE)
    server.status, server.body = 503, body
    with pytest.raises(ClientError) as caught:
        calls.call(**UPDATE)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert calls.by_botocore == 1


def test_a_lost_answer_is_the_same_error_as_ever(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.hangs_up = True
    with pytest.raises(ConnectionClosedError):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


def test_an_answer_that_breaks_off_is_an_error_of_botocore(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.sends_bytes = 1
    server.may_go_on.set()
    with pytest.raises(BotoCoreError, match="1 more expected"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


def test_a_refusal_that_breaks_off_is_told_as_ever(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.refuse("ProvisionedThroughputExceededException")
    server.claims = "500"
    server.may_go_on.set()
    with pytest.raises(ClientError, match="ProvisionedThroughputExceededException"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


@pytest.mark.parametrize("claims", ["38, 38", "many"])
def test_the_length_that_an_answer_claims_is_not_trusted(
    calls: Calls, server: Server, claims: str
) -> None:
    calls.call(**UPDATE)
    server.claims = claims
    server.may_go_on.set()
    with pytest.raises(BrokenAnswer, match=claims):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


def test_an_answer_that_claims_to_be_huge_breaks_off(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.claims = str(10**15)
    server.may_go_on.set()
    with pytest.raises(BotoCoreError, match="more expected"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


def test_an_answer_that_stops_coming_is_a_timeout_of_botocore(server: Server) -> None:
    calls = Calls(server, timeout_s=0.2)
    calls.call(**UPDATE)
    server.sends_bytes = 1
    with pytest.raises(ReadTimeoutError):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1
    calls.client.close()


def test_tls_that_breaks_within_an_answer_is_an_error_of_botocore(calls: Calls) -> None:
    class Broken:
        sock = property(lambda self: self)
        is_connected = True
        is_closed = False

        def sendall(self, _request: bytes) -> None:
            raise ssl.SSLError("bad record mac")

        def close(self) -> None:
            self.is_closed = True

    calls.call(**UPDATE)
    (kept,) = calls.call._connections.values()
    broken: Any = Broken()
    kept.keep(broken)
    with pytest.raises(BotoCoreError, match="bad record mac"):
        calls.call(**UPDATE)
    assert broken.is_closed


def test_a_connection_that_the_service_closed_meanwhile_is_replaced(
    calls: Calls, server: Server
) -> None:
    for _ in range(3):
        calls.call(**UPDATE)
    assert server.connections == 1
    (kept,) = calls.call._connections.values()
    connection = kept.take()
    assert connection is not None
    connection.close()
    connection.connect()  # to be closed by the other side
    kept.keep(connection)
    server.close_idle(2)
    calls.call(**UPDATE)
    calls.call(**UPDATE)
    assert (calls.by_botocore, server.connections) == (1, 3)


def test_a_connection_that_the_service_will_close_is_not_used_again(
    calls: Calls, server: Server
) -> None:
    server.headers["Connection"] = "close"
    for _ in range(3):
        calls.call(**UPDATE)
    assert (calls.by_botocore, server.connections) == (1, 3)


def test_calls_at_the_same_time_have_connections_of_their_own(calls: Calls, server: Server) -> None:
    for _ in range(2):
        calls.call(**UPDATE)
    threads = [threading.Thread(target=calls.call, kwargs=UPDATE) for _ in range(4)]
    server.holds_until = threading.Barrier(4)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(server.requests), server.connections) == (6, 4)
    assert len({headers["amz-sdk-invocation-id"] for headers, _ in server.requests}) == 6


def test_many_threads_get_ids_at_the_same_time() -> None:
    next_id, found, failed = request_ids(), [], []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        try:
            found.append([next_id() for _ in range(20_000)])
        except ValueError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert not failed
    assert len({one for ids in found for one in ids}) == 8 * 20_000


def test_without_credentials_nothing_is_sent_from_a_template(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    calls.client._request_signer._credentials = None
    with pytest.raises(NoCredentialsError):
        calls.call(**UPDATE)
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_chunked", [False, True])
def test_large_answers_come_whole_and_leave_the_connection_open(
    server: Server, *, is_chunked: bool
) -> None:
    calls = Calls(server)
    server.body = json.dumps({"Attributes": {"a": {"S": "x" * 3_000_000}}}).encode()
    server.is_chunked = is_chunked
    for _ in range(3):
        assert len(calls.call(**UPDATE)["Attributes"]["a"]["S"]) == 3_000_000
    assert calls.by_botocore == 1
    assert server.connections == 1
    calls.client.close()


def test_a_damaged_answer_is_refused(calls: Calls, server: Server) -> None:
    calls.call(**UPDATE)
    server.headers["x-amz-crc32"] = "1"
    with pytest.raises(BrokenAnswer, match="checksum"):
        calls.call(**UPDATE)
    assert calls.by_botocore == 1


def test_answers_are_parsed_by_their_shapes(calls: Calls, server: Server) -> None:
    server.body = b'{"Attributes":{"raw":{"B":"AAE="}},"Unknown":1}'
    answers = [calls.call(**UPDATE) for _ in range(2)]
    assert answers[1]["Attributes"] == answers[0]["Attributes"] == {"raw": {"B": b"\0\1"}}
    assert "Unknown" not in answers[1]


def test_what_json_cannot_write_is_left_to_botocore(calls: Calls, server: Server) -> None:
    request = {**UPDATE, "Key": {"leaseKey": {"B": b"\0\1"}}}
    calls.call(**request)
    calls.call(**request)
    assert calls.by_botocore == 2
    assert json.loads(server.requests[1][1])["Key"] == {"leaseKey": {"B": "AAE="}}


def test_anonymous_requests_are_left_to_botocore(server: Server) -> None:
    calls = Calls(server, signed=False)
    calls.call(**UPDATE)
    calls.call(**UPDATE)
    assert calls.by_botocore == 2
    assert "Authorization" not in server.requests[1][0]
    calls.client.close()


class Without:
    """An object of botocore or urllib3 in which a private name is another one."""

    def __init__(self, inner: Any, renamed: str) -> None:
        self._inner, self._renamed = inner, renamed

    def __getattr__(self, name: str) -> Any:
        if name == self._renamed:
            raise AttributeError(name)
        found = getattr(self._inner, name)
        return Without(found, self._renamed) if name in {"_pool", "http_session"} else found


def missing_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "calls take more CPU" in one.getMessage()]


@pytest.mark.parametrize("name", ["_endpoint", "http_session", "send"])
def test_a_botocore_with_other_insides_makes_all_calls_itself(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_exchange, "_missing", set())
    calls = Calls(server)
    endpoint = calls.client._endpoint
    with monkeypatch.context() as renamed:
        renamed.setattr(calls.client, "_endpoint", Without(endpoint, name))
        if name == "_endpoint":
            renamed.delattr(calls.client, "_endpoint")
        call = PreparedOperation(calls.client, "update_item")
        limit_answers(calls.client)
    calls.by_botocore = 0
    call(**UPDATE)
    call(**UPDATE)
    assert calls.by_botocore == 2
    assert missing_told(caplog) == [
        (
            "The installed botocore or urllib3 has no endpoint with an HTTP session: calls take more "
            "CPU, and an answer that never ends is waited for"
        )
    ]
    calls.client.close()


@pytest.mark.parametrize("name", ["_pool", "_get_conn", "_put_conn"])
def test_a_urllib3_with_other_insides_hands_out_each_connection(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_exchange, "_missing", set())
    learn = KeptConnections.learn
    monkeypatch.setattr(KeptConnections, "learn", lambda kept, raw: learn(kept, Without(raw, name)))
    calls = Calls(server)
    taken = []
    take = KeptConnections.take
    monkeypatch.setattr(KeptConnections, "take", lambda kept: taken.append(take(kept)) or taken[-1])
    for _ in range(3):
        calls.call(**UPDATE)
    assert taken == [None, None]
    assert len(server.requests) == 3
    assert server.connections == 1
    assert missing_told(caplog) == [
        (
            "The installed botocore or urllib3 has no pool that lends a connection: calls take more "
            "CPU, and urllib3 hands out each one"
        )
    ]
    calls.client.close()


def test_the_endpoint_of_both_frequent_operations_depends_on_known_members(server: Server) -> None:
    for method, members in (
        ("get_records", {"StreamARN", "StreamId"}),
        ("update_item", {"TableName"}),
    ):
        calls = Calls(server, method)
        name = calls.client.meta.method_to_api_mapping[method]
        operation = calls.client.meta.service_model.operation_model(name)
        assert not operation.operation_context_parameters
        assert {one.member_name for one in operation.context_parameters} <= members
        assert not operation.idempotent_members
        calls.client.close()


def test_records_of_streams_by_arn_and_by_name_are_asked_for_apart(server: Server) -> None:
    calls = Calls(server, "get_records")
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
    for _ in range(2):
        calls.call(ShardIterator="i", Limit=5)
        calls.call(ShardIterator="i", Limit=5, StreamARN=arn)
    assert calls.by_botocore == 2
    assert json.loads(server.requests[2][1]) == {"ShardIterator": "i", "Limit": 5}
    assert json.loads(server.requests[3][1])["StreamARN"] == arn
    calls.client.close()


def test_a_request_with_an_unknown_header_is_left_to_botocore(calls: Calls) -> None:
    def add(request: AWSRequest, **_: Any) -> None:
        request.headers["X-Amz-Checksum-Crc32"] = "of this body only"

    calls.client.meta.events.register("before-sign.dynamodb.UpdateItem", add)
    calls.call(**UPDATE)
    calls.call(**UPDATE)
    assert calls.by_botocore == 2


def test_a_signature_for_another_region_is_left_to_botocore(calls: Calls) -> None:
    def elsewhere(request: AWSRequest, **_: Any) -> None:
        request.context["signing"] = {"region": "us-east-1"}

    calls.client.meta.events.register("before-sign.dynamodb.UpdateItem", elsewhere)
    calls.call(**UPDATE)
    calls.call(**UPDATE)
    assert calls.by_botocore == 2


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://kinesis.eu-west-1.amazonaws.com/", "kinesis.eu-west-1.amazonaws.com"),
        ("https://h:443/", "h"),
        ("http://h:443/", "h:443"),
        ("http://[::1]:4567/", "[::1]:4567"),
    ],
)
def test_the_host_is_written_as_botocore_signs_it(url: str, host: str) -> None:
    headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "Kinesis.Get"}
    request = AWSRequest("POST", url, headers, b"{}")
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    signer = session.create_client("kinesis", region_name="eu-west-1")._request_signer
    SigV4Auth(session.get_credentials(), "kinesis", "eu-west-1").add_auth(request)
    template = RequestTemplate.of(request.prepare(), signer, "kinesis", "eu-west-1")
    assert template is not None
    head = template.text({}, b"").decode()
    assert f"\r\nHost: {host}\r\n" in head
    assert RequestTemplate.of(request.prepare(), signer, "kinesis", "eu-west-2") is None
    request.url = f"{url}path"
    assert RequestTemplate.of(request.prepare(), signer, "kinesis", "eu-west-1") is None


def test_tls_is_verified_as_botocore_does(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = Server()
    with serving(secure, certificate(tmp_path)):
        calls = Calls(secure)
        with pytest.raises(BotoSslError):
            calls.call(**UPDATE)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        calls = Calls(secure)
        for _ in range(3):
            calls.call(**UPDATE)
        assert (calls.by_botocore, len(secure.requests)) == (1, 3)
        secure.body = json.dumps({"Attributes": {"a": {"S": "x" * 300_000}}}).encode()
        assert len(calls.call(**UPDATE)["Attributes"]["a"]["S"]) == 300_000
        assert secure.connections == 2, "one refused, one kept"
        calls.client.close()


def test_through_a_proxy_each_request_is_sent_by_botocore(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("http_proxy", server.url), ("no_proxy", "")):
        monkeypatch.setenv(name, text)  # both may be set, and the small one counts
        monkeypatch.setenv(name.upper(), text)
    behind = Server()
    behind.url = "http://dynamodb.eu-west-1.test"
    calls = Calls(behind)
    for _ in range(3):
        calls.call(**UPDATE)
    assert [headers["Host"] for headers, _ in server.requests] == ["dynamodb.eu-west-1.test"] * 3
    assert server.targets == ["http://dynamodb.eu-west-1.test/"] * 3
    calls.client.close()


def certificate(folder: Path) -> ssl.SSLContext:
    """A server's side of TLS for 127.0.0.1, with a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
