"""Tags of streams: add, remove, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import invalid, malformed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.state import KinesisState

#: Of a stream; also of an answer (Kinesis API reference).
_MOST_TAGS = 50


def add_tags_to_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """AddTagsToStream: new keys are added, known ones get another value."""
    stream = state.find(request)
    state.count_call("AddTagsToStream", "")
    tags = request.get("Tags")
    if not isinstance(tags, dict) or not tags:
        raise malformed("Tags must have at least one tag.")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or not isinstance(value, str) or len(value) > 256:
            raise malformed("A tag has a key of 1 to 128 characters and a value of up to 256.")
    if len(stream.tags.keys() | tags.keys()) > _MOST_TAGS:
        raise invalid(f"A stream has at most {_MOST_TAGS} tags.")
    stream.tags.update(tags)
    return {}


def remove_tags_from_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """RemoveTagsFromStream: keys that are not there are passed over."""
    stream = state.find(request)
    state.count_call("RemoveTagsFromStream", "")
    keys = request.get("TagKeys")
    if not isinstance(keys, list) or not keys:
        raise malformed("TagKeys must have at least one key.")
    for key in keys:
        stream.tags.pop(key, None)
    return {}


def list_tags_for_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListTagsForStream: by key, paged by the last key."""
    stream = state.find(request, active=False)
    state.count_call("ListTagsForStream", "")
    limit = request.get("Limit", _MOST_TAGS)
    if not isinstance(limit, int) or not 1 <= limit <= _MOST_TAGS:
        raise malformed(f"Limit must be between 1 and {_MOST_TAGS}.")
    keys = sorted(key for key in stream.tags if key > request.get("ExclusiveStartTagKey", ""))
    return {
        "Tags": [{"Key": key, "Value": stream.tags[key]} for key in keys[:limit]],
        "HasMoreTags": len(keys) > limit,
    }
