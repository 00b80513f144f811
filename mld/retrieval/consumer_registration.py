"""The registered consumer of a stream: found, or registered, once for all its shards.

The publishers request it when they subscribe, so nothing else waits for it. All workers of an
application share the consumer, so no worker deregisters it, as in Java.

Source: FanOutConsumerRegistration (KCL 3.5.1), with growing, randomized pauses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import Denied, InUse, LimitExceeded, MldError, NotFound, ServiceError, Throttled
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.retrieval.rules.fan_out import ConsumerStep, consumer_step
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.rules.remedies import FailedCall, shown_error

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.config import FanOutConfig
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.retrieval")

#: A consumer that is being created or deleted is checked at this interval in seconds,
POLL_S = 1.0
#: and this many times before it counts as a failure.
POLLS = 10
_LONGEST_PAUSE_S = 30.0
_PERMISSIONS = (
    "allow kinesis:DescribeStreamSummary, DescribeStreamConsumer and RegisterStreamConsumer"
    " (and SubscribeToShard), or write retrievalMode = POLLING"
)
_LIMIT = (
    "a stream has room for 20 consumers: deregister one (aws kinesis list-stream-consumers), name "
    "one that is there by fanoutConfig.consumerName, or write retrievalMode = POLLING"
)


class ConsumerRegistration:
    """One per stream and worker.

    Args:
        name: of the consumer to find or register; ``config.consumer_arn`` wins over it.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        stream: Stream,
        name: str,
        config: FanOutConfig,
        conditions: Conditions,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._name = name
        self._config = config
        self._conditions = conditions
        self._clock = clock
        self._rng = rng
        self._arn = config.consumer_arn
        self._lock = asyncio.Lock()
        self._failures = 0
        self.failing_since: float | None = None  #: monotonic; None while it is found
        self.failure: FailedCall | None = None  #: the last; None while it is found

    @property
    def is_known(self) -> bool:
        """Whether :meth:`arn` answers at once."""
        return self._arn is not None

    async def arn(self) -> str:
        """ARN of the active consumer; waits for it without limit.

        One of several callers makes the requests and the others wait. A failure is logged and
        retried.

        Cancellation: the next waiting caller continues.
        """
        try:
            async with self._lock:
                while self._arn is None:
                    try:
                        self._arn = await self._find()
                    except MldError as error:
                        self._tell(error)
                        await self._pause(self._failures - 1)
                return self._arn
        except asyncio.CancelledError:
            self._clear_failure()  # perhaps no longer needed; callers request it again
            raise

    def accepted(self) -> None:
        """The service accepted a subscription of the consumer."""
        self._clear_failure()

    def _clear_failure(self) -> None:
        if self.failing_since is not None:
            self._conditions.clear(Reason.NO_CONSUMER, self._stream.name)
        self._failures = 0
        self.failing_since = self.failure = None

    def not_found(self, arn: str) -> None:
        """The service did not find it, although the shard exists: search for it again."""
        if self._config.consumer_arn is not None:
            where = "fanoutConfig.consumerArn"
            self._tell(NotFound("SubscribeToShard", "ResourceNotFoundException", f"check {where}"))
        elif self._arn == arn:
            log.warning("The consumer %s is gone; looking for it again", arn)
            self._arn = None

    # -- finding it ------------------------------------------------------------------------------

    async def _find(self) -> str:
        """Steps 1 to 4 of Java's; raises what did not pass."""
        stream_arn = await self._stream_arn()
        status: object = None
        for _ in range(POLLS):
            consumer = await self._describe(stream_arn)
            status = consumer.get("ConsumerStatus")
            step = consumer_step(status)
            if step is ConsumerStep.USE:
                arn = str(consumer["ConsumerARN"])
                log.info("Enhanced fan-out by consumer %s", arn)
                return arn
            if step is ConsumerStep.REGISTER:
                await self._register(stream_arn)
            await asyncio.sleep(POLL_S * (1 + self._rng.random() / 2))
        why = f"it is still {status or 'missing'} after {POLLS} looks"
        raise ServiceError("DescribeStreamConsumer", "NotActive", why)

    async def _stream_arn(self) -> str:
        stream = self._stream
        if stream.arn is not None:
            return stream.arn
        describe = self._kinesis.describe_stream_summary
        attempts = self._config.summary_attempts
        answer = await self._patiently(attempts, describe, **stream.request())
        return str(answer["StreamDescriptionSummary"]["StreamARN"])

    async def _describe(self, stream_arn: str) -> dict[str, Any]:
        """The consumer; empty = there is none."""
        describe = self._kinesis.describe_stream_consumer
        attempts, name = self._config.describe_attempts, self._name
        try:
            answer = await self._patiently(
                attempts, describe, StreamARN=stream_arn, ConsumerName=name
            )
        except NotFound:
            return {}
        description: dict[str, Any] = answer["ConsumerDescription"]
        return description

    async def _register(self, stream_arn: str) -> None:
        register = self._kinesis.register_stream_consumer
        attempts, name = self._config.register_attempts, self._name

        async def call(**request: str) -> dict[str, Any]:
            try:
                return await register(**request)
            except LimitExceeded as error:
                # Call limit, or limit of consumers per stream: then only an operator can help.
                self._tell(error)
                raise

        try:
            await self._patiently(attempts, call, StreamARN=stream_arn, ConsumerName=name)
        except InUse:
            log.info("Another worker is registering the consumer %s", name)
            return
        log.info(
            "Registered the consumer %s of stream %s. It is billed until it is deregistered, which "
            "no worker ever does",
            name,
            self._stream.name,
        )

    async def _patiently(
        self, attempts: int, call: Callable[..., Awaitable[dict[str, Any]]], **request: str
    ) -> dict[str, Any]:
        """The answer of a call that is retried while it is throttled."""
        attempt = 0
        while True:
            try:
                return await call(**request)
            except (LimitExceeded, Throttled):
                attempt += 1
                if attempt >= attempts:
                    raise
            await self._pause(attempt - 1)

    async def _pause(self, attempt: int) -> None:
        first_s = max(POLL_S, 2 * self._config.backoff_s)  # of which half is random
        await asyncio.sleep(backoff_s(attempt, self._rng, first_s=first_s, cap_s=_LONGEST_PAUSE_S))

    def _tell(self, error: MldError) -> None:
        self._failures += 1
        if self.failing_since is None:
            self.failing_since = self._clock.monotonic()
        what = self._config.consumer_arn or self._name
        advice, level = "", logging.WARNING
        if isinstance(error, Denied):
            advice = _PERMISSIONS
        elif isinstance(error, LimitExceeded) and error.operation == "RegisterStreamConsumer":
            advice, level = _LIMIT, logging.ERROR
        message = (
            f"enhanced fan-out: the consumer {what} of stream {self._stream.name} cannot be used"
            f" ({error})" + (f"; {advice}" if advice else "")
        )
        self.failure = FailedCall(shown_error(error), advice)
        self._conditions.report(Reason.NO_CONSUMER, message, self._stream.name)
        log.log(level, "%s; trying again", message[0].upper() + message[1:])
