"""Misbehavior on request: delays, error answers, lost answers, in every service of the server."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    import random


class FaultRule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens to requests that match; the first matching rule counts.

    Attributes:
        service: ``kinesis``, ``dynamodb``, ``dynamodbstreams``, ``glue``, ``monitoring``, ``s3``,
            ``sts`` or ``*``.
        operation: API operation or ``*``.
        contains: text that the request's body must hold, e.g. a shard id.
        signed_off_s: only requests that are signed further off the time of the server than that, as
            AWS refuses them from 300 on; None = all.
        times: how many requests it still applies to; None = all.
        probability: 0 to 1, how many of the matching requests it hits.
        delay_s: seconds to wait before the rest.
        code: error to answer with; None = no error.
        when: ``before`` the operation (nothing happens) or ``after`` it (its effect stays).
        in_stream: what happens to the events of a SubscribeToShard that is accepted: ``cut`` (the
            connection breaks within the next event), ``corrupt`` (the next event has a wrong
            checksum), ``silence`` (nothing comes any more), ``exception`` (the stream ends with
            ``code``), ``end`` (it ends as after five minutes). Then ``code`` and ``drop`` do
            nothing to the call itself.
        after_events: events that are sent before it.
    """

    service: str = "*"
    operation: str = "*"
    contains: str = ""
    signed_off_s: Annotated[float, Meta(ge=0)] | None = None
    times: Annotated[int, Meta(ge=0)] | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    delay_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    code: str | None = None
    message: str = "injected"
    http_status: Annotated[int, Meta(ge=400, le=599)] = 400
    when: Literal["before", "after"] = "before"
    drop: bool = False
    in_stream: Literal["cut", "corrupt", "silence", "exception", "end"] | None = None
    after_events: Annotated[int, Meta(ge=0)] = 0

    def matches(self, service: str, operation: str, body: bytes, off_s: float) -> bool:
        """Whether the rule is about this request, which was signed so far off."""
        return (
            self.service in {"*", service}
            and self.operation in {"*", operation}
            and (not self.contains or self.contains.encode() in body)
            and (self.signed_off_s is None or off_s > self.signed_off_s)
        )

    @property
    def spoils(self) -> bool:
        """Whether it does more than delay, and not to events."""
        return self.in_stream is None and (self.drop or self.code is not None)


class FaultPlan:
    """The rules in force and the requests so far; may be used from several threads."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self._rules: list[FaultRule] = []
        self._calls: dict[str, int] = {}
        self._hits: dict[str, int] = {}

    def replace(self, rules: list[FaultRule]) -> None:
        """Put these rules in the place of all earlier ones."""
        with self._lock:
            self._rules = list(rules)

    def pick(self, service: str, operation: str, body: bytes, stamp: str = "") -> FaultRule | None:
        """Count a request and return the rule that hits it, if any.

        Args:
            stamp: its header ``X-Amz-Date``.
        """
        off_s = _off_s(stamp)
        name = f"{service}.{operation}"
        with self._lock:
            self._calls[name] = self._calls.get(name, 0) + 1
            for rule in self._rules:
                if rule.times != 0 and rule.matches(service, operation, body, off_s):
                    if rule.probability < 1 and self._rng.random() >= rule.probability:
                        continue
                    if rule.times is not None:
                        rule.times -= 1
                    self._hits[name] = self._hits.get(name, 0) + 1
                    return rule
        return None

    def counts(self) -> dict[str, dict[str, int]]:
        """Requests and faults so far, by ``service.Operation``."""
        with self._lock:
            return {
                "calls": dict(sorted(self._calls.items())),
                "faults": dict(sorted(self._hits.items())),
            }


def _off_s(stamp: str) -> float:
    """How far a time of signing is off that of this machine; 0 = there is none."""
    try:
        signed = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return abs(signed.timestamp() - time.time())
