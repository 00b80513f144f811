"""Requests that are built once by botocore and from then on only filled, signed and sent.

An idle worker makes two calls again and again, GetRecords and UpdateItem, and two thirds of their
CPU go into what is the same every time: resolving the endpoint, composing the user agent, walking
the shapes of the request, asking hooks. Here the first call of a kind is botocore's, whole; what it
put together (URL, headers, signing context) serves the following ones. Signing with whatever
credentials are valid now, proxies, TLS and connections, and reading the answer stay botocore's.

A template is dropped after every answer that is not a success, and is never older than a minute:
whatever botocore would decide anew (an endpoint by account id, a feature in the user agent) it
decides soon.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import create_parser
from botocore.response import StreamingBody
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from botocore.client import BaseClient

#: After so long the next call is botocore's own again.
TEMPLATE_AGE_S = 60.0

#: Twice the largest answer there is. What claims to be longer is read in pieces: one reading takes
#: the memory first, whatever comes.
_MOST_AT_ONCE_BYTES = 32 * 2**20

_JSON = "application/x-amz-json-"


@dataclass(frozen=True, slots=True)
class _Template:
    """What stays the same from call to call.

    Attributes:
        sign: botocore's signer of the client; it reads the credentials at every call.
    """

    url: str
    headers: dict[str, str]
    context: dict[str, Any]
    sign: Callable[[str, AWSRequest], None]
    made_at: float


class PreparedOperation:
    """One JSON operation of one client.

    Not for operations with an idempotency token, which botocore invents for each call.
    """

    def __init__(
        self, client: BaseClient, method: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Listen to what botocore signs; nothing is sent.

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
        self._service, self._shape = model, operation.output_shape
        self._parser = create_parser("json")
        self._clock = clock
        self._templates: dict[Hashable, _Template] = {}
        self._seen = threading.local()
        # The only thing here that botocore does not promise; without it all calls are its own.
        endpoint = getattr(client, "_endpoint", None)
        session = getattr(endpoint, "http_session", None)
        self._send: Any = getattr(session, "send", None)
        # Members that may choose the endpoint: requests that differ in them share nothing.
        self._routing = [one.member_name for one in operation.context_parameters]
        if self._send is not None and not operation.operation_context_parameters:
            client.meta.events.register_last(f"before-sign.{self._event}", self._remember)

    def __call__(self, **request: Any) -> dict[str, Any]:
        """The answer.

        Raises:
            ClientError: the service refused.
            BotoCoreError: there was no answer.
        """
        key = tuple(map(request.get, self._routing))
        template = self._templates.get(key)
        if template is None or self._clock() - template.made_at > TEMPLATE_AGE_S:
            return self._by_botocore(key, request)
        try:
            body = json.dumps(request).encode()
        except TypeError:  # bytes or a datetime: botocore knows how to write them
            return self._by_botocore(key, request)
        try:
            return self._by_template(template, body)
        except BaseException:
            self._templates.pop(key, None)
            raise

    def _by_botocore(self, key: Hashable, request: dict[str, Any]) -> dict[str, Any]:
        self._templates.pop(key, None)
        self._seen.template, self._seen.is_wanted = None, True
        try:
            answer: dict[str, Any] = getattr(self._client, self._method)(**request)
        finally:
            self._seen.is_wanted = False
        if self._seen.template is not None:
            self._templates[key] = self._seen.template
        return answer

    def _remember(
        self, request: AWSRequest, signature_version: Any, request_signer: Any, **_: Any
    ) -> None:
        """The hook ``before-sign``: keep what is not about this call alone."""
        if not getattr(self._seen, "is_wanted", False):
            return
        headers = {name: _text(value) for name, value in request.headers.items()}
        is_json = headers.get("Content-Type", "").startswith(_JSON)
        if request.method == "POST" and signature_version == "v4" and is_json:
            context = {k: v for k, v in request.context.items() if k != "retries"}
            self._seen.template = _Template(
                request.url, headers, context, request_signer.sign, self._clock()
            )

    def _by_template(self, template: _Template, body: bytes) -> dict[str, Any]:
        unsigned = AWSRequest(method="POST", url=template.url, headers=template.headers, data=body)
        unsigned.context = dict(template.context)
        template.sign(self._name, unsigned)
        unsigned.headers["amz-sdk-invocation-id"] = str(uuid.uuid4())
        unsigned.headers["amz-sdk-request"] = "attempt=1; max=1"
        # Read here at once: botocore reads in pieces of 64 KiB, 1 ms for an answer of 3 MB.
        unsigned.stream_output = True
        response = self._send(unsigned.prepare())
        return self._read(response, _body(response))

    def _read(self, response: Any, body: bytes) -> dict[str, Any]:
        """As botocore reads an answer, hooks included."""
        answer = {
            "status_code": response.status_code,
            "headers": response.headers,
            "body": body,
            "context": {"operation_name": self._name},
        }
        custom: dict[str, Any] = {}
        self._client.meta.events.emit(
            f"before-parse.{self._event}",
            operation_model=None,
            response_dict=answer,
            customized_response_dict=custom,
        )
        parsed: dict[str, Any] = self._parser.parse(answer, self._shape)
        parsed.update(custom)
        if response.status_code >= 300:
            parsed.update(self._modeled_fields(answer, parsed))
            raise ClientError(parsed, self._name)
        return parsed

    def _modeled_fields(self, answer: dict[str, Any], parsed: dict[str, Any]) -> dict[str, Any]:
        """What an error carries besides its message, e.g. the item of a failed condition."""
        code = parsed.get("Error", {}).get("Code")
        shape = self._service.shape_for_error_code(code) if code else None
        fields: dict[str, Any] = {} if shape is None else self._parser.parse(answer, shape)
        return fields


def _body(response: Any) -> bytes:
    """All of it; a good answer whose length may be true in one reading."""
    length = str(response.headers.get("content-length", ""))
    is_number = length.isascii() and length.isdigit() and len(length) < 12
    is_possible = is_number and int(length) <= _MOST_AT_ONCE_BYTES
    try:
        if response.status_code >= 300 or not is_possible:
            content: bytes = response.content
            return content
        body: bytes = StreamingBody(response.raw, length).read()
    except HTTPError as error:  # TLS: the body of a stream is not botocore's usual way
        raise HTTPClientError(error=error) from error
    return body


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
