"""One stream as its shards are looked for: the part of a stream's context that sync and audit use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.sequence import InitialPosition
    from mld.model.streams.stream import Stream
    from mld.services.shards.shard_detector import ShardDetector
    from mld.services.shards.stream_presence import StreamPresence


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """What is asked of Kinesis about one stream, apart from its records.

    Attributes:
        stream: how requests and lease keys name it.
        position: where shards without a lease begin.
        detector: lists its shards.
        presence: whether it is still the same stream.
    """

    stream: Stream
    position: InitialPosition
    detector: ShardDetector
    presence: StreamPresence
