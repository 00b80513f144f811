"""Requests that are built once by botocore and from then on only filled, signed and sent.

An idle worker makes two calls again and again, GetRecords and UpdateItem, and most of their CPU goes
into what is the same every time: resolving the endpoint, composing the user agent, walking the
shapes of the request, asking hooks, passing through the layers of an HTTP client. Here the first
call of a kind is botocore's, whole; what it put together (URL, headers, what is signed) serves the
following ones. Credentials, proxies, TLS, connecting, and reading any answer but an empty one stay
botocore's.

A template is dropped after every answer that is not a success, and is never older than a minute:
whatever botocore would decide anew (an endpoint by account id, a feature in the user agent) it
decides soon. How requests are signed is told in ``repeated_signature``.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    ReadTimeoutError,
)
from botocore.parsers import create_parser

from mld.adapters.aws.answer_limit import limited, send_limited
from mld.adapters.aws.http_exchange import Answer, BrokenExchange, exchange
from mld.adapters.aws.kept_connections import KeptConnections
from mld.adapters.aws.request_template import RequestTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from botocore.awsrequest import AWSResponse
    from botocore.client import BaseClient
    from urllib3.connection import HTTPConnection

#: After so long the next call is botocore's own again.
TEMPLATE_AGE_S = 60.0


class PreparedOperation:
    """One JSON operation of one client.

    Not for operations with an idempotency token, which botocore invents for each call.
    """

    def __init__(
        self, client: BaseClient, method: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Listen to what botocore signs and sends; nothing is sent.

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
        self._templates: dict[Hashable, tuple[RequestTemplate, float]] = {}
        self._connections: dict[str, KeptConnections] = {}
        self._next_id = request_ids()
        self._seen = threading.local()
        # Not promised by botocore; without it all calls are its own.
        endpoint = getattr(client, "_endpoint", None)
        session = getattr(endpoint, "http_session", None)
        self._send: Any = getattr(session, "send", None)
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
            return self._read(self._ask(template, body))
        except BaseException:
            self._templates.pop(key, None)
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
        """The hook ``before-send``: keep what is not about this call alone."""
        if getattr(self._seen, "is_wanted", False) and self._seen.signer is not None:
            self._seen.template = RequestTemplate.of(request, *self._seen.signer)

    def _see_answer(self, response: tuple[AWSResponse, Any] | None, **_: Any) -> None:
        """The hook ``needs-retry``: keep the connections that botocore opens."""
        if response is not None:
            self._kept(response[0].url).learn(response[0].raw)

    # -- one exchange -------------------------------------------------------------------------------

    def _ask(self, template: RequestTemplate, body: bytes) -> Answer:
        kept = self._kept(template.url)
        changing = template.changing_headers(body, self._next_id())
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
        """What an error carries besides its message, e.g. the item of a failed condition."""
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
