"""Requests that are built once by botocore and from then on only filled, signed and sent.

An idle worker makes two calls again and again, GetRecords and UpdateItem, and most of their CPU goes
into what is the same every time: resolving the endpoint, composing the user agent, walking the
shapes of the request, asking hooks, passing through the layers of an HTTP client. Here the first
call of a kind is botocore's, whole; what it put together (URL, headers, what is signed) serves the
following ones. Credentials, proxies, TLS, connecting, and reading any answer but an empty one stay
botocore's.

A template is dropped after every answer that is not a success, and is never older than a minute:
whatever botocore would decide anew (an endpoint by account id, a feature in the user agent) it
decides soon.

botocore also builds each signature anew: maps of headers, the URL taken apart seven times, four keys
derived from each other that change once a day. All of that is the same for requests of one template,
one set of credentials and one day, and is kept here; two hashes and one HMAC are left. Nothing is
believed on its own: what is kept must first give, to the letter, a header that botocore has made.

Source: AWS Signature Version 4, ``botocore.auth.SigV4Auth``.
"""

from __future__ import annotations

import hmac
import itertools
import json
import threading
import time
import uuid
from hashlib import sha256
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, HeadersDict
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    ReadTimeoutError,
)
from botocore.parsers import create_parser

from kcl_mld.aws.http_exchange import (
    Answer,
    BrokenExchange,
    KeptConnections,
    exchange,
    http_session_of,
)
from kcl_mld.aws.service_clock import DatedContext, service_clock_of, signing_stamp
from kcl_mld.aws.whole_answers import limited, send_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from botocore.awsrequest import AWSResponse
    from botocore.client import BaseClient
    from botocore.credentials import ReadOnlyCredentials
    from urllib3.connection import HTTPConnection

_ALGORITHM = "AWS4-HMAC-SHA256"
_DATE, _TOKEN = "x-amz-date", "x-amz-security-token"
#: Stands for the time while the rest is being put together; in no header of a request.
_WHEN = "\0"

_JSON = "application/x-amz-json-"
#: Headers that a template may have. With any other one there is none: it could be about one body.
_FIXED = {"amz-sdk-request", "content-type", "user-agent", "x-amz-target", "x-amz-user-agent"}
_CHANGING = {
    "amz-sdk-invocation-id",
    "authorization",
    "content-length",
    "x-amz-date",
    "x-amz-security-token",
}
#: Seconds after which the next call is made by botocore again.
TEMPLATE_AGE_S = 60.0


class RepeatedSignature:
    """Of ``POST /`` by one set of credentials on one day (UTC)."""

    def __init__(
        self,
        headers: Mapping[str, str],
        credentials: ReadOnlyCredentials,
        scope: str,
    ) -> None:
        """Prepare a signature for requests with these headers in one scope."""
        self._credentials, self._scope = credentials, scope
        day, region, service, _ = scope.split("/")
        key = f"AWS4{credentials.secret_key}".encode()
        for part in (day, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day, self._key = day, key
        names = sorted(headers)
        lines = "".join([f"{name}:{' '.join(headers[name].split())}\n" for name in names])
        signed = ";".join(names)
        self._before, self._after = f"POST\n/\n\n{lines}\n{signed}\n".split(_WHEN)
        self._claim = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature="
        )

    @classmethod
    def like(
        cls,
        signed: Mapping[str, str],
        body: bytes,
        host: str,
        credentials: ReadOnlyCredentials,
    ) -> Self | None:
        """What gives the signature of a request of botocore's, and those of the next ones.

        Args:
            signed: headers of that request, ``Authorization`` among them.
            host: value of the header ``Host``.

        Returns:
            None when it gives another signature than botocore did.
        """
        lower = {name.lower(): value for name, value in signed.items()} | {"host": host}
        claim = lower.get("authorization", "")
        _, _, scope = claim.partition(", ")[0].partition("/")
        names = claim.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        stamp = lower.get(_DATE, "")
        if scope.count("/") != 3 or _DATE not in names or not lower.keys() >= set(names):
            return None
        made = cls({name: lower[name] for name in names} | {_DATE: _WHEN}, credentials, scope)
        return made if made.authorization(stamp, body) == claim else None

    def is_good_for(self, credentials: ReadOnlyCredentials | None, stamp: str) -> bool:
        """Whether a request by these credentials at this time can be signed."""
        return credentials == self._credentials and stamp.startswith(self._day)

    def authorization(self, stamp: str, body: bytes) -> str:
        """Value of the header ``Authorization``.

        Args:
            stamp: value of ``X-Amz-Date``, e.g. ``20260101T120000Z``.
        """
        request = f"{self._before}{stamp}{self._after}{sha256(body).hexdigest()}"
        digest = sha256(request.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{stamp}\n{self._scope}\n{digest}"
        return self._claim + hmac.digest(self._key, text.encode(), "sha256").hex()

    def headers(self, stamp: str, body: bytes) -> dict[str, str]:
        """The headers that botocore adds when it signs, in its order."""
        token = self._credentials.token
        return {
            "X-Amz-Date": stamp,
            **({"X-Amz-Security-Token": token} if token else {}),
            "Authorization": self.authorization(stamp, body),
        }


class RequestTemplate:
    """``POST /`` to one URL.

    Attributes:
        fixed: headers that every request has.
    """

    def __init__(
        self, url: str, fixed: Mapping[str, str], signer: Any, signing_name: str, region: str
    ) -> None:
        """Prepare requests that are signed by this signer."""
        self.url = url
        self.fixed = dict(fixed)
        self._signer = (signer, signing_name, region)
        self._repeated: RepeatedSignature | None = None
        self._host = _host(url)
        lines = {"Host": self._host, "Accept-Encoding": "identity"} | self.fixed
        self._head = "POST / HTTP/1.1\r\n" + _lines(lines)

    @classmethod
    def of(
        cls, request: AWSPreparedRequest, signer: Any, signing_name: str, region: str
    ) -> Self | None:
        """What a request that is about to be sent has in common with later ones.

        Args:
            request: signed; its body is bytes.
            signer: botocore's, the source of credentials.
            signing_name: of the service, e.g. ``kinesis``.

        Returns:
            None when the request is unusual, or was signed for another region or service.
        """
        headers = {name: _text(value) for name, value in request.headers.items()}
        lower = {name.lower(): value for name, value in headers.items()}
        target = urlsplit(request.url)
        is_usual = (
            request.method == "POST"
            and (target.path or "/", target.query) == ("/", "")
            and lower.get("content-type", "").startswith(_JSON)
            and lower.keys() <= _FIXED | _CHANGING
            and f"/{region}/{signing_name}/aws4_request," in lower.get("authorization", "")
        )
        if not is_usual:
            return None
        fixed = {name: value for name, value in headers.items() if name.lower() in _FIXED}
        return cls(request.url, fixed, signer, signing_name, region)

    def changing_headers(self, body: bytes, request_id: str, stamp: str) -> dict[str, str]:
        """The headers of one request beside the fixed ones.

        They are those that botocore makes when it signs; after the first of some credentials and
        day they come from what was kept of that one.

        Args:
            stamp: the time of signing, value of ``X-Amz-Date``.

        Raises:
            NoCredentialsError: there are none any more.
        """
        signer, signing_name, region = self._signer
        # Asked for each time: they are renewed when they are about to expire.
        auth = signer.get_auth_instance(signing_name, region, "v4")
        repeated = self._repeated
        if repeated is not None and repeated.is_good_for(auth.credentials, stamp):
            signed = repeated.headers(stamp, body)
        else:
            signed = self._signed_by_botocore(auth, body, stamp)
        return signed | {"amz-sdk-invocation-id": request_id, "Content-Length": str(len(body))}

    def _signed_by_botocore(self, auth: Any, body: bytes, stamp: str) -> dict[str, str]:
        credentials: ReadOnlyCredentials | None = auth.credentials
        request = AWSRequest("POST", self.url, self.fixed, body)
        request.context = DatedContext(request.context, stamp)
        auth.add_auth(request)
        signed = {name: _text(value) for name, value in request.headers.items()}
        if credentials is not None and type(auth) is SigV4Auth:
            self._repeated = RepeatedSignature.like(signed, body, self._host, credentials)
        return {name: value for name, value in signed.items() if name not in self.fixed}

    def text(self, changing: Mapping[str, str], body: bytes) -> bytes:
        """The request as it goes over the wire."""
        return f"{self._head}{_lines(changing)}\r\n".encode("latin-1") + body


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def _host(url: str) -> str:
    """The host as it is signed and sent: without a default port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in {None, usual} else f"{host}:{parts.port}"


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class PreparedOperation:
    """One JSON operation of one client.

    Not for operations with an idempotency token, which botocore invents for each call.
    """

    def __init__(
        self, client: BaseClient, method: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Register the hooks that see what botocore signs and sends; no request is sent.

        Args:
            client: its hooks ``before-parse`` see the answers as ever.
            method: as of the client, e.g. ``get_records``.
            clock: seconds, for the age of templates.
        """
        self._client = client
        self._method = method
        self._name: str = client.meta.method_to_api_mapping[method]
        model = client.meta.service_model
        self._event = f"{model.service_id.hyphenize()}.{self._name}"
        operation = model.operation_model(self._name)
        self._operation, self._shape = operation, operation.output_shape
        self._service = model
        self._parser = create_parser("json")
        self._clock = clock
        self._service_clock = service_clock_of(client)
        self._templates: dict[Hashable, tuple[RequestTemplate, float]] = {}
        self._connections: dict[str, KeptConnections] = {}
        self._next_id = request_ids()
        self._seen = threading.local()
        session = http_session_of(client)
        self._send: Any = None if session is None else session.send
        # Members that may choose the endpoint: requests that differ in them share nothing.
        self._routing = [one.member_name for one in operation.context_parameters]
        if self._send is not None and not operation.operation_context_parameters:
            client.meta.events.register_last(f"before-sign.{self._event}", self._see_signer)
            client.meta.events.register_last(f"before-send.{self._event}", self._see_request)
            client.meta.events.register_last(f"needs-retry.{self._event}", self._see_answer)

    def __call__(self, **request: Any) -> dict[str, Any]:
        """The answer.

        Raises:
            ClientError: the service refused.
            BotoCoreError: there was no answer.
        """
        key = tuple(map(request.get, self._routing))
        template, made_at = self._templates.get(key, (None, 0.0))
        if template is None or self._clock() - made_at > TEMPLATE_AGE_S:
            return self._by_botocore(key, request)
        try:
            body = json.dumps(request).encode()
        except TypeError:  # bytes or a datetime: botocore knows how to write them
            return self._by_botocore(key, request)
        try:
            return self._answer(template, body)
        except BaseException:
            self._templates.pop(key, None)
            raise

    def _answer(self, template: RequestTemplate, body: bytes) -> dict[str, Any]:
        """That of a request; one that is refused for its time is repeated once at the service's."""
        service_clock = self._service_clock
        signed_s = service_clock.signing_s()
        try:
            return self._read(self._ask(template, body, signed_s))
        except ClientError as refused:
            repeat = service_clock.repeat(refused.response, signed_s)
            if repeat is None:
                raise
        try:
            return self._read(self._ask(template, body, service_clock.signing_s()))
        except ClientError as refused:
            service_clock.judge(repeat, refused.response)
            raise

    def _by_botocore(self, key: Hashable, request: dict[str, Any]) -> dict[str, Any]:
        self._templates.pop(key, None)
        seen = self._seen
        seen.signer, seen.template, seen.is_wanted = None, None, True
        try:
            answer: dict[str, Any] = getattr(self._client, self._method)(**request)
        finally:
            seen.is_wanted = False
        if seen.template is not None:
            self._templates[key] = (seen.template, self._clock())
        return answer

    # -- hooks: what botocore does ------------------------------------------------------------------

    def _see_signer(
        self,
        request_signer: Any,
        signing_name: str,
        region_name: str,
        signature_version: Any,
        **_: Any,
    ) -> None:
        """The hook ``before-sign``."""
        if getattr(self._seen, "is_wanted", False) and signature_version == "v4":
            self._seen.signer = (request_signer, signing_name, region_name)

    def _see_request(self, request: AWSPreparedRequest, **_: Any) -> None:
        """The hook ``before-send``: keep the parts that are the same for every call."""
        if getattr(self._seen, "is_wanted", False) and self._seen.signer is not None:
            self._seen.template = RequestTemplate.of(request, *self._seen.signer)

    def _see_answer(self, response: tuple[AWSResponse, Any] | None, **_: Any) -> None:
        """The hook ``needs-retry``: keep the connections that botocore opens."""
        if response is not None:
            self._kept(response[0].url).learn(response[0].raw)

    # -- one exchange -------------------------------------------------------------------------------

    def _ask(self, template: RequestTemplate, body: bytes, signed_s: float) -> Answer:
        kept = self._kept(template.url)
        changing = template.changing_headers(body, self._next_id(), signing_stamp(signed_s))
        connection = kept.take()
        if connection is not None:
            return _exchange(kept, connection, template, template.text(changing, body))
        headers = HeadersDict(template.fixed | changing)
        request = AWSPreparedRequest("POST", template.url, headers, body, stream_output=False)
        response = send_limited(self._send, request)
        lower = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, lower, response.content, is_reusable=False)

    def _kept(self, url: str) -> KeptConnections:
        kept = self._connections.get(url)
        return kept or self._connections.setdefault(url, KeptConnections())

    def _read(self, answer: Answer) -> dict[str, Any]:
        """As botocore reads an answer, hooks included; an empty one has no metadata either."""
        response = {
            "status_code": answer.status,
            "headers": answer.headers,
            "body": answer.body,
            "context": {"operation_name": self._name},
        }
        custom: dict[str, Any] = {}
        self._client.meta.events.emit(
            f"before-parse.{self._event}",
            operation_model=self._operation,
            response_dict=response,
            customized_response_dict=custom,
        )
        if answer.status == 200 and response["body"] == b"{}":
            return custom
        parsed: dict[str, Any] = self._parser.parse(response, self._shape)
        parsed.update(custom)
        if answer.status >= 300:
            parsed.update(self._modeled_fields(response, parsed))
            raise ClientError(parsed, self._name)
        return parsed

    def _modeled_fields(self, response: dict[str, Any], parsed: dict[str, Any]) -> dict[str, Any]:
        """The fields of an error beside its message, e.g. the item of a failed condition."""
        code = parsed.get("Error", {}).get("Code")
        shape = self._service.shape_for_error_code(code) if code else None
        fields: dict[str, Any] = {} if shape is None else self._parser.parse(response, shape)
        return fields


def _exchange(
    kept: KeptConnections, connection: HTTPConnection, template: RequestTemplate, text: bytes
) -> Answer:
    """One exchange with the errors that botocore would raise."""
    answer: Answer | None = None
    try:
        with limited(connection.sock):
            answer = exchange(connection.sock, text)
    except TimeoutError as error:
        raise ReadTimeoutError(endpoint_url=template.url, error=error) from error
    except (ConnectionError, BrokenExchange) as error:
        raise ConnectionClosedError(endpoint_url=template.url, error=error) from error
    except (OSError, HTTPException) as error:
        raise HTTPClientError(error=error) from error
    finally:
        if answer is not None and answer.is_reusable:
            kept.keep(connection)
        else:
            connection.close()
    return answer


def request_ids() -> Callable[[], str]:
    """An id a request, in the form of a UUID; only the first part is left to chance.

    Many threads ask at once. A generator would raise in all of them but one; a counter does not.
    """
    start = str(uuid.uuid4())[:24]
    numbers = itertools.count()
    return lambda: f"{start}{next(numbers):012x}"
