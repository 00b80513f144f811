"""What all operations share: settings, time, streams, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import in_use, invalid, malformed, not_found
from mld.local.kinesis.limits import ServiceLimits

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from mld.local.kinesis.stream import LocalStream


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSettings:
    """How the model behaves where the service leaves room.

    Attributes:
        account_id: twelve digits, part of every ARN.
        region: part of every ARN.
        create_s: seconds for which a new stream is CREATING.
        delete_s: seconds for which a deleted stream is DELETING.
        reshard_s: seconds for which a stream is UPDATING before its shards change.
        consumer_create_s: seconds for which a new consumer is CREATING.
        consumer_delete_s: seconds for which a deregistered consumer is DELETING.
        subscription_s: seconds after which a subscription ends.
        takeover_s: seconds after an accepted SubscribeToShard in which the next one of the same
            consumer and shard is refused; later it takes over.
        event_interval_s: seconds between the events of a subscription that has caught up.
        empty_event_s: seconds without an event after which an empty one is sent.
        limits: apply the service's rate limits.
        spare_answer_probability: 0 to 1; how often GetRecords answers with nothing although there
            are records, or gives the end of a shard one call after its last record; the same of
            events. The service does both.
    """

    account_id: str = "123456789012"
    region: str = "us-east-1"
    create_s: float = 0.0
    delete_s: float = 0.0
    reshard_s: float = 0.0
    consumer_create_s: float = 0.0
    consumer_delete_s: float = 0.0
    subscription_s: float = 300.0
    takeover_s: float = 5.0
    event_interval_s: float = 0.2
    empty_event_s: float = 5.0
    limits: bool = False
    spare_answer_probability: float = 0.0


class KinesisState:
    """Streams of one account in one region.

    Args:
        clock: epoch seconds; called once or twice per operation.
        rng: used only where :attr:`KinesisSettings.spare_answer_probability` is above 0.
        settings: behavior; may be replaced at any time.
    """

    def __init__(
        self, clock: Callable[[], float], rng: random.Random, settings: KinesisSettings
    ) -> None:
        self.settings = settings
        self.streams: dict[str, LocalStream] = {}
        self.limits = ServiceLimits()
        self._clock = clock
        self._rng = rng

    def now_s(self) -> float:
        """Epoch seconds."""
        return self._clock()

    def now_ms(self) -> int:
        """Epoch milliseconds, the resolution of arrival times."""
        return int(self._clock() * 1000)

    def is_spared(self) -> bool:
        """Whether this answer of GetRecords holds something back."""
        probability = self.settings.spare_answer_probability
        return probability > 0 and self._rng.random() < probability

    def arn_prefix(self) -> str:
        """What the ARN of every stream here begins with."""
        return f"arn:aws:kinesis:{self.settings.region}:{self.settings.account_id}:stream/"

    def find(self, request: Mapping[str, Any], *, active: bool = True) -> LocalStream:
        """The stream that a request names, with everything due done.

        Raises:
            KinesisFault: ResourceNotFoundException when it does not exist;
                ResourceInUseException when ``active`` and it is neither ACTIVE nor UPDATING.
        """
        return self.named(self._name_in(request), active=active)

    def named(self, name: str, *, active: bool = True) -> LocalStream:
        """As :meth:`find`, for a stream's name."""
        stream = self.streams.get(name)
        if stream is not None:
            stream.settle(self.now_ms())
            stream = self.streams.get(name)
        if stream is None:
            account = self.settings.account_id
            raise not_found(f"Stream {name} under account {account} not found.")
        if active and stream.status not in {"ACTIVE", "UPDATING"}:
            raise in_use(f"Stream {name} is {stream.status}, not ACTIVE or UPDATING.")
        return stream

    def count_call(self, operation: str, stream: str) -> None:
        """Count a control call where limits are on."""
        if self.settings.limits:
            self.limits.control(operation, stream, self.now_s())

    def _name_in(self, request: Mapping[str, Any]) -> str:
        name, arn = request.get("StreamName"), request.get("StreamARN")
        if arn is None:
            if not isinstance(name, str) or not name:
                raise invalid("Either StreamName or StreamARN is required.")
            return name
        if not isinstance(arn, str) or ":stream/" not in arn:
            raise malformed(f"Value '{arn}' at 'streamARN' is not the ARN of a stream.")
        prefix, _, from_arn = arn.partition(":stream/")
        if f"{prefix}:stream/" != self.arn_prefix():
            raise not_found(f"Stream {arn} not found.")
        if name is not None and name != from_arn:
            raise invalid(f"StreamName {name} and StreamARN {arn} name two streams.")
        return from_arn.split("/", 1)[0]
