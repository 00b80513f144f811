"""Lists the shards of a stream.

Source: KinesisShardDetector.java (KCL 3.5.1): 127-177, 215-363. Intended differences: transient
failures are retried with a growing pause (Java retries LimitExceeded only), and a stream that is
not ready is an error of its own (Java: null). Lists are not cached, because no caller needs single
shards.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import (
    AwsError,
    Denied,
    InUse,
    LimitExceeded,
    ServiceError,
    StreamNotReady,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.pages import page_numbers
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.streams.model.shard import Shard

if TYPE_CHECKING:
    import random

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.config import ShardConfig
    from kcl_mld.config.stream import Stream

log = logging.getLogger("mld.shards")

#: Listings that may fail in a row for transient reasons; their pauses add up to 8-16 s.
TRANSIENT_ATTEMPTS = 6
_TRANSIENT_FIRST_S = 0.5
_TRANSIENT_CAP_S = 8.0
#: Codes that a later attempt may not meet again; a page token lives 300 s, credentials rotate.
_TRANSIENT_CODES = frozenset(
    {
        "500",
        "502",
        "503",
        "504",
        "ExpiredNextTokenException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InternalFailure",
        "InternalFailureException",
        "InternalServerError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)


class ShardDetector:
    """The shards of one stream. One per stream and worker; calls of one detector are serialized."""

    def __init__(
        self,
        kinesis: Kinesis,
        stream: Stream,
        config: ShardConfig,
        rng: random.Random,
    ) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._config = config
        self._rng = rng
        self._turn = asyncio.Lock()

    async def list_shards(self, shard_filter: dict[str, Any] | None = None) -> tuple[Shard, ...]:
        """All pages of ListShards, in the order of the answer.

        Args:
            shard_filter: ``ShardFilter``, or None = every shard within retention, open and closed.

        Raises:
            NotFound: the stream does not exist.
            StreamNotReady: it is neither ACTIVE nor UPDATING; ask again later.
            AwsError: refused, or still failing after the retries.
            MalformedData: a shard of the answer lacks a mandatory field.
        """
        async with self._turn:
            return await self._list(shard_filter)

    async def _list(self, shard_filter: dict[str, Any] | None) -> tuple[Shard, ...]:
        """List, from the first page again after a transient failure."""
        failures = 0
        while True:
            try:
                shards = await self._pages(shard_filter)
            except AwsError as error:
                failures += 1
                if not _is_transient(error) or failures >= TRANSIENT_ATTEMPTS:
                    raise
                pause_s = backoff_s(
                    failures - 1, self._rng, first_s=_TRANSIENT_FIRST_S, cap_s=_TRANSIENT_CAP_S
                )
                log.warning(
                    "The shards could not be listed; trying again in %.1f s: %s", pause_s, error
                )
                await asyncio.sleep(pause_s)
            else:
                return shards

    async def _pages(self, shard_filter: dict[str, Any] | None) -> tuple[Shard, ...]:
        # Only the first page names the stream and the filter; the token carries both after it.
        request: dict[str, Any] = dict(self._stream.request())
        if shard_filter is not None:
            request["ShardFilter"] = shard_filter
        shards: list[Shard] = []
        numbers = page_numbers("ListShards")
        while True:
            next(numbers)
            answer = await self._page(request)
            shards += [Shard.from_response(entry) for entry in answer.get("Shards", ())]
            token = answer.get("NextToken")
            if not token:
                return tuple(shards)
            request = {"NextToken": token}

    async def _page(self, request: dict[str, Any]) -> dict[str, Any]:
        attempts = max(1, self._config.list_attempts)
        while True:
            try:
                return await self._kinesis.list_shards(**request)
            except (LimitExceeded, Throttled) as error:
                attempts -= 1
                if attempts == 0:
                    raise
                log.debug("ListShards is limited, %d attempts left: %s", attempts, error)
                # The random tenth keeps workers that were refused together from retrying together.
                await asyncio.sleep(self._config.list_backoff_s * (1 + self._rng.random() / 10))
            except InUse as error:
                raise StreamNotReady(
                    error.operation,
                    error.code,
                    f"stream {self._stream.name} is not in ACTIVE or UPDATING state",
                ) from error


def _is_transient(error: AwsError) -> bool:
    if isinstance(error, Unreachable | UnknownOutcome):
        return True
    return (type(error) is ServiceError or isinstance(error, Denied)) and (
        error.code in _TRANSIENT_CODES
    )
