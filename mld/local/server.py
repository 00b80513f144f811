"""The Kinesis model over HTTP: the JSON protocol of the service and ``/_control`` for tests.

A raw ASGI application, so that nothing stands between the HTTP parser and the model. Signatures
are not checked; CBOR is not spoken.

A misspelled fault would hit nothing, and the test that orders it would pass or fail for another
reason. So members, services and operations that do not exist are refused by name.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import asdict, fields
from email.utils import formatdate
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import botocore.session
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from kcl_mld.config.findings import nearest
from kcl_mld.kernel.model.masking import brief
from kcl_mld.local.dynamodb_streams import TableStreamSettings
from kcl_mld.local.event_stream import serve_events
from kcl_mld.local.faultplan import FaultRule
from kcl_mld.local.kinesis.fan_out import LocalSubscription
from kcl_mld.local.kinesis.faults import KinesisFault
from kcl_mld.local.kinesis.model import OPERATIONS, KinesisModel, KinesisSettings

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kcl_mld.local.dynamodb_streams import TableStreams
    from kcl_mld.local.event_stream import Send
    from kcl_mld.local.faultplan import FaultPlan

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]

_Settings = TypeVar("_Settings", KinesisSettings, TableStreamSettings)
#: botocore's name of each service that is served, by the name with which requests are signed.
_SERVICES = {
    "dynamodb": "dynamodb",
    "dynamodbstreams": "dynamodbstreams",
    "glue": "glue",
    "monitoring": "cloudwatch",
    "sts": "sts",
}
#: Operations of S3 are known by the method of the request alone.
_S3_OPERATIONS = frozenset(f"{method}Object" for method in ("Delete", "Get", "Head", "Post", "Put"))
_KNOWN_SERVICES = ("kinesis", *_SERVICES, "s3")
#: Below it a word resembles nothing.
_CUTOFF = 0.6
#: Ten years, in seconds: the most that a clock may be advanced.
_MOST_S = 3.2e8
_PREFIX = b"Kinesis_20131202."
_JSON_TYPE = b"application/x-amz-json-1.1"


class ControlMistake(Exception):
    """A control request is invalid; the text says where, and suggests a correction."""


class Control(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/_control``; every field may be left out.

    Attributes:
        settings: fields of :class:`KinesisSettings` to change.
        faults: rules that replace all earlier ones.
        table_streams: fields of :class:`TableStreamSettings` to change.
        replace_shards: every open shard of a table's stream is replaced by that many; 0 = none is.
        advance_s: seconds by which the server's clock is put forward.
        consumers: ARNs of consumers that there shall be; their streams are there.
    """

    settings: dict[str, Any] = {}
    faults: list[FaultRule] | None = None
    table_streams: dict[str, Any] = {}
    replace_shards: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    advance_s: Annotated[float, msgspec.Meta(ge=0, le=_MOST_S)] = 0.0
    consumers: list[str] = []


def read_control(body: bytes) -> Control:
    """The request of a body.

    Raises:
        ControlMistake: it is no such request.
    """
    try:
        given = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ControlMistake(str(error)) from error
    if isinstance(given, dict):
        _require_known("", given, Control.__struct_fields__)
        rules = given.get("faults")
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                _require_known(f"faults[{number}]: ", rule, FaultRule.__struct_fields__)
    try:
        control = msgspec.convert(given, Control)
    except msgspec.ValidationError as error:
        raise ControlMistake(str(error)) from error
    for number, fault in enumerate(control.faults or ()):
        _require_operation(f"faults[{number}]: ", fault)
    return control


def changed_settings(member: str, before: _Settings, wanted: Mapping[str, Any]) -> _Settings:
    """The settings with some of them replaced.

    Args:
        member: of the request, which has ``wanted``.

    Raises:
        ControlMistake: there is no such setting, or its value is of another type.
    """
    _require_known(f"{member}: ", wanted, [field.name for field in fields(before)])
    try:
        return msgspec.convert({**asdict(before), **wanted}, type(before))
    except msgspec.ValidationError as error:
        raise ControlMistake(f"{member}: {error}") from error


def _require_known(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ControlMistake(f"{where}there is no {_unlike(name, known)}")


def _require_operation(where: str, rule: FaultRule) -> None:
    if rule.service not in {"*", *_KNOWN_SERVICES}:
        raise ControlMistake(
            f"{where}there is no service {_unlike(rule.service, _KNOWN_SERVICES)}"
            f" Served: {', '.join(_KNOWN_SERVICES)}, or * for all"
        )
    if rule.operation == "*":
        return
    services = _KNOWN_SERVICES if rule.service == "*" else (rule.service,)
    # One after the other: to read what a service of botocore has takes up to a tenth of a second.
    if not any(rule.operation in _operations(service) for service in services):
        known = frozenset[str]().union(*map(_operations, services))
        of_service = "" if rule.service == "*" else f" of {rule.service}"
        raise ControlMistake(
            f"{where}there is no operation{of_service} {_unlike(rule.operation, known)}"
        )


@cache
def _operations(service: str) -> frozenset[str]:
    if service == "kinesis":
        return OPERATIONS
    if service == "s3":
        return _S3_OPERATIONS
    model = botocore.session.Session().get_service_model(_SERVICES[service])
    return frozenset(model.operation_names)


def _unlike(word: str, known: Iterable[str]) -> str:
    """The word and the name that it resembles, regardless of case."""
    close = nearest(word, sorted(known), _CUTOFF)
    return f"{brief(word)!r}." + (f" Did you mean {close!r}?" if close else "")


class AdvancingClock:
    """The wall clock, put forward on request; stops for nobody."""

    def __init__(self) -> None:
        self.advanced_s = 0.0

    def __call__(self) -> float:
        """Epoch seconds."""
        return time.time() + self.advanced_s


class KinesisApp:
    """ASGI application: ``POST /`` is Kinesis, ``/_control`` is for the tests.

    Args:
        rng: source of chance for the model.
        plan: faults; shared with the other services of the process.
        streams: of tables, which have the clock of this.
    """

    def __init__(
        self,
        settings: KinesisSettings,
        rng: random.Random,
        plan: FaultPlan,
        clock: AdvancingClock,
        streams: TableStreams,
    ) -> None:
        self.clock = clock
        self.streams = streams
        self.model = KinesisModel(self.clock, rng, settings)
        self.plan = plan
        self._subscriptions = 0
        self._stopping = asyncio.Event()
        self._decode = msgspec.json.Decoder(dict[str, Any])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http":
            return
        body, send = await _read(receive), self._dated(send)
        if scope["path"] == "/_control":
            await self._control(body, send)
            return
        operation, content_type = _named(scope)
        stamp = dict(scope["headers"]).get(b"x-amz-date", b"").decode("ascii", "replace")
        rule = self.plan.pick("kinesis", operation, body, stamp)
        if rule is not None and rule.delay_s > 0 and await self._is_stopped_within(rule.delay_s):
            await _break_off(scope, receive)
            return
        answer: tuple[int, bytes] | LocalSubscription = (200, b"")
        if rule is None or not rule.spoils or rule.when == "after":
            answer = self._answer(operation, content_type, body)
        if rule is not None and rule.spoils:
            if rule.drop:
                await _break_off(scope, receive)
                return
            fault = KinesisFault(rule.code or "", rule.message, rule.http_status)
            answer = fault.http_status, _error_body(fault)
        if isinstance(answer, LocalSubscription):
            self._subscriptions += 1
            try:
                await serve_events(answer, rule, receive, send, scope["extensions"]["abort"])
            finally:
                self._subscriptions -= 1
        else:
            await _respond(send, *answer)

    def _dated(self, send: Send) -> Send:
        """Answers with the date of this service, which is not that of the machine."""

        async def send_dated(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(self.clock(), usegmt=True).encode()
                message["headers"] = [*message["headers"], (b"date", date)]
            await send(message)

        return send_dated

    def stop(self) -> None:
        """End the requests that a fault delays."""
        self._stopping.set()

    async def _is_stopped_within(self, delay_s: float) -> bool:
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    def _answer(
        self, operation: str, content_type: bytes, body: bytes
    ) -> tuple[int, bytes] | LocalSubscription:
        try:
            request = self._request(content_type, body)
            if operation == "SubscribeToShard":
                return self.model.subscribe(request)
            return 200, self.model.body(operation, request)
        except KinesisFault as fault:
            return fault.http_status, _error_body(fault)

    def _request(self, content_type: bytes, body: bytes) -> dict[str, Any]:
        if b"cbor" in content_type:
            raise KinesisFault("SerializationException", "only JSON is spoken", 415)
        try:
            return self._decode.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KinesisFault("SerializationException", str(error)) from error

    async def _control(self, body: bytes, send: Send) -> None:
        try:
            wanted = read_control(body)
            settings = changed_settings("settings", self.model.settings, wanted.settings)
            of_tables = changed_settings(
                "table_streams", self.streams.settings, wanted.table_streams
            )
            for arn in wanted.consumers:
                self.model.adopt_consumer(arn)
        except (ControlMistake, KinesisFault) as error:
            await _respond(send, 400, msgspec.json.encode({"message": str(error)}))
            return
        self.model.settings = settings
        if wanted.faults is not None:
            self.plan.replace(wanted.faults)
        self.clock.advanced_s += wanted.advance_s
        with self.streams.lock:
            self.streams.settings = of_tables
            if wanted.replace_shards:
                self.streams.replace_shards(wanted.replace_shards)
        shown = {
            "now_s": self.clock(),
            "settings": asdict(self.model.settings),
            "table_streams": asdict(self.streams.settings),
            "subscriptions": self._subscriptions,
            **self.plan.counts(),
        }
        await _respond(send, 200, msgspec.json.encode(shown))


def _named(scope: Scope) -> tuple[str, bytes]:
    """Operation and content type of a request."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    target = headers.get(b"x-amz-target", b"").removeprefix(_PREFIX)
    return target.decode("ascii", "replace"), headers.get(b"content-type", b"")


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _error_body(fault: KinesisFault) -> bytes:
    return msgspec.json.encode({"__type": fault.code, "message": fault.message})


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", _JSON_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"x-amzn-requestid", str(uuid.uuid4()).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _break_off(scope: Scope, receive: Receive) -> None:
    """Close the connection without a word."""
    scope["extensions"]["abort"]()
    while (await receive())["type"] != "http.disconnect":
        pass


class AbortableProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with one more thing: the application may cut the connection.

    The scope gets ``extensions.abort``, a function without arguments.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember how to cut this connection."""
        super().connection_made(transport)
        app = self.app

        async def with_abort(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})["abort"] = transport.abort
            await app(scope, receive, send)

        self.app = with_abort
