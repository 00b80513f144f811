"""The layout of the parquet chain, and the walk along it. Pure: names and texts, no I/O.

::

    <path>/_kcl_chain.json                        whose output this is
    <path>/_staging/<owner>/<job>/                what is being written
    <path>/epoch=<E>/stream=<S>/shard=<X>/
        after=<position or start>/                one committed batch: a link
            part-*.parquet                        its rows; none if the function kept none
            _kcl.json                             its marker: where it ends
        _segments/<from>~<to>/                    a run of links, merged
        _hint.json                                a link near the end, to shorten the walk

A link is named by the position that it follows, not by its range: a redelivery is cut anew, and
two writers that extend the same position must collide. Whoever begins at ``start`` and goes from
``to`` to ``to`` meets each row once. A segment covers whole links (and whole older segments), so
that the walk may take it in their place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mld.spark.errors import SinkRefused
from mld.spark.model import Position, parse_position, position_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mld.spark.model import ShardKey

FORMAT = 1
MARKER = "_kcl.json"
OWNER = "_kcl_chain.json"
STAGING = "_staging"
SEGMENTS = "_segments"
HINT = "_hint.json"
#: Longest name of a directory on the usual file systems, in bytes.
NAME_LIMIT = 255
_LINK, _EPOCH, _STREAM, _SHARD = "after=", "epoch=", "stream=", "shard="


@dataclass(frozen=True, slots=True)
class Marker:
    """What a link says about itself.

    Attributes:
        to: position of its last record.
        count: records of the batch, >= 0; a function may have made any number of rows of them.
        files: parquet files that it was committed with; 0 = it has no rows.
        rows: rows in the files of a segment; 0 in a link, where nobody counts them.
        writer: who committed it: the same for one process, and no other.
        published_s: wall time of a segment's publication in s since 1970; 0 in a link.
    """

    to: Position
    count: int
    files: int = 0
    rows: int = 0
    writer: str = ""
    published_s: float = 0.0

    def encode(self) -> str:
        """The text of ``_kcl.json``."""
        return json.dumps(
            {
                "format": FORMAT,
                "to": str(self.to),
                "count": self.count,
                "files": self.files,
                "rows": self.rows,
                "writer": self.writer,
                "published": self.published_s,
            }
        )

    @classmethod
    def decode(cls, text: str) -> Marker:
        """The inverse of :meth:`encode`; members that it does not know are skipped.

        Raises:
            ValueError: it is no marker, or one of a newer format.
        """
        found: Any = json.loads(text)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"not a marker of format {FORMAT}: {text[:80]!r}")
        return cls(
            to=Position.parse(str(found.get("to"))),
            count=int(found.get("count", 0)),
            files=int(found.get("files", 0)),
            rows=int(found.get("rows", 0)),
            writer=str(found.get("writer", "")),
            published_s=float(found.get("published") or 0.0),
        )


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


def escape(text: str) -> str:
    """A stream's or an epoch's name as part of a directory's name: percent-encoded UTF-8.

    Raises:
        SinkRefused: it would be too long.
    """
    escaped = quote(text, safe="").replace("~", "%7E")
    if len(escaped) > NAME_LIMIT - len(_STREAM):
        raise SinkRefused(f"the name {text!r} is too long for a directory: shorten it")
    return escaped


def shard_path(shard: ShardKey) -> str:
    """Directory of a shard, relative to the chain's."""
    return f"{stream_path(shard.epoch, shard.stream)}/{_SHARD}{escape(shard.shard_id)}"


def epoch_path(epoch: str) -> str:
    """Directory of an epoch, relative to the chain's."""
    return f"{_EPOCH}{escape(epoch)}"


def stream_path(epoch: str, stream: str) -> str:
    """Directory of a stream, relative to the chain's."""
    return f"{epoch_path(epoch)}/{_STREAM}{escape(stream)}"


def stream_of(name: str) -> str | None:
    """The stream that a directory is named after; None if it is none of these."""
    return unquote(name.removeprefix(_STREAM)) if name.startswith(_STREAM) else None


def shard_of(name: str) -> str | None:
    """The shard that a directory is named after; None if it is none of these."""
    return unquote(name.removeprefix(_SHARD)) if name.startswith(_SHARD) else None


def link_name(after: Position | None) -> str:
    """Directory of the batch that follows a position, relative to the shard's."""
    return f"{_LINK}{position_text(after)}"


def link_of(name: str) -> tuple[Position | None] | None:
    """The position that a link's name holds, in a tuple; None if it is no link's name."""
    if not name.startswith(_LINK):
        return None
    try:
        return (parse_position(name.removeprefix(_LINK)),)
    except ValueError:
        return None


def segment_name(after: Position | None, to: Position) -> str:
    """Directory of a merged run, relative to the shard's."""
    return f"{SEGMENTS}/{position_text(after)}~{to}"


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


def parse_segments(names: Iterable[str]) -> Iterator[tuple[Position | None, Position]]:
    """Where segments begin and end; names that are none are skipped."""
    for name in names:
        begin, _, end = name.partition("~")
        try:
            after, to = parse_position(begin), Position.parse(end)
        except ValueError:
            continue
        if is_after(to, after):
            yield after, to


def is_after(to: Position, after: Position | None) -> bool:
    """True if ``to`` lies behind ``after``; everything lies behind the beginning."""
    return after is None or to > after


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
