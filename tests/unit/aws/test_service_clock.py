"""Requests are signed at the time of the service once it has refused one, against a loopback server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kcl_mld.aws.clients import Caller, ClientSettings, make_client
from kcl_mld.aws.credentials import make_session
from kcl_mld.aws.kinesis import ShardSubscription, watch_subscriptions
from kcl_mld.aws.service_clock import SKEW_S, ServiceClock, service_clock_of
from kcl_mld.config.credentials import (
    AssumedRole,
    CredentialChain,
    CredentialSource,
    CredentialStep,
)
from kcl_mld.errors import CredentialsRefused
from kcl_mld.kernel.adapters.calls import CallPool
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.client import BaseClient

LIMIT_S = 300.0


class Service:
    """Answers requests that are signed right, by its own clock, and refuses the others."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.has_request_ids = True
        self.code = "InvalidSignatureException"
        self.body = b"{}"
        self.kind = "application/x-amz-json-1.1"
        self.date: str | None = None
        self.signed_at: list[float] = []
        self.refused = 0
        self.url = ""
        self.lock = threading.Lock()

    def now_s(self) -> float:
        return time.time() + self.ahead_s

    def refuses(self, method: str, path: str, headers: Any, body: bytes) -> bool:
        stamp = headers["X-Amz-Date"]
        at_s = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        is_wrong = headers["Authorization"].rpartition("=")[2] != signature_of(
            method, path, headers, body
        )
        is_refused = is_wrong or abs(at_s - self.now_s()) > LIMIT_S
        with self.lock:
            self.signed_at.append(at_s)
            self.refused += is_refused
        return is_refused

    def error(self, headers: Any) -> tuple[int, str, bytes]:
        kind = headers.get("Content-Type", "")
        if "cbor" in kind:
            name = self.code.encode()
            body = b"\xa1\x66__type" + bytes([0x78, len(name)]) + name
            return 400, "application/cbor", body
        if "x-amz-json" in kind:
            return 400, self.kind, json.dumps({"__type": self.code, "message": "skewed"}).encode()
        error = f"<Error><Code>{self.code}</Code><Message>skewed</Message></Error>"
        if "urlencoded" in kind:
            error = f"<ErrorResponse>{error}</ErrorResponse>"
        return 403, "text/xml", error.encode()


def signature_of(method: str, path: str, headers: Any, body: bytes) -> str:
    """The signature of a request by the key ``secret``, made without botocore."""
    claim = headers["Authorization"]
    scope = claim.partition("/")[2].partition(",")[0]
    names = claim.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    digest = headers.get("X-Amz-Content-SHA256") or hashlib.sha256(body).hexdigest()
    target, _, query = path.partition("?")
    request = f"{method}\n{target}\n{query}\n{lines}\n{';'.join(names)}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{headers['X-Amz-Date']}\n{scope}\n"
    text += hashlib.sha256(request.encode()).hexdigest()
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


@contextmanager
def serving(service: Service) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, answer = 200, service.kind, service.body
            if service.refuses(self.command, self.path, self.headers, body):
                status, kind, answer = service.error(self.headers)
            self.send_response_only(status)
            date = formatdate(service.now_s(), usegmt=True)
            self.send_header("Date", date if service.date is None else service.date)
            if service.has_request_ids:
                self.send_header("x-amzn-RequestId", "one")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PUT = do_GET = _do  # noqa: N815 - http.server wants these names

        def log_message(self, *_: Any) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    with serving(one):
        yield one


def settings_of(name: str, endpoint: str | None) -> ClientSettings:
    return ClientSettings(
        service=name,
        region="us-east-1",
        endpoint=endpoint,
        threads=8,
        connect_timeout_s=10.0,
        read_timeout_s=60.0,
        answers_json=name != "s3",
    )


def client_of(service: Service, name: str = "dynamodb", secret: str = "secret") -> BaseClient:
    return make_client(quick_session(secret), settings_of(name, service.url))


XML = "text/xml"
IDENTITY = (
    b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account>"
    b"</GetCallerIdentityResult></GetCallerIdentityResponse>"
)
CALLS: dict[str, tuple[str, dict[str, Any], str, bytes]] = {
    "dynamodb": ("delete_item", {"TableName": "t", "Key": {"k": {"S": "a"}}}, "", b"{}"),
    "kinesis": ("list_shards", {"StreamName": "s"}, "", b'{"Shards": []}'),
    "glue": ("get_schema_version", {"SchemaVersionId": "x"}, "", b"{}"),
    "sts": ("get_caller_identity", {}, XML, IDENTITY),
    "cloudwatch": ("put_metric_data", {"Namespace": "n", "MetricData": []}, "", b""),
    "s3": ("put_object", {"Bucket": "b", "Key": "k", "Body": b"x"}, XML, b""),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("ahead_s", [1200.0, -1200.0])
def test_a_call_that_is_refused_for_its_time_is_repeated_once_and_the_next_ones_are_not_refused(
    service: Service, name: str, ahead_s: float
) -> None:
    method, request, kind, service.body = CALLS[name]
    service.kind = kind or service.kind
    service.code = "RequestTimeTooSkewed" if name == "s3" else service.code
    service.code = "SignatureDoesNotMatch" if name == "sts" else service.code
    service.ahead_s = ahead_s
    client = client_of(service, name)
    for _ in range(3):
        getattr(client, method)(**request)
    assert (len(service.signed_at), service.refused) == (4, 1)
    assert all(abs(one - service.now_s()) < 60 for one in service.signed_at[1:])


def test_without_a_refusal_nothing_is_corrected(service: Service) -> None:
    service.ahead_s = 200.0
    client = client_of(service)
    client.delete_item(TableName="t", Key={})
    service_clock_of(client).begin()
    client.delete_item(TableName="t", Key={})
    assert service.refused == 0
    assert all(abs(one - time.time()) < 60 for one in service.signed_at)
    known_s = service_clock_of(client).now_s()
    assert known_s is not None
    assert abs(known_s - service.now_s()) < 60


UPDATE: dict[str, Any] = {
    "TableName": "t",
    "Key": {"k": {"S": "a"}},
    "UpdateExpression": "SET a = :n",
    "ExpressionAttributeValues": {":n": {"N": "1"}},
}


def write(caller: Caller, times: int = 1) -> None:
    async def run() -> None:
        await asyncio.gather(*(caller.write("update_item", UPDATE) for _ in range(times)))

    asyncio.run(run())


@contextmanager
def calling(service: Service, threads: int = 1, secret: str = "secret") -> Iterator[Caller]:
    pool = CallPool("calls", threads)
    try:
        yield Caller(client_of(service, secret=secret), pool, ("update_item",))
    finally:
        pool.close()


def test_a_request_from_a_template_is_repeated_too_when_the_clock_jumps(service: Service) -> None:
    with calling(service) as caller:
        write(caller)
        write(caller)
        for ahead_s in (600.0, -86_400.0, 0.0):
            service.ahead_s = ahead_s
            before = len(service.signed_at)
            for _ in range(4):
                write(caller)
            assert len(service.signed_at) - before == 5
    assert service.refused == 3


def test_threads_that_are_refused_together_repeat_each_call_once(service: Service) -> None:
    with calling(service, threads=8) as caller:
        write(caller, 8)
        write(caller, 8)
        service.ahead_s, before = 1200.0, len(service.signed_at)
        write(caller, 40)
        assert len(service.signed_at) - before == 40 + service.refused
        assert 1 <= service.refused <= 8


@pytest.mark.parametrize(("ahead_s", "calls"), [(0.0, 1), (SKEW_S - 5, 1), (SKEW_S + 5, 2)])
def test_a_wrong_key_fails_at_once_and_after_one_more_call_where_the_clock_is_wrong(
    service: Service, ahead_s: float, calls: int
) -> None:
    service.ahead_s = ahead_s
    client = client_of(service, secret="wrong")
    with pytest.raises(ClientError, match="InvalidSignatureException"):
        client.delete_item(TableName="t", Key={})
    assert len(service.signed_at) == calls
    assert abs(service_clock_of(client).signing_s() - time.time()) < 60


def test_a_wrong_key_fails_after_one_more_call_from_a_template_too(service: Service) -> None:
    with calling(service) as caller:
        write(caller)
        write(caller)
        caller._client._request_signer._credentials.secret_key = "wrong"  # type: ignore[attr-defined]
        before = len(service.signed_at)
        with pytest.raises(CredentialsRefused):
            write(caller)
        assert len(service.signed_at) - before == 1
        service.ahead_s = 1200.0
        for _ in range(2):
            before = len(service.signed_at)
            with pytest.raises(CredentialsRefused):
                write(caller)
            assert len(service.signed_at) - before == 2


def test_the_date_of_a_page_without_a_request_id_does_not_count(service: Service) -> None:
    service.ahead_s, service.has_request_ids = 1200.0, False
    client = client_of(service)
    service_clock_of(client).begin()
    with pytest.raises(ClientError):
        client.delete_item(TableName="t", Key={})
    assert len(service.signed_at) == 1
    assert service_clock_of(client).now_s() is None


@pytest.mark.parametrize("date", ["", "soon", "Sat, 99 Nov 2026 13:07:10 GMT"])
def test_a_date_that_is_none_does_not_count(service: Service, date: str) -> None:
    service.ahead_s, service.date = 1200.0, date
    client = client_of(service)
    service_clock_of(client).begin()
    with pytest.raises(ClientError):
        client.delete_item(TableName="t", Key={})
    assert service_clock_of(client).now_s() is None


REFUSAL = {
    "Error": {"Code": "RequestExpired"},
    "ResponseMetadata": {
        "HTTPHeaders": {"date": formatdate(0, usegmt=True), "x-amzn-requestid": "1"}
    },
}


@pytest.mark.parametrize(
    ("named", "environment", "is_believed"),
    [
        (None, None, True),
        ("http://emulator:8000", None, True),
        (None, "http://emulator:8000", False),
        (None, "http://127.0.0.1:8000", True),
        (None, "https://emulator:8000", True),
    ],
)
def test_dates_count_over_tls_of_endpoints_that_are_named_and_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, named: str | None, environment: str | None, is_believed: bool
) -> None:
    if environment is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", environment)
    client = make_client(quick_session(), settings_of("dynamodb", named))
    clock = service_clock_of(client)
    assert (clock.repeat(REFUSAL, time.time()) is not None) == is_believed
    assert (clock.signing_s() < 60) == is_believed


def test_a_subscription_is_asked_for_again_at_the_time_of_the_service(service: Service) -> None:
    service.ahead_s, service.kind, service.body = 1200.0, "application/x-amz-json-1.1", b""
    client = client_of(service, "kinesis")
    watch_subscriptions(client)
    request = {
        "ShardId": "s",
        "ConsumerARN": "arn:aws:kinesis:us-east-1:1:c",
        "StartingPosition": {},
    }

    async def subscribe() -> None:
        subscription = await ShardSubscription.open(client, request)
        subscription.close()

    for _ in range(2):
        asyncio.run(subscribe())
    assert (len(service.signed_at), service.refused) == (3, 1)


def test_a_role_is_assumed_at_the_time_of_the_service(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service.ahead_s, service.code, service.kind = 1200.0, "SignatureDoesNotMatch", XML
    until = datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()
    service.body = (
        "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>A</AccessKeyId>"
        "<SecretAccessKey>B</SecretAccessKey><SessionToken>C</SessionToken>"
        f"<Expiration>{until}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    ).encode()
    role = AssumedRole(
        arn="arn:aws:iam::123456789012:role/r", session_name="me", endpoint=service.url
    )
    step = CredentialStep(CredentialSource.ASSUME_ROLE, role=role)
    session = make_session(CredentialChain((step,)), "us-east-1")
    assert session.get_credentials().access_key == "A"
    assert (len(service.signed_at), service.refused) == (2, 1)


# --- the time that is known --------------------------------------------------------------------


class Hand:
    """A monotonic clock that is set by hand, and a service clock that goes by it."""

    def __init__(self) -> None:
        self.now = 5000.0
        self.clock = ServiceClock(
            "kinesis", trusts_dates=True, monotonic=lambda: self.now, wall=lambda: 0.0
        )

    def answer(self, epoch_s: float, took_s: float = 0.0) -> None:
        self.clock.begin()
        self.now += took_s
        headers = {"date": formatdate(epoch_s, usegmt=True), "x-amzn-requestid": "1"}
        self.clock.note({"headers": headers})


def test_the_time_goes_on_and_fractions_of_a_second_are_found() -> None:
    hand = Hand()
    assert hand.clock.now_s() is None
    for tenths in range(0, 30, 3):
        hand.answer(1_000_000 + tenths // 10)
        hand.now += 0.3
    known_s = hand.clock.now_s()
    assert known_s is not None
    assert abs(known_s - 1_000_003) < 0.3
    hand.now += 7.0
    later_s = hand.clock.now_s()
    assert later_s == pytest.approx(known_s + 7.0)


def test_a_service_whose_time_jumps_is_followed() -> None:
    hand = Hand()
    for epoch_s in (1_000_000.0, 1_100_000.0, 900_000.0):
        hand.answer(epoch_s)
        assert hand.clock.now_s() == epoch_s


def test_the_date_of_an_answer_that_took_long_says_nothing() -> None:
    hand = Hand()
    hand.answer(1_000_000.0, took_s=30.0)
    assert hand.clock.now_s() is None
    hand.answer(1_000_030.0)
    # The machine was suspended while the answer was on its way.
    hand.answer(1_000_031.0, took_s=40_000.0)
    assert hand.clock.now_s() == pytest.approx(1_040_030.0)


def test_dates_are_read_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, read = Hand(), []
    own = hand.clock._date_s
    monkeypatch.setattr(hand.clock, "_date_s", lambda headers: read.append(1) or own(headers))
    for _ in range(100):
        hand.answer(1_000_000.0)
    assert len(read) == 1
