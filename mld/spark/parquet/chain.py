"""The walk along the parquet chain, and what a compaction may merge and remove. Pure: no I/O.

Whoever begins at ``start`` and goes from each link to the one that follows its last position meets
each row once. The names and markers are those of :mod:`mld.spark.parquet.chain_layout`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.spark.errors import SinkRefused
from mld.spark.model import Position, parse_position, position_text
from mld.spark.parquet.chain_layout import (
    FORMAT,
    MARKER,
    SEGMENTS,
    Marker,
    is_after,
    link_name,
    link_of,
    parse_segments,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the walk: a batch, or a segment that stands for several.

    Attributes:
        after: position that it follows; None = the beginning.
        to: position of its last record.
        name: of its directory, relative to that of the shard.
        marker: what it says about itself.
    """

    after: Position | None
    to: Position
    name: str
    marker: Marker

    @property
    def is_segment(self) -> bool:
        """True for a merged run."""
        return self.name.startswith(SEGMENTS)


def longest_segments(names: Iterable[str]) -> dict[Position | None, Position]:
    """For each position at which a segment begins, the end of the longest.

    Args:
        names: in the directory of the segments; what is no segment is skipped.
    """
    ends: dict[Position | None, Position] = {}
    for after, to in parse_segments(names):
        if is_after(to, ends.get(after)):
            ends[after] = to
    return ends


def walk(
    read: Callable[[str], str | None],
    segments: Mapping[Position | None, Position],
    begin: Position | None = None,
) -> Iterator[Link]:
    """The links of a shard in order, segments in place of what they cover.

    Args:
        read: text of the marker in a directory (relative to the shard's); None if there is none.
        segments: from :func:`longest_segments`.
        begin: a position that is known to be on the chain; None = its beginning.

    Raises:
        SinkRefused: a marker can't be read or leads backwards; the output was tampered with.
    """
    at = begin
    while True:
        end = segments.get(at)
        name = link_name(at) if end is None else segment_name(at, end)
        text = read(name)
        if text is None:
            if end is None:
                return
            raise SinkRefused(f"{name}: a segment without {MARKER}; the output was tampered with")
        marker = _sound_marker(name, text, at)
        yield Link(at, marker.to, name, marker)
        at = marker.to


def _sound_marker(name: str, text: str, after: Position | None) -> Marker:
    try:
        marker = Marker.decode(text)
    except (ValueError, TypeError) as error:
        raise SinkRefused(f"{name}/{MARKER} can't be read: {error}") from error
    if not is_after(marker.to, after):
        raise SinkRefused(f"{name}/{MARKER} leads backwards, to {marker.to}")
    return marker


def last(links: Iterable[Link]) -> Link | None:
    """The end of a walk; None if the chain is empty."""
    found = None
    for found in links:  # noqa: B007 - the last one is what is wanted
        pass
    return found


def encode_hint(link: Link) -> str:
    """The text of ``_hint.json``: a link, by where it begins and ends."""
    return json.dumps({"format": FORMAT, "after": position_text(link.after), "to": str(link.to)})


def decode_hint(text: str, read: Callable[[str], str | None]) -> Link | None:
    """A link behind which a walk may begin; None = begin at the beginning.

    A hint is never believed alone: the link that it names must be there and end where it says.

    Args:
        text: of the hint; a torn one counts as none.
        read: see :func:`walk`.
    """
    try:
        found: Any = json.loads(text)
        after, to = parse_position(found["after"]), Position.parse(found["to"])
        name = link_name(after)
        marker = Marker.decode(read(name) or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Link(after, to, name, marker) if marker.to == to else None


def run_to_merge(links: list[Link], min_links: int, full_rows: int) -> list[Link]:
    """The links that a compaction merges: all behind the last full segment.

    Args:
        links: the walk from its beginning.
        min_links: fewer than these (>= 2) are not worth it.
        full_rows: a segment with at least as many rows is left as it is.
    """
    begin = 0
    for index, link in enumerate(links):
        if link.is_segment and link.marker.rows >= full_rows:
            begin = index + 1
    run = links[begin:]
    return run if len(run) >= max(2, min_links) else []


def superseded(
    links: Iterable[str], segments: Iterable[str], taken: Iterable[Link]
) -> Iterator[str]:
    """Directories whose rows the walk gets from a segment instead.

    Args:
        links: names in the shard's directory; what is no link is skipped.
        segments: names in its directory of segments.
        taken: segments of the walk that are old enough for every reader to know them.
    """
    spans = [(link.after, link.to, link.name) for link in taken]
    for name in links:
        after = link_of(name)
        if after and any(_begins_in(after[0], begin, end) for begin, end, _ in spans):
            yield name
    names = {name for _, _, name in spans}
    for begin, to in parse_segments(segments):
        name = segment_name(begin, to)
        if name not in names and any(_begins_in(begin, left, right) for left, right, _ in spans):
            yield name


def _begins_in(after: Position | None, begin: Position | None, end: Position) -> bool:
    """True if what follows ``after`` is a part of what lies between the two others."""
    begins = begin is None or (after is not None and after >= begin)
    return begins and (after is None or after < end)
