"""Which shards ListShards shows: filters, starting shard, pages.

Source: Kinesis API reference, ListShards and ShardFilter. Where the reference leaves a moment to
two shards (a parent closed and its children opened at exactly the filter's time) the children
alone are shown, so that one answer of ``AT_TIMESTAMP`` never overlaps itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import KinesisFault, invalid, malformed
from mld.local.kinesis.shard import shard_id_of
from mld.local.kinesis.tokens import TOKEN_LIFE_S, make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.stream import LocalStream

DEFAULT_PAGE = 1000
MAX_PAGE = 10_000
_KIND = "shards"


def filtered_shards(
    stream: LocalStream, shard_filter: Mapping[str, Any] | None, now_ms: int
) -> list[LocalShard]:
    """Shards that pass the filter, in order of their ids."""
    shards = list(stream.shards.values())
    if not shard_filter:
        return shards
    horizon_ms = stream.horizon_ms(now_ms)
    match shard_filter.get("Type"):
        case "AT_LATEST":
            shards = [shard for shard in shards if shard.is_open]
        case "FROM_TRIM_HORIZON":
            pass
        case "AT_TRIM_HORIZON":
            shards = _open_at(shards, horizon_ms)
        case "AT_TIMESTAMP":
            shards = _open_at(shards, max(_timestamp_ms(shard_filter), horizon_ms))
        case "FROM_TIMESTAMP":
            since = max(_timestamp_ms(shard_filter), horizon_ms)
            shards = [s for s in shards if s.closed_ms is None or s.closed_ms > since]
        case "AFTER_SHARD_ID":
            after = shard_filter.get("ShardId")
            if not isinstance(after, str):
                raise invalid("ShardFilter of type AFTER_SHARD_ID needs a ShardId.")
            shards = [shard for shard in shards if shard.shard_id > after]
        case other:
            raise malformed(f"Value '{other}' at 'shardFilter.type' is not a filter type.")
    return shards


def _open_at(shards: list[LocalShard], time_ms: float) -> list[LocalShard]:
    return [
        shard
        for shard in shards
        if shard.created_ms <= time_ms and (shard.closed_ms is None or shard.closed_ms > time_ms)
    ]


def _timestamp_ms(shard_filter: Mapping[str, Any]) -> float:
    timestamp = shard_filter.get("Timestamp")
    if not isinstance(timestamp, int | float):
        raise invalid(f"ShardFilter of type {shard_filter.get('Type')} needs a Timestamp.")
    return timestamp * 1000


def page_size(request: Mapping[str, Any]) -> int:
    """``MaxResults`` of a request, 1000 where it is absent."""
    size = request.get("MaxResults", DEFAULT_PAGE)
    if not isinstance(size, int) or not 1 <= size <= MAX_PAGE:
        raise malformed(f"Value '{size}' at 'maxResults' must be between 1 and {MAX_PAGE}.")
    return size


@dataclass(frozen=True, slots=True)
class Page:
    """What a page token stands for.

    Attributes:
        stream: stream name.
        created_ms: its creation, which tells it from a later stream of that name.
        size: shards a page.
        rest: ids still to show.
    """

    stream: str
    created_ms: int
    size: int
    rest: list[str]


def page_answer(
    stream: LocalStream, shards: list[LocalShard], size: int, now_ms: int
) -> dict[str, Any]:
    """One page; the token holds what is left, so that a filter means one moment on all pages."""
    answer: dict[str, Any] = {"Shards": [shard.describe() for shard in shards[:size]]}
    if len(shards) > size:
        rest = (shard.number for shard in shards[size:])
        answer["NextToken"] = make_token(_KIND, stream.name, stream.created_ms, now_ms, size, *rest)
    return answer


def read_page_token(token: object, now_ms: int) -> Page:
    """The page that a token stands for.

    Raises:
        KinesisFault: InvalidArgumentException for a mangled token, ExpiredNextTokenException for
            one older than 300 s.
    """
    fields = read_token(_KIND, token)
    if fields is None:
        raise invalid("NextToken is invalid.")
    name, created_ms, made_ms, size, *rest = fields
    if now_ms - int(made_ms) > TOKEN_LIFE_S * 1000:
        raise KinesisFault("ExpiredNextTokenException", "NextToken has expired.")
    return Page(name, int(created_ms), int(size), [shard_id_of(int(n)) for n in rest])
