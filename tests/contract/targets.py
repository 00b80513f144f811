"""What the contract suite talks to: each target takes an operation and gives its answer.

A target raises :class:`Refused` with the service's error code. Requests and answers are in
botocore's shape: blobs are bytes, times are datetimes.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import random
import time
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import botocore.session
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError

from kcl_mld.errors import ConditionFailed, ServiceError
from kcl_mld.local.event_stream import initial_response
from kcl_mld.local.kinesis import KinesisFault, KinesisModel, KinesisSettings
from tests.fakes.dynamodb_model import DynamoDbModel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kcl_mld.local.embedded import EmbeddedAws
    from kcl_mld.local.kinesis.fan_out import LocalSubscription

START_WALL = 1_700_000_000.0


class Refused(Exception):
    """The service answered with an error."""

    def __init__(self, code: str, item: dict[str, Any] | None = None) -> None:
        self.code = code
        self.item = item
        super().__init__(code)


class Target(Protocol):
    """A service to test."""

    name: str

    def call(self, operation: str, **request: Any) -> dict[str, Any]: ...

    def events(self, **request: Any) -> Generator[dict[str, Any]]:
        """SubscribeToShard: its events, until it ends or the caller closes."""

    def advance(self, seconds: float) -> None:
        """Let time pass for the service."""


class Botocore:
    """A service behind a real client.

    Args:
        name: of the target, for the table of divergences.
        client: botocore client.
        advance: how to let time pass; the default really waits.
    """

    def __init__(
        self, name: str, client: Any, advance: Callable[[float], object] = time.sleep
    ) -> None:
        self.name = name
        self._client = client
        self._advance = advance
        self._raw: Any = None
        if client.meta.service_model.service_name == "kinesis":
            client.meta.events.register("before-parse.kinesis.SubscribeToShard", self._keep_raw)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        method = getattr(self._client, _snake(operation))
        try:
            answer: dict[str, Any] = method(**request)
        except ClientError as error:
            response: Any = error.response
            raise Refused(response["Error"]["Code"], response.get("Item")) from error
        del answer["ResponseMetadata"]
        return answer

    def events(self, **request: Any) -> Generator[dict[str, Any]]:
        self.call("SubscribeToShard", **request)
        frames = self._frames(self._raw)
        weakref.finalize(frames, self._raw.close)  # nobody may ever ask for the first one
        return frames

    def _keep_raw(self, response_dict: dict[str, Any], **_: Any) -> None:
        """The frames as they come: kinesis-local sends no initial response."""
        if response_dict["status_code"] == 200:
            self._raw = response_dict["body"]
            response_dict["body"] = _InitialResponse()

    @staticmethod
    def _frames(raw: Any) -> Generator[dict[str, Any]]:
        frames = EventStreamBuffer()
        with contextlib.closing(raw):
            for data in raw.stream():
                frames.add_data(data)
                for frame in frames:
                    if ":exception-type" in frame.headers:
                        raise Refused(frame.headers[":exception-type"])
                    if frame.headers[":event-type"] == "SubscribeToShardEvent":
                        shown = _from_json(json.loads(frame.payload))
                        yield {key: value for key, value in shown.items() if value is not None}

    def advance(self, seconds: float) -> None:
        self._advance(seconds)


class _InitialResponse:
    """An answer of events that has none."""

    def stream(self) -> Iterator[bytes]:
        yield initial_response()


class InProcessKinesis:
    """The model itself, on a clock that moves only when told to."""

    name = "model"

    def __init__(self) -> None:
        self.now_s = START_WALL
        settings = KinesisSettings(reshard_s=0.5, create_s=0.5)
        self.model = KinesisModel(lambda: self.now_s, random.Random(1), settings)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = _from_json(self.model.call(operation, _to_json(request)))
        except KinesisFault as fault:
            raise Refused(fault.code) from fault
        return answer

    def events(self, **request: Any) -> Generator[dict[str, Any]]:
        try:
            subscription = self.model.subscribe(_to_json(request))
        except KinesisFault as fault:
            raise Refused(fault.code) from fault
        return self._events(subscription)

    def _events(self, subscription: LocalSubscription) -> Generator[dict[str, Any]]:
        while not subscription.is_over:
            try:
                event = subscription.next_event()
            except KinesisFault as fault:
                raise Refused(fault.code) from fault
            if event is not None:
                yield _from_json(json.loads(event))
            self.now_s += subscription.pause_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class InProcessDynamoDb:
    """The fake itself."""

    name = "fake"

    def __init__(self) -> None:
        self.now_s = START_WALL
        self.model = DynamoDbModel(lambda: self.now_s)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        try:
            return self.model.call(operation, request)
        except ConditionFailed as failed:
            item = dict(failed.item) if failed.item is not None else None
            raise Refused(failed.code, item) from failed
        except ServiceError as error:
            raise Refused(error.code) from error

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


def embedded_kinesis(aws: EmbeddedAws) -> Target:
    """Our server; its clock is put forward instead of waiting."""
    client = aws.client("kinesis", config=_config())
    return Botocore("http", client, lambda seconds: aws.control(advance_s=seconds))


@functools.cache
def _session() -> Any:
    """One for all clients: botocore reads its data files once."""
    return botocore.session.Session()


def client_for(url: str, service: str) -> Any:
    """A client of an emulator."""
    return _session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=_config(),
    )


def _config() -> Config:
    return Config(retries={"total_max_attempts": 1}, read_timeout=20, parameter_validation=False)


def _snake(operation: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).lstrip("_")


def _to_json(value: Any) -> Any:
    """What botocore would send."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, dict):
        return {name: _to_json(entry) for name, entry in value.items()}
    return [_to_json(entry) for entry in value] if isinstance(value, list) else value


def _from_json(value: Any, name: str = "") -> Any:
    """What botocore would make of it."""
    if isinstance(value, dict):
        return {key: _from_json(entry, key) for key, entry in value.items()}
    if isinstance(value, list):
        return [_from_json(entry) for entry in value]
    if name == "Data":
        return base64.b64decode(value)
    if name.endswith("Timestamp"):
        return datetime.fromtimestamp(value, UTC)
    return value
